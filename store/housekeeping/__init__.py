"""What is done from time to time while servers run, one task after the other, a slice at a time.

Front doors: `tasks.every_process`, `tasks.one_process`. Each task names its items (partitions, mailboxes, messages) and
what to do with one of them. A `Round` goes through them in slices of 50 ms in a thread: between two items it leaves off
at a stop, between two slices it waits as `store.housekeeping_rate` wants. An item that fails is reported once, and from
then on comes last. A task begins again its interval after it has ended. Every process settles its staged files, writes
`store.idx`, and sweeps its own files in `staging/`; the keeper does the rest for all: purge, expiry, snapshots,
checkpoints, repair of damaged mailboxes, interrupted operations. (What is on record as a command that was cut off is
the business of `store.finishing`.)

Interrupted operations (`interrupted`). What a full or failing disk stops between the list and a partition (a mailbox
that is made, restored, deleted, renamed to another quota root, purged) is refused for now, and taken back where
that can be done. The rest is finished a minute later, as the next start would: the list is flushed, and the partition
made what it says. That looks at the list within the transaction that changes the figures, and `make_writable`, the last
step of what was only slow, puts right what housekeeping took for stopped.
"""
