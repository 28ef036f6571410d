"""Backups: archives of mailboxes and messages that any tar reads, and what restores them.

Front doors: `creation`, `restore`, `integrity`. docs/backup.md says what is in an archive.

`creation` reads each mailbox in one transaction and writes the message files that its records need before it; arrival
serials tell which of them earlier archives have. The tar lies in independent frames with labels behind them
(`compression`), so a damaged frame costs what is in it. `restore` stores files a thousand at a time with one sync of
the file system, and fills mailboxes where nobody sees them (`store.rebuild.liveloader`). UIDNEXT and MODSEQ skip as
after an unclean end. Cache records have members of their own. They are only a help: one that does not fit its message
is rendered again.
"""
