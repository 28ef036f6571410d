"""What a process counts while it works: figures of its own, in its own memory, without a lock.

`processcounters.Counters.of(store)` is the front door: histograms of how long commands, flushes and turns of the event
loop take, and what scripts of Sieve did. Whoever counts adds in place: a bucket, and a sum. `spacesaving.Busiest` has
the users who do most. Nothing here knows how the figures are asked for or shown; `tools/server/metrics` does. Imports
nothing of the store.
"""
