"""What is done to mailboxes and their messages: copy, move, flags, expunge, undelete, delete, rights.

Each operation is a function of an open store, and raises StoreError.
"""
