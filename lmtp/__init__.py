"""The LMTP server (RFC 2033): takes messages from a relay and hands them to the store, one reply a recipient.

`wire` parses, `session` converses, `relay` knows with whom, `delivery` is one mail transaction, `protocol` is the rim;
`states` has the table of commands, `refusals` the replies to problems of the store.

One message. `session` reads a line, finds it in the table, parses it. At RCPT `Delivery.recipient` asks `recipients`
for the mailbox and its quota. At DATA, or the first BDAT, `Delivery.begin` makes a `Staged` (`Store.stage`).
`receiving` undoes DATA's dots or counts BDAT's chunks, and calls `Staged.write`, which feeds the digest and the MIME
scanner and keeps up to 128 KiB in memory; from there on it is written to the file in a thread. So memory is bounded
whatever the size, and nothing is read twice. What must be refused is read to its end and dropped. Then `store.delivery`
makes it durable and visible, and the replies go out.

What must not be taken for commands never is: a chunk is read even where BDAT is refused, and where its size cannot be
read (`parse_bdat`) the connection ends. After a refused chunk the transaction is at an end until RSET (`State.FAILED`).

Who may deliver. `access` decides what a client may do from its address, its certificate and the user that it logged in
as: nothing (554 in place of the greeting), show who it is (530 to MAIL), deliver, or be believed in what it says about
others and about quota (XCLIENT, IGNOREQUOTA, XQUOTA). After XCLIENT or a PROXY header the address is the one that was
told, and the rules are applied to that. LMTP has TLS contexts of its own, since only relays are asked for certificates.

To whom. `recipients` is the one place that says which mailbox an address is and whether it takes mail: user, alias,
sub-address, shared and public mailboxes, the status of the account (`delivery_problem`), the partition's volume, quota.
`verification` answers relays that ask before they take a message, on a listener of its own: a connection that begins
with a digit speaks Postfix's socketmap protocol, any other one its policy delegation. Both ask `Recipients` with
`asking`, which makes no mailbox. The policy gives the reply that RCPT would give; a refusal over quota begins the grace
period as one at RCPT does. The map `recipients` says whether an address takes mail at all: NOTFOUND is for what is
refused for good whoever sends it, OK also for what is refused for now, TEMP when the store cannot tell. Public
addresses are always OK there, since the map does not know the sender. What is not understood ends the connection.

`noting` notes decisions in the delivery log, which a thread writes once a second, unsynced, bounded in size and age.
"""
