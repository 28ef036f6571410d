"""Hot copies of all databases: made, kept, compared, read by users, and put back.

Front doors: `taking.create`, `reset.restore`, `snapshotreader.SnapshotReaders`.
"""
