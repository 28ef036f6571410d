"""The IMAP4rev1 and IMAP4rev2 server (RFC 3501, RFC 9051).

`wire` is what is said, `verbs` what the commands mean to the store, `session` the conversation, `view` the mailbox as
one client numbers it, `protocol` the rim. The table of commands, with the states in which each is allowed, is
`wire.commands.COMMANDS`; `refusals` turns problems of the store into response codes. The session's base `client` knows
who the client is and what it has enabled.

Views. A session has a `View` on top of a mailbox of the store: the numbers that its client knows. A vanished message
keeps its number until a command may tell of expunges; the table of commands says which may. At the end of each command
`View.merge` compares two views and says what the client must hear. `View.modseq` is the HIGHESTMODSEQ up to which a
client has been told everything. While an expunge waits to be told it stands still, and the end of each command tells
it, since the client may have seen higher MODSEQs by then.

QRESYNC. SELECT with QRESYNC and UID FETCH with VANISHED (`verbs.resync`) compare the client's MODSEQ with the records
and with the log of expunged UIDs. When that no longer goes back so far, every UID that is not there is told as gone,
except below the last message that has the number the client says.

FETCH works in batches. Flags, dates and sizes come from the array, ENVELOPE and BODYSTRUCTURE from `cache.db`,
formatted a batch at a time. Bodies are read and sent in pieces of 64 KiB, each when the client has taken the last.
Sections without a part number go out a batch at a time (`verbs.quick`). A section that cannot be read is NIL; once its
length has been told, the connection is cut off. BINARY decodes a part twice, once to measure it and once to send it,
unless it is short.

Long work. Work in a thread that may take long goes through `Session.patiently`, which may write INPROGRESS at any
moment: so never while a response is half written. LIST and LSUB of a user with more than 300 names are made in a
thread, and long lines of numbers are written in pieces. One LIST command looks at all names once: mailboxes that may be
looked up, levels above them, subscriptions. What is selected comes first, then what matches.

Rights. SETACL, GETACL and the like (`verbs.accesscontrol`) need the right `a`; `c` and `d` exist on the wire only.

Snapshots (`snapshotnames`). `Session.source` is what a selected mailbox is read from: the store, or a snapshot.
"""
