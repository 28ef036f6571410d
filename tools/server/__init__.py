"""The daemon: the supervisor, its workers, sockets, privileges, logs.

Front door: `start.serve`.
"""
