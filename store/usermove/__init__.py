"""A user moves from one back end to another while mail arrives: what the two say, and what each does to its store.

Front doors: `sourceside`, `targetside`. `sourceside` has the table of crashes.

The move goes in passes, as between partitions (`store.partitions.partitionmove`), over mutual TLS, on which both have
proved who they are. Digests go first; only files that the target partition lacks follow, and are checked and synced
there. The copy is complete before the target's list names it. One transaction at the source compares the list with what
was sent and gives the row the other host; only then is the copy activated, also in one transaction, and only then does
the source clear its own. `moves.db` says how far each side is. `MailboxList.guard` refuses changes for who has gone;
sessions get BYE or -ERR, mail 450. Housekeeping finishes what was cut off. Mailboxes have new ids there, so what goes
by these stays: duplicate suppression, and the user's own flags and rights in mailboxes of others.
"""
