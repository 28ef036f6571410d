"""`onecopy mailbox status` and `mailbox metadata`: what mailboxes of any users have. The other commands about mailboxes
are `tools/commands/mailbox.py` and `mailbox_sharing.py`."""
