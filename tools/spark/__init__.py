"""The store as data: a Spark data source over `store.idx` and message files, and the jobs on it.

Needs the extra `spark` (setup.cfg). Nothing outside imports these modules before a command needs them.
"""
