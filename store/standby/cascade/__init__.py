"""A standby of a standby: the connection to the machine that serves carries one copy, and this one sends it on.

What a further standby hears are the answers that the machine that serves gives (`store/standby/source`), made of what
is on disk here, whole, and in its place: never of the tables, which are brought up to date from time to time only. So
it never has what this standby lacks, and both have places in the same logs.

Whoever follows may be promoted. So a further standby has its place from the machine that serves, which notes it, before
anything is sent (`followersrecord`).

May import `store/standby` and `store/standby/source`. Front door: `cascade.Cascade`.
"""
