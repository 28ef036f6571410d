"""The consistency check (`onecopy check`) and the reading of all message files (`onecopy scrub`). Both change nothing.

Front doors: `wholecheck.check`, `scrub.scrub`.
"""
