"""The store's metadata as a Spark data source: schema, tasks, rows. Reads plain files, never a live database.

`reading` divides `users/**/store.idx` and `messages/` into tasks, `rows` makes Arrow batches of whole arrays, `source`
gives them to Spark as the format `onecopy`. What is damaged is a row, never a failed job.
"""
