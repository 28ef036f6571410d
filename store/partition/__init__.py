"""One volume: its message files, its databases in one transaction, and mailbox views for readers.

Front door: `partition.Partition`, with `Partition.transact` for every change.
"""
