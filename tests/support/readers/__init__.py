"""What reads whole mailboxes to compare them: real mail clients, and the header fields to take off."""
