"""`onecopy reconstruct`: what is wrong is put right, and what is lost rebuilt, by `store/rebuild`. The front door is
`procedures.reconstruct`; it may open stores, so only commands and tools import this room.
"""
