"""Servers that mail comes from, each a `sourcevalues.Source`: any IMAP server (`imapsource`, on the client's side of
the protocol in `imapconnection`), a Dovecot of this machine, which speaks IMAP as any user (`dovecot`), a Cyrus spool
(`cyrus`). Sieve scripts come by ManageSieve (`scriptserver`) or by the server's own programs.

May import the values and the files of `tools/transfer`, the parsers of `imap.wire`, and of the store only values.
"""
