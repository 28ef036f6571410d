"""Facts: all that the databases of a back end say of its mail, but for the mail itself, as Parquet files.

`onecopy facts export` reads them out of a snapshot: `snapshottables` opens it, `factrows` makes rows of a range of
keys, `factsexport` divides the work among processes and writes the manifest, `destinations` are folders and what Hadoop
writes. `factfolders` finds the files of a whole export again; `factschema` says what columns mean. What runs over a
fleet reads facts and no store.
"""
