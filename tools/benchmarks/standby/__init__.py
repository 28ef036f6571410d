"""What a standby costs the machine that it follows: `tools/bench standby`. It imports `load`, too.

Front door: `standbycost.run`.
"""
