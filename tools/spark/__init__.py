"""The store as data: a Spark data source over `store.idx` and message files, and the jobs on it.

Needs the extra `spark` (setup.cfg). Neither the servers nor other commands import these modules. docs/spark.md has the
tables.

`sparksession` finds Java, starts a session and ships our packages. `sharing` ranks the moves of users that would share
most, and finds messages that differ only in trace headers.
"""
