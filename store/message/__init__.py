"""What a message is, as octets: MIME structure, header fields, text, ENVELOPE, and the cache record made of them.

Pure: no I/O, and no import of ours but this room's. Front door: `mime.parse`.

Everything here is linear in its input and never fails: what is broken becomes a leaf of the MIME tree, and is served
octet for octet. The scanner sees the message in chunks while it arrives, so nothing is read twice.

A cache record (`cacherecord`) has ENVELOPE, BODYSTRUCTURE, BODY, References, the table of parts, and the header fields
that mail programs list mailboxes by (`fields.LISTED`, some 500 octets). None of these fields is in a trace header or
among private header fields; so HEADER.FIELDS of them opens no message file, and the record is the same in every
mailbox. Its offsets count from the end of the trace header.

The trace header is what LMTP puts in front: Return-Path and Received. It has a CRC-32 of its own in it, found by its
place, so that also a changed bit of what marks it is noticed. The digest that names a file leaves it out.
"""
