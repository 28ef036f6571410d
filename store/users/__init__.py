"""What is done to whole users: remove, restore, rename, purge; and explanations of what a user may do."""
