"""The message store: message files, indexes, flags, quota and accounts. It knows no protocol."""
