"""What a message is, as octets: MIME structure, header fields, text, ENVELOPE, and the cache record made of them.

Pure: no I/O, and no import of ours but this room's. Front door: `mime.scan`.
"""
