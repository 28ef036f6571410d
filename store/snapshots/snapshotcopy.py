"""Copies messages that a mailbox had when a snapshot was made to a mailbox as it is now.

No message file is written: the records refer to the files that the snapshot has kept. Only where the target is on
another partition, and has not got them, are they copied to it, as with any COPY.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mboxlist.entry import MailboxEntry
from store.delivery.batch import in_threads
from store.errors import Problem, StoreError
from store.mailboxes.crosspartition import bring, patiently
from store.partition.transactions import places
from store.progress import Progress
from store.tables.index import Rows, take
from store.tables.privateheaders import renumbered
from store.tables.slices import sorted_uids
from store.tables.state import Mailbox

if TYPE_CHECKING:
    from store.snapshots.snapshotreader import SnapshotReader


def bring_back(snapshot: "SnapshotReader", source: Mailbox, target: MailboxEntry,
               uids: Iterable[int] | NDArray[np.uint32], *, reader: str = "",
               progress: Progress | None = None, event_of: str = "") -> list[int]:
    """Copy all of `uids` of a mailbox of `store.snapshot`, or none; the new UIDs in ascending order of the old ones.

    Flags, keywords and internal dates come with them, those flags that the reader may set in the target. For a thread.
    Raises StoreError GONE, NO_MAILBOX, OVER_QUOTA, LIMIT, BUSY, DISK_FULL, CORRUPT; Abandoned.
    """
    store, wanted = snapshot.store, sorted_uids(uids)
    rows = take(source.rows, places(source.rows, wanted))
    if len(rows) != len(wanted):
        raise StoreError(Problem.GONE)
    if not len(rows):
        return []
    rows = _numbered_as_now(snapshot, source.entry.partition, rows)
    return patiently(store, lambda: bring(store, source, target, rows, reader=reader, side_by_side=in_threads,
                                          progress=progress, event_of=event_of))


def _numbered_as_now(snapshot: "SnapshotReader", name: str, rows: Rows) -> Rows:
    """The records with the numbers that their own header fields have on that partition now: its table of them may have
    been rebuilt since. Raises StoreError CORRUPT, LIMIT, BUSY."""
    if not rows["head"].any():
        return rows
    partition = snapshot.store.partition(name)
    then = snapshot.private_headers(name, rows)
    if all(partition.private_headers.get(number) == octets for number, octets in then.items()):
        return rows
    return renumbered(rows, partition.transact(
        lambda txn: partition.private_headers.numbers_for(rows, then, txn.handle)))
