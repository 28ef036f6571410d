"""A second machine that has what this one has: a standby (docs/standby.md).

Front doors: `copysource.Source` and `instep.InStep` at the one that serves, `seeding.seed`, `following.Follower` and
`promotion.promote` at the standby.

The standby asks, the one that serves answers, over the connections of `store.usermove`. It begins with a snapshot, file
by file with their digests, and with every message file. Then it asks again and again for what the logs of all
environments have beyond what it has, up to where they were on disk at one moment, and for the message files of which
these octets tell (`logrecords`). Little comes in one answer and goes into a journal first (`standbyjournal`); of more,
the message files are on disk before the octets are appended to the standby's own log files, and all of it before it is
written down how far it is (`standbystate`). So what both say is a state that the store was in, whole: databases, logs
and message files. Nothing else ever writes to these log files. Recovery writes to the log; so when logs are applied to
the databases of the standby it gets copies (`applying`).

In synchronous mode answers of the one that serves wait for that (`instep`, `mboxlist/engine/secondcopy.py`). Then what
comes may not be on disk at the one that serves: both sync side by side, and it counts at the standby when it is on both
disks, or when the standby is promoted (`standbyjournal`).
"""
