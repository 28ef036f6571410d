"""What the housekeeper purges in turns, done in one go."""

import itertools

from store.mailboxes import deletion
from store.mailboxes.expunge import BATCH, Purged, due, purge_batch
from store.partition.partition import Partition
from store.store import Store


def purge(partition: Partition, now: float | None = None, most: int = BATCH) -> int:
    """Remove up to `most` of the message files that are `due`; how many. Raises OSError."""
    files = tuple(itertools.islice((each for batch in due(partition, now) for each in batch.files), most))
    purged = purge_batch(partition, files) if files else Purged()
    for error in purged.failed.values():
        raise error
    return purged.files


def purge_mailboxes(store: Store, now: float | None = None) -> int:
    """Destroy the mailboxes that were deleted longer ago than the purge delay; how many."""
    return sum(deletion.purge_mailbox(store, mailbox) for mailbox in deletion.due_mailboxes(store, now))
