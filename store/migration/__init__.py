"""Mail from elsewhere (a backup, another server, a folder of files) that is to be here what it was there.

`messageimport` brings octets and records, `publish` makes a mailbox that is not there yet, `uidvalidity` has a mailbox
that nothing was ever in take on the UIDVALIDITY of its like elsewhere.

A mailbox is filled where nobody sees it: it is marked DOOMED and moving, so that a start removes what a crash left. It
is published through the list of deleted mailboxes, so one of the two lists has it at every moment; where that fails it
is taken back, and once the list has it, it stays.
"""
