"""The way of every message, from staged octets to durable: files synced, one transaction, one flush of the log.

Front door: `durable.deliver`, the whole way; `commit.commit` is its transaction. LMTP, APPEND and
`onecopy deliver` use it.

1. `Staged.digested`: the digest is final.
2. Is the content new to the partition? Then the file `staging/<arrival serial>` is written, and the octets go to the
   file journal of this process, which is synced for all that wait (`filejournal`). For large messages, and those for
   which the journal has no room, their own file is synced, side by side with those of other messages: the file system
   merges syncs that come together. A message whose digest has references (`is_known`) skips this, unless that would
   tell a client what others have (`concealment`); up to 128 KiB nothing is even written. The transaction looks again
   whether it still has references (`NotOnDisk`). While the disk is at work `Staged.finish` makes the cache record.
3. `commit`: ONE transaction writes N index records, N mailbox states, N quota uses, one reference count, one cache
   record. It is committed without a sync. A target that is over quota or was deleted meanwhile is refused alone.
4. The database's log is flushed, once for all transactions that wait at that moment.
5. The replies go out.
6. `Staged.place`: the file gets its second name `messages/3/fa/<digest>`, a hard link. No sync, and nobody waits: a
   thread does it 100 ms later, for all messages of that time (`net.sharedsyncs`). Until then readers find the file by
   its staged name.

When a script changes a message, the result is another message, which is delivered in the transaction of the first one
(`alongside`).

`Staged.abort` does nothing to a message that has been committed. `onecopy deliver` does all of this in one thread
(`store.offload.Threads`).

Step 4 alone comes before every OK to STORE, COPY, EXPUNGE and the like. `store.sync` says what is waited for. At every
level a crash leaves a store that is whole: it loses the last transactions, none from the middle.

Locked mailboxes. The event loop waits 10 ms for locks; then the delivery goes to a thread. Only a few deliveries wait
for one mailbox there, and not for long: the others are refused for now. RCPT reads without locks (`Table.glance`). So a
mailbox that stays locked holds up neither the loop nor the mail of others.

Several messages to one mailbox (MULTIAPPEND) are staged one after the other and delivered all or none, in one
transaction (`commit.commit_all`), with one flush. When more than 1 MiB of them waits, they are put on disk and their
files are closed, so that such a command takes neither memory nor descriptors. Messages to one mailbox that a
client has sent without waiting share a transaction, too, in which each is delivered or refused by itself (`sentahead`).

Duplicate suppression. With `Target.suppress` a delivery locks the mailboxes, then looks for the message in
`arrivals.db`: a mailbox that has it gets `Duplicate`, a positive answer that writes nothing; a refused one leaves no
key.
`repeats` recognises a delivery that ended without an answer.

The trace header. A file keeps the Return-Path and Received of its first delivery, if any. A record has the header
length. It is 0 for that delivery; for what was appended, and for every other delivery, it is the length of the trace
header. Another delivery has its own trace header as the last of its private header fields. So each message shows its
own trace header, and nobody sees another's.

Private header fields. A message can have header fields in one mailbox alone (`Target.header`; LMTP's Delivered-To), or
in the mailboxes of one delivery. The record has their number, `heads.db` their octets. The message is these octets, and
then the file from the header length on; `size` counts both. New numbers are given in a transaction before the
delivery's, so that nobody's fields wait for another's mailbox. Another partition gives its own numbers; `store.idx` has
the octets.

Lost files. A record counts only together with its file: before anything refers to a message, it is looked whether its
file is there, and as long as `messages.db` says (`batch.usable`, `MessageFiles.is_whole`). COPY within a partition does
not look. A file that has a record and is not there is lost. When the same message comes again, as long as the lost one,
its file takes the name (`replacement`). Behind a trace header of another length it cannot, and is refused for now,
unless only expunged messages use the lost file: these are given up, and the message is a new content. No answer says
that a message is kept while no file has it.

A file that another delivery has restored has the trace header of that delivery. Nobody has kept the first one: that
would take some 200 octets more in a database for each message. So messages that show it begin differently than before,
under the same UID, which RFC 3501 2.3.1.1 does not allow; but while the file was missing they could not be read at all.
They show Return-Path and Received of the delivery that restored the file, also to those who had got another delivery,
perhaps from another sender. Everything else is as it was: RFC822.SIZE, since both are equally long, the octets below,
private header fields, ENVELOPE, BODYSTRUCTURE, parts, and messages that show no trace header. A reader goes on with the
file that was opened, or gets an error, and never gets some of both. A file from a backup or another
partition comes with the header that it has there.

New mailboxes. A mailbox takes no mail before its row in the list, which is an environment of its own, is on disk
(`MailboxState.moving` is UNLISTED until then). Otherwise a crash could remove the row, and nobody would find the mail.
A delivery in that moment waits as for a mailbox that is being moved, and is tried again. If the list's log cannot be
flushed, the mailbox can be seen, and takes nothing until housekeeping has flushed it.
"""
