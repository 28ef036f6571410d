"""Partitions as a whole: found, added, filled, removed, and mailboxes that move from one to another.

Front doors: `volumes`, `partitionmove`. The room `store.partition` below is one of them by itself.

A partition on another volume is a symbolic link in `partitions/`. The first process recovers all that are there and
writes their names to `run/partitions`; the others join these. `partition add` makes a partition whole before it writes
the name, and a process joins it when it first needs it, at the latest five seconds later. One whose volume is missing
is left out; its mailboxes are unavailable until the store is opened again.

Moving between partitions (`partitionmove`). Files and records are brought while everything goes on, again and again
until little is new. Then the mailboxes are held (`MailboxState.moving`): deliveries wait up to five seconds, flag
changes are refused as in use. What is left is brought and flushed; the list and the account name the other partition,
flushed; the mailboxes are let go there; the source forgets them. `Store.whereabouts` finds a mailbox for whoever has an
older row of the list. After a crash the list decides.
"""
