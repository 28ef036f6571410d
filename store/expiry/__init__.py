"""Expiry: rules that say which messages leave their mailboxes, where rules come from, and the work itself."""
