"""The consistency check (`onecopy check`) and the reading of all message files (`onecopy scrub`). Both change nothing
but for `layout.repair`.

Front doors: `wholecheck.check`, `scrub.scrub`.

The check runs beside the server. A partition with findings is looked at again within one transaction that holds all of
it; what lies in two environments or in files must be found twice. It looks at what every path is to be, and whose
(`layout`); at the list (ids, UIDVALIDITYs, users, ACLs, the table of rights, deleted mailboxes, quota roots); at each
mailbox (checksums, UIDs, MODSEQs, figures, keywords, expunged UIDs, what can be undeleted, readers' own flags); at
quota; at message files (references and check values, size, serial, cache record, purge list, unknown files, what was
left in `staging/`); and at `store.idx`, which beside other processes counts only if it is damaged or contradicts its
mailbox. It does not read the octets of message files; `scrub` compares them with their digests, at a limited rate.
"""
