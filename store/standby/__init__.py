"""A second machine that has what this one has: a standby (docs/standby.md).

Front doors: `copysource.Source` at the one that serves, `seeding.seed`, `following.Follower` and `promotion.promote`
at the standby.

The standby asks, the one that serves answers, over the connections of `store.usermove`. It begins with a snapshot, file
by file with their digests, and with every message file. Then it asks again and again for what the logs of all
environments have beyond what it has: up to where they were on disk at one moment. It reads which message files these
octets tell of (`logrecords`), asks for those that it has not, has them on disk, and only then appends the octets to its
own log files, and writes down how far it is (`standbystate`). So what that says is a state that the store was in,
whole: databases, logs and message files. Nothing else ever writes to these log files. Recovery writes to the log; so
when logs are applied to the databases of the standby it gets copies (`applying`).
"""
