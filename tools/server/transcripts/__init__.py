"""What a chosen user or address says to the server and hears from it, while somebody has asked for that.

`wantedsessions.WantedSessions` is the front door: who is to be recorded in this process, and until when.
`transcriptfile` keeps what a session says, and writes it in a thread; a mask for each protocol (`imapmask`, `pop3mask`,
`lmtpmask`) leaves out passwords, literals and the text of messages. As long as nobody is recorded, a connection looks
at one attribute that is None.
"""
