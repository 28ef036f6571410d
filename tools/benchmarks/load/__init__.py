"""The load generator of `tools/bench compare` and `scaling`: IMAP, POP3 and LMTP clients, one after the other
or many at a time, against any server.

It shares the machine with the servers, so it does little: one thread and one epoll (`loop`), messages made beforehand
(`messages`), answers searched in place for the tagged line and for literals, which are stepped over and not parsed
(`bytestream`, `loadimap`, `loadlmtp`, `loadpop3`). `measuring` reads the clock and, by `procfs`, what the server's
processes used; `preparing` makes mailboxes of known content; a function in `workloads` measures one thing. All answers
are known, since the messages come from a seed: what is not as it must be is counted as an error.
"""
