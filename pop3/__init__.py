r"""The POP3 server (RFC 1939): INBOX as a maildrop, frozen at login.

`wire` parses, `session` converses, `protocol` is the rim; `states` has the table of commands, `refusals` the replies to
problems of the store. A session has one view of INBOX from login to QUIT.

`maildropopening` turns an account into a maildrop: lock (or shared view), login delay, expiry, order, unique-ids. These
are made from a template (`uniqueids`); those that messages came with are in `uidls.db` and in `store.idx`, and go with
the message. `surrogate` exchanges the spans of headers in UTF-8 while a message is read for a client that has not said
UTF8 (RFC 6858); all else is sent as stored.
"""
