"""What is built on the servers and the store: the daemon, the command line, Spark jobs."""
