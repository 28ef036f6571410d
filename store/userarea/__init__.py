"""The user area: `store.idx`, the portable copy of each mailbox, from which all databases can be made anew.

`idxfile` is the format, `paths` says where the files are, `writing` keeps them up to date.
"""
