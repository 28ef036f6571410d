"""Processes that tests start: the program, the command server, free ports, waiting with a limit."""
