"""One volume: its message files, its databases in one transaction, and mailbox views for readers.

Front door: `partition.Partition`, with `Partition.transact` for every change. A partition is a complete shard with a
log of its own; delivery, flags, copy and expunge touch its environment only.

Changes. `Partition.transact` runs a function of one `WriteTxn`. It may run again after a deadlock, so it touches
nothing outside. Mailboxes are visited in order of id and a message's reference count last, so waits rarely cross. Every
change of a mailbox raises its HIGHESTMODSEQ. `changed` in the state is the MODSEQ of the last change that was not an
arrival, so a reader knows when only the end of the mailbox is new. `WriteTxn.load` reads the chunks concerned into one
array, the change is made to the whole array, and `WriteTxn.rewrite` writes the chunks in which something differs. An
arrival, which every recipient of every delivery costs, works on the stored figures (`WriteTxn.arrive`). Quota use
changes in the transaction that changes the records it sums (`WriteTxn.charge`), so the two cannot drift apart, and two
deliveries cannot both take the last octet.

Message files (`messagefiles`, `staged`). The names in `staging/` are on disk before the messages come:
`Serials.make_ready` makes 128 empty files at a time, in a thread, and syncs the folder once. A message that finds none
makes its own file, and then the folder is synced, too. A committed message keeps its staged name until
`drop_staged_names`, which every 5 seconds calls syncfs(2), which puts the second names on disk, and then removes the
staged ones. Why a second name and not a rename: where a file system has no journal, a crash after a rename that was not
synced can lose both names.

Views (`views`). `Store.open_mailbox` gives a `Mailbox`, an immutable view: state and records. `Store.refresh` returns
the same object when HIGHESTMODSEQ has not moved (one row read). Mailboxes of 1,000 messages and more have arrays that
all sessions of a process share (`recordbuffers`). What a view shows never changes; an array that nobody holds any more
gets the changed chunks for the next view, and arrivals go to its end. Changes of this process are remembered (the last
32 of a mailbox; of the last 8, if each was of one record, these records too), those of others are found by comparing
chunks. `Mailbox.since` names the changed chunks, so one flag costs the same in a mailbox of any size. A reader's own
flags are laid over the records (`as_seen`) and read again at each opening. Views of 10,000 records and more are read,
and large merges done, in threads of the pool `views`. A transaction that rewrote all records of a mailbox hands them
over after the commit, so nobody reads them again.

Reading messages (`messagereading`). `MessageFile.read` applies the header length; `size` is RFC822.SIZE, exact, for
each record. Bodies of up to 64 KiB are compared with their digest before they are shown (`verified`). A lost cache
record is made from the file (`Serials.rebuild_cached`).

A partition past `store.disk_threshold`, or with less than `store.disk_reserve` free, takes no more mail (452 4.3.1 at
RCPT, NO to APPEND); reading, flags and expunges go on. A write that fails for want of room is the same refusal, and
what was staged of the message goes.

Processes (`processes`). Who has the store open shows flock(2), which a killed process cannot leave behind. Coming
and going happen one at a time behind `door.lock`; whoever is inside holds the lock of `inside/<pid>.<n>.<name>`. The
first one in is alone and recovers; the last one out leaves the store clean, unless one has died. While one has died and
others are still inside, nobody comes in: they may hang on its locks. `server.pid` is locked by the supervisor, of which
there is one.
"""
