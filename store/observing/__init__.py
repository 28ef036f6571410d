"""What is told of the work of a server while it is done: one line of the log for each delivery and each slow command.

`loglines` is the front door. It knows no protocol and no connection, only values; lines about refusals and ends of
sessions are made in `store/accounts/refusallines.py`. May import what `store/accounts` may.
"""
