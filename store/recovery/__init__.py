"""What a start does before anybody uses the store: databases are mended or rebuilt, the list and the partitions
reconciled.

A start opens each environment through `environments.Recovery.opened`. What the marks of `mboxlist.engine.damagemarks`,
Berkeley DB's recovery or a page check show to be damaged is set aside and made again: from its own log, from the newest
snapshot and the log since, from its tables that are whole. What is then missing is rebuilt from the user area and
message files by `store.rebuild`. While a start mends, `<root>/mending` names what was set aside; a start that was cut
off is begun again from there by the next.

Otherwise a start is always the same, after a clean end or a crash, in the first process to come: Berkeley DB recovery
of every environment, or after an untouched clean end its shared memory as it was left (`mboxlist.engine.regions`); the
epoch; every file in `staging/` gets its place if its serial was committed, else it is swept (`MessageFiles.recover`,
`settle`); and reconciliation.

The epoch. `index/unclean` is there while a partition is in use. The process that recovers and finds it adds one to the
epoch in `state.db`; each mailbox then skips ahead before it gives out the next UID (`store.tables.state`). Arrival
serials are taken 4,096 at a time, and that is flushed first. Mailbox ids and UIDVALIDITYs likewise.

Reconciliation (`reconciliation`) makes the partitions what the list says, since the list and each partition are
environments of their own. It looks only at mailboxes in `pending.db`, where their ids are put by the transaction that
begins something; after a rebuild, at all. A mailbox that was being made, moved or deleted is finished or taken back; a
row of the list without a state gets an empty mailbox with a new UIDVALIDITY. A mailbox with messages that no list knows
is no crash's work: the list was lost, or is an old one. It is reported and left as it is, and its id and UIDVALIDITY
are not given out again.
"""
