"""What happens in the store, told to programs outside: events with the names of RFC 5423, and the outbox that has them
until they have been sent.

Front door: `recording.Recorder`, which a store has; `outboxtable.OutboxTable`, which each environment has. Imports the
tables and what is below them; knows neither partitions nor sockets: `tools/outbox/` sends.

An event is a row in the environment whose change it tells, written by the transaction that makes the change. So an
undone transaction leaves none, and none is lost at an unclean end; who sends them reads rows, and takes them away once
the receiver has them: each comes at least once, and those of a mailbox in the order of its changes.

What is told of records is what the transaction did to the index: `Recording` compares the chunks that it wrote with
what they were. So no change can be forgotten, whoever makes it. Who wants an event is decided before anything is
written; without receivers a transaction only looks whether there are any.

Logins and logouts (RFC 5423 §4.3) are no events here. They change nothing in the store, so there is no transaction to
write them in: each would cost a write of its own that must be on disk, in the way of whoever logs in, and a client that
logs in again and again would fill the outbox. The log and the metrics have them.
"""
