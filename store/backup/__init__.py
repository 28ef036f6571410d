"""Backups: archives of mailboxes and messages that any tar reads, and what restores them."""
