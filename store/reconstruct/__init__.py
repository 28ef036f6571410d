"""What `onecopy reconstruct` does, and what housekeeping repairs: a store, a partition, the list, a mailbox, its
figures.

Sources say what a mailbox is to be (its state, its records, where its octets are); one loader (`store.rebuild`) puts
that into an empty or a live partition. Callers are the start (`store.recovery`), this room, `--apply` of Spark's plan,
restore and import. docs/recovery.md says which command mends what.

From `messages/` and `users/` alone every database can be made. That is one more unclean end: UIDs and MODSEQs skip
ahead. Where the trace header of a file ends is found by the digest. Not restored: the last minute, the log of expunged
UIDs, expunged messages that wait for the purge (their files stay), passwords. Until it is done
`reconstruct/in-place.json` is in the store's folder (`store.partition.marks`): nobody takes half of it for the store,
and what was cut off begins again from the start.

In bulk. What a start or a command makes from the user area is made by `mboxlist.engine.bulk`: a process of its own
writes `index.db` and `messages.db` outside of the environment, each octet once, and `Env.exchange` puts them in place.
Each `store.idx` is read once and each record is written once; message files are only looked for by name, and
housekeeping reads them later, or whoever needs one first (`UNSEEN_TRACE` until then).

A partition beside a running server is rebuilt in `partitions/P/rebuild/`, from `users/`, `messages/` and the list, with
the store closed for the long part; one rename puts it in place and every process joins. The list is rebuilt from the
partitions' states and `store.idx`, cache records from message files. What nothing claims goes to `store.lost_mailbox`.

A plan (`tools.spark.rebuild`) is loaded into a store that is down: the databases grow in `reconstruct/`, and one rename
makes them the store. Or it is applied to a store in use: a mailbox whose HIGHESTMODSEQ and UIDNEXT are those of its
`store.idx` is made what the plan says, any other is left and reported.

A damaged chunk of records makes its mailbox CORRUPT for readers, and nobody else's. `Partition.found_damage` notes it,
and within seconds the task "repair" mends it. Which records are missing is found by the marks
(`store.tables.references`): a message's references, less those that can be read, leave a sum of marks, and that sum
tells mailbox and UID. The rest of a record comes from what is left of the chunk, or from `store.idx` if that is not
older. Repaired records get a new MODSEQ; if some are lost, the log of expunged UIDs begins again. A message whose last
record was lost stays. Figures, quota, references and the table of rights are counted from the records (`recount`).
"""
