"""Mail that leaves the store for other programs, and mail that comes from theirs.

A `Source` lists mailboxes and messages and reads octets: Maildir, mbox, another IMAP server, Cyrus. The import
(`importmail`) finds what is here already (UID where UIDVALIDITY is the same; else size, date, Message-ID; else
content), brings the rest and adds it 500 at a time. Nothing is written down in between, so whatever is cut off is done
again. At the end the records here are compared with the source's list.
"""
