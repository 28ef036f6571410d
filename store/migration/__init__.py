"""Mail from elsewhere (a backup, another server, a folder of files) that is to be here what it was there."""
