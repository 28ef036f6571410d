"""The store's metadata as a Spark data source: schema, tasks, rows. Reads plain files, never a live database."""
