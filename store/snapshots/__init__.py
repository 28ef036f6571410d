"""Hot copies of all databases: made, kept, compared, read by users, and put back.

Front doors: `taking.create`, `reset.restore`, `snapshotreader.SnapshotReaders`.

`taking` copies every environment while it is written to: databases page by page, then the ends of all logs read twice.
If none has grown between, that is one moment of the whole store, and each copy recovers to it. Message files stay as
long as a snapshot refers to them; logs since the newest stay (`LogFiles.keep`). `reset` makes the new databases beside
the old ones, sets those aside, and has every figure go on behind what was shown.

Snapshots as mailboxes (`snapshotreader`, `imap.snapshotnames`) are below `#snapshots/`. The first to look has the
databases copied and recovered beside the snapshot (`opened`); all processes read them without locks, and the last one
out removes them. Records come from there, octets from `messages/`, where the snapshot keeps them. Whose a mailbox was
goes by the id of INBOX, which a renamed user keeps and a new user of the same name does not have. COPY out of a
snapshot (`snapshotcopy`) adds references to the files that are there; private header fields get the numbers that these
have now. Lost cache records are made in a thread, and remembered while the snapshot is looked into, since nothing is
written there.

Write freeze (`writefreeze`). While it holds, transactions that change something wait: in threads by looking, in the
thread of an event loop they raise (`NotAtOnce`), and `offload.change` has the work done in a thread. Those that only
read pass.
"""
