"""`onecopy sieve`: an administrator sees, writes and tries the Sieve scripts of users."""
