"""`onecopy quota report`: the Spark job, its figures, charts and page.

`reportjob` joins records and message files by digest and divides each file among its holders, with the definitions of
`store.quota.accounting`; `reportlocal` computes the same rows in this process. `totals` makes levels, limits and
growth of the mailbox rows without Spark and asserts that fair shares and what waits for the purge are the octets of
the message files. `charts` and `page` make one page without scripts. `what_if` decides with `store.expiry` as
store.idx is read; `drift` is the only part that opens a store.
"""
