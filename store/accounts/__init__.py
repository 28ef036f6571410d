"""Who the users are: directories, passwords, and what a login may do."""
