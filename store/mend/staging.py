"""Files that were left over in `staging/` by processes that are no more."""

from collections.abc import Iterator

from store.partition.partition import Partition
from store.partition.processes import look
from store.rebuild.outcome import Correction
from store.store import Store

OLD = 3600                  # seconds after which nobody writes to a file in `staging/` any more


def left_over(store: Store, partition: Partition) -> list[int]:
    """Their serials. Other processes have files there that only they know: beside one, there are none."""
    return [] if len(look(store.root / "run")[0]) > 1 else partition.files.left(OLD)


def settle(store: Store, partition: Partition) -> Iterator[Correction]:
    """What was committed gets its place, the rest goes. Raises StoreError."""
    for serial in left_over(store, partition):
        partition.take_up(serial)
        yield Correction("it was left over", partition.files.staged_path(serial))
