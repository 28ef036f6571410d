"""The HTTP API: each operation is a command of `onecopy` with its arguments as JSON, carried out by a process of the
program, after it has been looked whether the caller's role may do that. `apipages.add_pages` is the front door.

It may import all of tools/http, tools/cli and what is below.
"""
