"""What is read from a standby: copies of its state, each of one moment, beside the process that follows.

Front doors: `readingstate.make` makes a copy in any folder; `readingcopies` keeps numbered ones in the standby itself,
for the process that serves them (`tools/server/readingserver.py`). May import what `store/standby` may.
"""
