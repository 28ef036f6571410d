"""One volume: its message files, its databases in one transaction, and mailbox views for readers.

Front door: `partition.Partition`, with `Partition.transact` for every change. A partition is a complete shard with a
log of its own; delivery, flags, copy and expunge touch only its environment.

Changes. `Partition.transact` calls a function with a `WriteTxn`. The function may be called again after a deadlock, so
it touches nothing outside. Mailboxes are visited in order of id, and a message's reference count last, so that
transactions rarely wait for each other in a circle. Every change of a mailbox raises its HIGHESTMODSEQ. `changed` in
the state is the MODSEQ of the last change that was not an arrival, so a reader knows when only the end of the mailbox
is new.

`WriteTxn.load` reads the chunks concerned into one array, the change is made to the whole array, and `WriteTxn.rewrite`
writes the chunks in which something differs. Every recipient of every delivery costs an arrival, so an arrival works on
the figures as they are stored (`WriteTxn.arrive`). Quota use changes in the transaction that changes the records it
sums (`WriteTxn.charge`): the two cannot drift apart, and two deliveries cannot both take the last octet.

Message files (`messagefiles`, `staged`). The names in `staging/` are on disk before the messages come:
`Serials.make_ready` makes 128 empty files at a time, in a thread, and syncs the folder once. A message that finds none
makes its own file, and then the folder is synced, too. A committed message keeps its staged name until
`drop_staged_names`. This calls syncfs(2) every 5 seconds, which puts the second names on disk, and then removes the
staged ones. Why a second name and not a rename: on a file system without a journal, a crash after a rename that was not
synced can lose both names.

Views (`views`). `Store.open_mailbox` gives a `Mailbox`, an immutable view: state and records. `Store.refresh` returns
the same object when HIGHESTMODSEQ has not moved (one row is read). Mailboxes of 1,000 messages and more have arrays
that all sessions of a process share (`recordbuffers`). What a view shows never changes: the changed chunks for the next
view go into an array that nobody holds any more, and arrivals go to its end.

A process remembers its own changes: the last 32 of a mailbox, and of the last 8 also the records, if each change was of
one record. It finds the changes of other processes by comparing chunks. `Mailbox.since` names the changed chunks, so
one flag costs the same in a mailbox of any size. A reader's own flags are laid over the records (`as_seen`), and are
read again at each opening. Threads of the pool `views` read views of 10,000 records and more, and do large merges. A
transaction that rewrote all records of a mailbox hands them over after the commit, so nobody reads them again.

Reading messages (`messagereading`). `MessageFile.read` applies the header length; `size` is RFC822.SIZE, exact, for
each record. Bodies of up to 64 KiB are compared with their digest before they are shown (`verified`). A lost cache
record is made again from the file (`Serials.rebuild_cached`).

A partition past `store.disk_threshold`, or with less than `store.disk_reserve` free, takes no more mail (452 4.3.1 at
RCPT, NO to APPEND); reading, flags and expunges go on. A write that fails for want of room is refused in the same way,
and what was staged of the message is removed.

Processes (`processes`). flock(2) shows which processes have the store open; a killed process cannot leave such a lock
behind. Processes come and go one at a time, behind `door.lock`; a process that is inside holds the lock of
`inside/<pid>.<n>.<name>`. The first one in is alone, and recovers. The last one out leaves the store clean, unless one
has died. While one has died and others are still inside, nobody comes in: they may be waiting for its locks for ever.
`server.pid` is locked by the supervisor, of which there is one.
"""
