"""What is in the outbox is sent from here: events to a file, a UNIX socket, a web hook or a message broker, mail to a
relay.

Front door: `sendall.Dispatch`, which the keeper of a server has. Each receiver of the configuration (`[outbox.NAME]`)
has a `sending.Sending`, which goes its own way: one that is slow or down holds up nobody else, and no mail. Places that
take what is sent are in `jsonfile`, `unixsocket`, `webhook`, `broker` and `mailrelay`, loaded when somebody wants them.
What may wait without an end has a thread of its own receiver's (`ownthread`).

Nothing leaves before the log with its row is on disk, so nothing is told that a crash undoes; a row goes when the
receiver has it, so each comes at least once, and those of a mailbox in their order.
"""
