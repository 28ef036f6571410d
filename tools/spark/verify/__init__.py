"""`onecopy check --engine spark`: every message file and every `store.idx` read and compared.

`verifyjob` reads them with the job that makes the plan of a rebuild. Index records are compared with those of
`store.idx` that are as new (`comparing`; by Spark, out of a snapshot, `sparkcompare`). What else only databases know
the driver looks at, partition by partition. `kinds` gives each finding a kind, and tells a cause from what follows from
it; `mending` applies the plan, gives misnamed files their names, and writes damaged `store.idx` again.
"""
