"""The commands of `onecopy`, one module for each: it parses arguments, calls a function of the store, and prints.

A module's `add` makes its parsers; a command is a function of an `Invocation` that returns the exit status. What a
command does is in the rooms of `store`, so that no procedure is here.
"""
