"""The program `onecopy`: registry of commands, options, output, progress, man pages and completion.

Front door: `program.main`.
"""
