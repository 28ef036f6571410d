"""The program `onecopy`: registry of commands, options, output, progress, man pages and completion.

Front door: `program.main`. A command loads its own module and no other: `registry` has names and helps,
`options.section` loads what a section needs, and a `later.Later` is a function whose module is loaded at its call. Man
pages and completion are made from the parsers, and a test holds every command to help, JSON, dry run and exit status.
docs/command-cost.md says what a start costs.
"""
