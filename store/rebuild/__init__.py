"""The one engine that rebuilds databases of a store, or puts them right. Sources (the user area, tables that are left,
the plan of a rebuild, an archive, an import) say what each mailbox is to be (`desired.DesiredMailbox`). One loader puts
it into a partition: an empty one (`loader.EmptyLoader`) or one in use (`liveloader.LiveLoader`).

It does not decide which store is rebuilt, and when: that is for `store/recovery`, `store/reconstruct`, `store/backup`
and tools. It may import the rooms up to `store/partitions`, and no opening of a store.
"""
