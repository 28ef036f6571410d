"""IMAP on the wire: octets to frozen values and back. Pure: no I/O, no Twisted, no open store."""
