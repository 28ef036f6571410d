"""The user area: `store.idx`, the portable copy of each mailbox, from which all databases can be rebuilt.

`idxfile` is the format and `idxreading` reads it, `paths` says where the files are, `writing` keeps them up to date;
what no mailbox tells is in `users/directory` (`directoryfile`).

A `store.idx` has everything known of a mailbox, and all records, with a checksum for every 64. Each process writes
those of the mailboxes that it changed, every 20 seconds and when it leaves the store: it takes the mailbox's lock,
reads the mailbox, writes beside the old file, flushes the databases' logs, syncs, and renames. So the last to write has
the newest, and no file is ahead of the database. A file that cannot be written is reported and comes again after the
others.

What a killed process left unwritten is found after the next start (`store.recovery.userareacheck`; the file
`index/behind` asks for it). A deleted mailbox's file is in `users/deleted/<id>/` until the purge.
"""
