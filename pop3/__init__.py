"""The POP3 server (RFC 1939): INBOX as a maildrop, frozen at login."""
