"""A store whose file system takes no writes any more goes on being read.

Most file systems become read-only when they meet an error. `volumestate` finds that out, and when it is over. Until
then the server serves a copy of the store for reading (`readingcopy`): a folder in memory with copies of the databases,
which are recovered there as at any start, and with links to the message files. The store that is opened there refuses
every change with Problem.READ_ONLY; nothing is written to the volume, and nothing there is kept open, so that it can be
mended. Where it is the volume of a partition only, the store is served, with a copy of that partition's databases.

May be imported by `store/opening.py` and what is above it. Front door: `readingcopy.make`.
"""
