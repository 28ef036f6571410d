"""What the commands do to the store: the same families as in `imap.wire`, joined to them by `table`."""
