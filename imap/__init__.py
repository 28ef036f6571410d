"""The IMAP4rev1 server (RFC 3501): what is said on the wire, what the commands mean, and the session."""
