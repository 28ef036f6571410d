"""Berkeley DB behind a boundary: environments, transactions, tables, hot copies, and what mends a damaged environment.

Nothing else imports berkeleydb, and this room imports nothing of ours. Front doors: `kv.Env`, `btree.Table`.
"""
