"""What the three servers share at the edge of the network: connections, lines, limits, logins, threads.

The top floor of `store`: no other room imports it. Front doors: `stream.Stream`, `sharedsyncs.attach`,
`authentication.Authenticator`.

Connections. `Stream.dataReceived` keeps what arrives, up to 256 KiB; then the socket is no longer read. The session is
a coroutine, the only reader: `Stream.line`, `Stream.some`. `running` runs it on when there is input, without a
Deferred; `tools.server.process.reactor` is Twisted's event loop without a log context for each event. Together they
save a sixth of the CPU of a short command. A peer may shut its sending side and still hear every answer
(`Stream.readConnectionLost`); Exim does so behind its last BDAT. `Stream.established` waits for the TLS handshake, with
which a client's certificate comes. An idle connection costs some 7 KB, one that has delivered 9 KB. At STARTTLS and
STLS all octets received so far are dropped (`Stream.start_tls`).

`Stream.drain` waits for a slow client, so it slows nobody else and holds one piece of memory. A session that has worked
for 10 ms lets others in (`Stream.breathe`).

Proxies. Connections from `proxy_networks` pass `proxies.proxyconnections`, the outermost layer, also outside TLS.
Nothing inside exists before the PROXY header is complete. Of other peers the first octets alone are looked at: a PROXY
header ends the connection. `Stream.proxy` is the proxy that told
of `peer` (PROXY header, or ID).

Admission. All listeners of a server share an `AdmissionControl`. `Stream.admit` counts a connection, `enter` a user;
both raise `LimitReached`, which each session turns into its last reply. Before login an address has few connections,
unless somebody has logged in from there before (`Authenticator.is_familiar`). `Stream.tell_end` logs how a session
ended. A connection with one of the last descriptors is `surplus` (tools/server/process/accepting.py): no session is
made of it, it hears `StreamFactory.full`.

Logins. Every login of any protocol goes through `authentication`. `Authenticator.authorize` ends with
`hosting.is_here`: who is elsewhere gets `Elsewhere`, after the proof, and `imap.referrals` says where.

A login is looked at again while its session is open (`openlogins`): each session asks `OpenLogin.require` before a
command, and is dismissed when the account, the password or the rules that let it in are no longer so.

Threads. Short store functions, microseconds on cached pages, run in the event loop: a hop to a thread would cost more.
What waits for the disk or takes long goes to a thread of its kind (`store.offload`, `threads.POOLS`): syncs, spilling,
password hashes, SEARCH through bodies, changes of more than 1,000 messages, making mailboxes. Syncs asked for while one
is under way share the next (`durability`): the busier the server, the more deliveries each sync serves.

Control. Each process listens on `run/control/<name>` for lines of JSON (`controlchannel`).
"""
