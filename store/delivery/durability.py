"""What is on disk before it is acknowledged: a message's file and its name, and the databases' log.

Here each is synced for itself. A server has `net.sharedsyncs`, where those that come at the same time share a sync.
"""

from collections.abc import Awaitable, Iterable, Sequence

from mboxlist.engine.troubles import TROUBLES
from store.partition.partition import Partition
from store.partition.staged import Staged
from store.store import Store


class Durability:
    """The syncs of an open store."""

    def staged(self, staged: Staged, partition: Partition) -> Awaitable[None]:
        """Ends when the message file and its name are on disk."""
        return _sync_staged(staged)

    def log(self, partition: Partition, staged: Sequence[Staged] = ()) -> Awaitable[None]:
        """Ends when everything committed so far is on disk; after that these messages get their places."""
        return _flush(partition, staged)

    def discard(self, staged: Staged) -> None:
        """Remove a message that nobody refers to; what is on disk of it when there is time. It is not used any more."""
        staged.abort()

    def make_ready(self, partition: Partition) -> None:
        """Have files made for messages to come, if there are too few."""


def durability_of(store: Store) -> Durability:
    """That of whoever serves the store."""
    return store.owned.get(Durability, Durability)


async def _sync_staged(staged: Staged) -> None:
    staged.sync()
    if not staged.named:
        staged.files.sync_names()


async def _flush(partition: Partition, staged: Sequence[Staged]) -> None:
    partition.flush()
    place_all(staged)


def place_all(batch: Iterable[Staged]) -> None:
    """The messages are safe under their staged names already, so a failure here is not the senders' business."""
    for staged in batch:
        try:
            staged.place()
        except Exception as error:
            TROUBLES.met("messages keep their names in staging for now", str(error))
