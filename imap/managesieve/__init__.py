"""ManageSieve (RFC 5804): how mail programs keep their users' Sieve scripts; its port is 4190.

`requests` reads commands, `answers` writes, `conversation` is a session, `protocol.py` what the reactor listens with.
Who may log in to IMAP may manage his own scripts, by the same logins; an app password that only reads may not change
them. Scripts are kept by `store.filtering.userscripts`.
"""
