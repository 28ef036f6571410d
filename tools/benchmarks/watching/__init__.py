"""What it costs to watch a store: `tools/bench watching`. It imports `load`, too.

Front door: `watchingcost.run`.
"""
