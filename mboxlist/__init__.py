"""The list of mailboxes: names, rights, and the database engine. It knows no messages."""
