"""What is done to whole users: remove, restore, rename, purge; and explanations of what a user may do.

A removed user keeps everything for `store.user_delay`; then housekeeping deletes the mailboxes, which can still be
restored one by one until the purge. A rename (`renaming`) gives some mailboxes at a time their new names, then come
quota roots and readers' flags on each partition. Meanwhile mail for either name is put off (450), and the same command
completes a rename that was cut off.
"""
