r"""What is done to mailboxes and their messages: copy, move, flags, expunge, undelete, delete, rights.

Each operation is a function of an open store, and raises StoreError.

Rights (`authorization`) are decided here and nowhere else. For one's own mailbox without an ACL, nearly all there are,
that is a comparison. The owner always keeps `l` and `a`. A mailbox made below another is shared as that is. A session
in a shared mailbox asks for its rights with every command and before any news; who may not read it any more is
disconnected. What cannot be looked up is answered as if it were not there. SETACL takes any identifier, in the form
that a user id would have, so that nobody learns from it who has an account.

Flags (`flagchanges`). In a mailbox of somebody else's, \Seen is each reader's own (`store.private_flags`; other system
flags can be added). A change is divided between the record and the reader's row in `seen.db`. What the reader has no
right to change stays as it is (RFC 4314 section 4).

What concerns many messages is done some at a time, each time in a transaction of a few milliseconds: others wait for
the pages that it changes. STORE, EXPUNGE and MOVE are just several. A COPY is of all or none: from its second slice on
it is on record what of it is there (`tables.copiesunderway`), which the last one takes away; when it cannot go on, and
when a store is opened that was left with such a record, those messages go again.

COPY and MOVE within a partition (`copymessages`) write records and touch no file. A MOVE within one quota root needs no
free quota. To another partition (`crosspartition`) the message files come first (`store.delivery.filecopy`): those
whose content is not known there, once each, synced side by side, and on record as waiting for the purge. Then one
transaction makes records and references. With MOVE the source's records go when the target is on disk: a crash in
between leaves both. Octets stay as they were: where the other partition has the content under another trace header, the
message that shows its own becomes a file for itself, named by the digest of header and content together.

Removal in three steps. A message gets \Deleted, is expunged, and is purged. Expunge (`expunge`) takes records out,
gives quota back, and keeps two things: the UIDs (`vanished.db`, up to 256 KiB a mailbox; past that the older half goes,
and `Store.vanished` says that it does not know), and the records (`removed.db`), from which `undelete_messages` makes
new messages. These records still count as references: so an expunge, and an expiry of half a large mailbox, writes
chunks of records and no row of `messages.db`, which were half of what it cost. When `store.purge_delay` is over they
can be restored no more (`expunge.forget`), and their references are given back, as of the time of the expunge. With
the last one the digest goes on the purge list, in one row with others that went then and arrived about the same time.

The purge removes the files on that list, in batches: up to 64 at a time are unlinked while the rows of their digests
are locked, then all names leave the disk with one sync under no lock, then the records go, list by list. In between,
and after a crash, a record has neither references nor file and is still on the purge list; a message with the same
content that arrives then is stored again. A file to which a mailbox referred when the oldest snapshot was made is not
purged. One that had only been expunged then may be: when that snapshot is put back, reconciliation
(`expunge.drop_lost`) lets go of the expunged records whose files are gone. Expunged records that came with a mailbox
from another partition, or from a version before, are not counted; `removed.db` says of each whether it is.

A mailbox that is deleted (`deletion`) leaves the list, gives its quota back, and keeps its records and references.
`undelete_mailbox` puts it back whole, under a new UIDVALIDITY, since another mailbox may have had the name meanwhile.
After the purge delay `purge_mailbox` destroys it: it leaves `deleted.db` first, and the next start finishes what was
cut off. A message file waits for the purge from the latest time at which one of its references went.

`joining` makes one content of what is below differing header fields (`onecopy relink`): records get a private header
and the new digest, HIGHESTMODSEQ rises so that views are read again, and old files wait for the purge. `identicalfiles`
makes one file with two names of files that are equal octet for octet: they are never modified, and each name is purged
by itself.
"""
