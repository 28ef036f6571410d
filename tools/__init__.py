"""What is built on the servers and the store: the daemon, the command line, Spark jobs.

`serve`, `test` and `bench` are scripts for the shell; the program is `onecopy` (`cli`, `commands`), the daemon
`server`.
"""
