"""One module for each Berkeley DB table of a partition: what its rows are, and how they are read and written.

Imports `mboxlist` and the small modules of `store`. A table knows its rows, and neither partitions nor stores.
"""
