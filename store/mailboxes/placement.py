"""Which partition new users and their mail come to."""

from store.errors import Problem, StoreError
from store.partition.partition import Partition
from store.settings import LEAST_USED
from store.store import Store


def for_new_mail(store: Store) -> str:
    """The partition of new users, and of new public mailboxes. Raises StoreError UNAVAILABLE."""
    if store.settings.default_partition != LEAST_USED:
        return store.partition(store.settings.default_partition).name
    return roomiest(store).name


def roomiest(store: Store, without: str = "") -> Partition:
    """The partition with the most free space. Raises StoreError DISK_FULL when none has any, or there is no other."""
    found = [each for name, each in store.partitions.items() if name != without and not each.is_full()]
    if not found:
        raise StoreError(Problem.DISK_FULL, "No other partition has room" if without else "")
    return max(found, key=lambda each: each.files.volume()[0])
