"""Berkeley DB behind a boundary: environments, transactions, tables, hot copies, and what mends a damaged environment.

Nothing else imports berkeleydb, and this room imports nothing of ours. Front doors: `kv.Env`, `btree.Table`. A second
engine would be a second room beside this one.

Commits do not sync. Before a change is acknowledged, `Env.flush` is called, once for all that was committed so far. In
a deadlock Berkeley DB chooses a victim, and `engine.transact` runs that transaction again, up to 50 times.

Shared memory. Berkeley DB's shared memory is mapped from files with holes in them, and touching a hole on a full disk
kills the process. So `regions.reserve` gives disk blocks to all of it at the start. After an untouched clean end the
next process joins the memory as it was left (`regions`); in every other case recovery makes it again.

Checkpoints. Berkeley DB syncs pages at a checkpoint, but no folder; so `Env.checkpoint` first puts the name of the
newest log file on disk. Checkpoints, also early ones after 256 MB of log, keep recovery under 2 seconds.

Damage. `damagemarks` has the small files that say whether an environment was left clean, how far its log was flushed,
and which tables there are. Before an environment is opened `pages` looks at page numbers and checksums of all tables,
unless the last end was a clean one and nobody has touched the files since. `damage` finds out what is whole, and makes
the environment again from that. Whatever may hang or die because of damaged files runs in a process of its own.

When Berkeley DB says that an environment needs recovery, the process ends: every start recovers, so whoever watches the
process starts it again.

Bulk. A table that may be thrown away until it is whole is made outside of the environment and its log (`bulk`). Each
octet is written once, to `<table>.loading`; `Env.exchange` puts it in place. The file `unlogged` then says that the log
does not go back to the beginning of all tables.

Write freeze. `freezegate` keeps transactions of all processes from beginning while somebody needs the databases to
stand still. A transaction looks at it when it has begun and before it has done anything; one that only reads passes.
"""
