"""Clients that speak IMAP, POP3 or LMTP to a server, ours and other people's, and what stands between them."""
