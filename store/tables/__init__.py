r"""One module for each Berkeley DB table of a partition: what its rows are, and how they are read and written.

Imports `mboxlist` and the small modules of `store`. A table knows its rows, and neither partitions nor stores.

    index.db      `index`           (mailbox id, chunk) -> up to 64 records
    state.db      `state`           mailbox id -> UIDNEXT, HIGHESTMODSEQ, counts, octets, quota root, keywords; and the
                                    partition's epoch and next serial. One row tells whether a mailbox changed, and
                                    locks it. `copiesunderway`: what there is of a COPY that has not come to its end;
                                    `UNCOUNTED_KEY`: figures were put back, and the sums of them are not counted yet
    quota.db      `quotatable`      quota root -> use, limits
    messages.db   `references`      digest -> serial, references and their check value, size, length of the trace
                                    header, when the last reference went
    purge.db      `references`      (time, digest) -> files without references, up to 256 that went together: the purge
                                    reads only what is due
    cache.db                        serial -> cache record. Serials ascend, so new records go to the right edge
    seen.db       `readerflags`     (mailbox id, chunk, reader) -> that reader's own flags
    vanished.db   `vanished`        (mailbox id, MODSEQ) -> ranges of expunged UIDs, for QRESYNC
    removed.db    `expunged`        (time, mailbox id, MODSEQ) -> expunged records, for undelete; they still count as
                                    references
    uidls.db      `uidls`           (mailbox id, UID) -> the POP3 unique-id of an earlier server; UID 0: how many
    heads.db      `privateheaders`  number -> header fields that messages have in some mailboxes alone
    arrivals.db   `duplicates`      digest of Message-ID, sender, mailbox -> until when it counts

A record (`index.ROW`) is 96 octets: UID, flags, keywords, MODSEQ, internal date with zone, size, serial, header length,
digest, private header, balance. UID u is in chunk (u - 1) // 64. The chunks of a mailbox join into one numpy array, and
everything works on whole arrays; a mailbox of 100,000 is read in some tens of milliseconds at most.

Each chunk ends with a CRC-32 of its records. It is at the end because Berkeley DB logs the part of a value that
changed: an arrival appends, and changes 96 + 4 octets there and none at the head. `extend` carries the old checksum on
instead of computing it again, so a damaged chunk stays a damaged one. A change of flags does not change it: see
`index.balanced`.

Flags are 16 bits; keywords are 64 bits that stand for the names in the mailbox's state. \Recent is not a flag:
`Store.claim_recent` gives a session the UIDs that no session has seen.

`messages.db` counts the references to each file and keeps a check value: the sum of a 64-bit mark for each reference,
made from mailbox id and UID. A reference that is given back twice, or was never counted, leaves a sum that is not 0
when the count is. Then it is logged, and the file stays: a wrong count must never delete mail.

`state` raises the figures of a mailbox after an unclean end: `MailboxState.from_bytes` finds a state of an earlier
epoch and skips 65,536 UIDs and 2^24 MODSEQs for each unclean end. Commits are not synced one by one, so after a crash
the last ones, which nobody was answered for, may be gone; but other sessions may have seen their UIDs.
"""
