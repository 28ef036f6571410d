"""The way of every message, from staged octets to durable: files synced, one transaction, one flush of the log.

Front door: `commit.commit`.
"""
