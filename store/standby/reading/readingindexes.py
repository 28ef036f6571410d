"""The `store.idx` of all mailboxes of a copy for reading, for whoever reads these and no databases: Spark.

The standby has none, and in a copy nothing changes: so each is written once, and nobody locks anything.
"""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from mboxlist import privatefiles
from store.errors import StoreError
from store.opening import open_store
from store.settings import Settings
from store.userarea import idxfile, writing

CACHE = 64 << 20            # octets of memory for an environment


def write(place: Path, progress: Callable[[str, int, int], None]) -> None:
    """Write those of the copy in that folder; `progress` as in `readingstate.make`. A mailbox that is damaged has none.
    Raises StoreError, OSError."""
    with closing(open_store(place, Settings(cache=CACHE))) as store:
        mailboxes = [*store.mailboxes.all(), *(entry for _, entry in store.mailboxes.deleted.all())]
        for done, entry in enumerate(mailboxes):
            progress("store.idx", done, len(mailboxes))
            if (partition := store.partitions.get(entry.partition)) is None:
                continue
            try:
                found = writing.view(store, partition, entry.id)
            except StoreError:              # of that mailbox alone; it is the same where it comes from
                continue
            if found is not None:
                path, contents = found
                privatefiles.make_folder(path.parent, parents=True, exist_ok=True)
                idxfile.prepare(path, contents, sync=False)
