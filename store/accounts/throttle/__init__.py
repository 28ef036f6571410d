"""What holds those back who guess passwords, and those who come too often: counted over all processes of a server.

`slowdown.SlowDown` is the front door: it says how long a login waits, and hears how it ended. `failurecounts` is the
table of failures, `formerlogins` where each user has logged in from before. Both lie in memory that all processes share
(`loginmemory`), which outlives them: the supervisor makes it once. `sharedcache` there remembers passwords by keyed
digests, those that were right and those that were wrong. `sharedcounts` counts what is open now, and is made anew with
the processes. Imports no other room but `store.errors`, `store.values` and `mboxlist`.
"""
