"""The tables of a store that Spark can read: docs/spark.md."""

TABLES = ("messages", "mailboxes", "references", "quotas", "rights")
