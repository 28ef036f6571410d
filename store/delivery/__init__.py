"""The way of every message, from staged octets to durable: files synced, one transaction, one flush of the log.

Front door: `durable.deliver`, the whole way; `commit.commit` is its transaction. LMTP, APPEND and
`onecopy deliver` come this way.

1. `Staged.digested`: the digest is final.
2. Is the content new to the partition? Then the file `staging/<arrival serial>` is written, and the octets go to the
   file journal of this process, which is synced for all that wait (`filejournal`). Large ones, and those for which the
   journal has no room, have their own file synced, side by side with those of other messages: the file system merges
   syncs that come together. A message whose digest has references
   (`is_known`) skips this, unless that would tell a client what others have (`concealment`); up to 128 KiB nothing is
   even written. Whether it still has any is looked at again within the transaction (`NotOnDisk`).
   While the disk is at work `Staged.finish` makes the cache record.
3. `commit`: ONE transaction writes N index records, N mailbox states, N quota uses, one reference count, one cache
   record. It is committed without a sync. A target that is over quota or was deleted meanwhile is refused alone.
4. The database's log is flushed, once for all transactions that wait at that moment.
5. The replies go out.
6. `Staged.place`: the file gets its second name `messages/3/fa/<digest>`, a hard link. No sync, and nobody waits: a
   thread does it 100 ms later, for all messages of that while (`net.sharedsyncs`). Until then readers find the file by
   its staged name.

What scripts make of a message is another one, which is delivered in the transaction of the first (`alongside`).

`Staged.abort` leaves a message alone that has been committed. `onecopy deliver` takes this way with everything done at
once instead of in threads (`store.offload.Threads`).

Step 4 alone comes before every OK to STORE, COPY, EXPUNGE and their like. `store.sync` says how much is waited for. At
every level a crash leaves a store that is whole: what is lost is lost from the end, transaction by transaction.

Locked mailboxes. The event loop waits 10 ms for locks; then the delivery goes to a thread, where few wait behind one
mailbox and not for long: the others are refused for now. What RCPT looks at it reads without locks (`Table.glance`). So
a mailbox that stays locked holds up neither the loop nor the mail of others.

Several messages to one mailbox (MULTIAPPEND) are staged one after the other and delivered all or none, in one
transaction (`commit.commit_all`), with one flush. When more than 1 MiB of them waits they are put on disk and their
files are let go of, so that such a command takes neither memory nor descriptors. Messages to one mailbox that a
client has sent without waiting share a transaction, too, in which each is delivered or refused by itself (`sentahead`).

Duplicate suppression. With `Target.suppress` a delivery locks the mailboxes, then looks for the message in
`arrivals.db`: who has it gets `Duplicate`, a positive answer that writes nothing; who is refused leaves no key.
`repeats` recognises a delivery that ended without an answer.

The trace header. A file keeps the Return-Path and Received of its first delivery, if any. A record has the header
length: 0 for that delivery; the length of the trace header for what was appended, and for every other delivery, whose
own trace header is among the private header fields, the last of them. So each shows its own, and nobody another's.

Private header fields. A message can have header fields in one mailbox alone (`Target.header`; LMTP's Delivered-To), or
in those of one delivery. The record has their number, `heads.db` their octets: the message is these, and then the file
from the header length on; `size` counts both. New numbers are given in a transaction before the delivery's, so that
nobody's fields wait for another's mailbox. Another partition gives its own numbers; `store.idx` has the octets.

Lost files. No record is believed without its file: whoever refers to a message looks whether its file is there, and as
long as `messages.db` says (`batch.usable`, `MessageFiles.is_whole`). COPY within a partition looks at nothing. What a
record of message files says, and no file has, is a loss. When the same message comes again, as long as the lost one,
its file takes the name (`replacement`); behind a trace header of another length it cannot, and is refused for now,
unless only expunged messages are left of it: these are let go of, and it is a new content.
No answer says that a message is kept while no file has it.

A file that another delivery has restored has the trace header of that delivery: nobody has kept the other one,
which would take some 200 octets more in a database for each message. So the messages that show it begin otherwise than
before under the same UID, which RFC 3501 2.3.1.1 does not allow; while the file was missing they could not be read at
all. What is shown is Return-Path and Received of the delivery that restored it, also to those to whom another one,
from another sender perhaps, had come. Everything else is as it was: RFC822.SIZE, since the two are equally long, the
octets below, private header fields, ENVELOPE, BODYSTRUCTURE, parts, and messages that show no trace header. Who is
reading goes on with the file that was opened, or gets an error, and never some of both. A file from a backup or another
partition comes with the header that it has there.

Mailboxes on their way. A mailbox takes no mail before its row in the list, which is an environment of its own, is on
disk (`MailboxState.moving` is UNLISTED until then): a crash would take the row away, and the mail would be where nobody
finds it. A delivery in that moment waits as for a mailbox that is being moved, and is tried again. If the list's log
cannot be flushed, the mailbox is seen and takes nothing until housekeeping has flushed it.
"""
