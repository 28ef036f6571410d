"""The write freeze: nothing is committed, and no file of the store is written, while somebody copies its volumes."""

import contextlib
import time
from collections.abc import Iterator

from mboxlist.engine.freezegate import ShutAlready
from store.errors import Problem, StoreError
from store.partition.messagefiles import sync_file_system
from store.partition.partition import Partition
from store.snapshots.taking import environments
from store.store import Store

PATIENCE = 10.0             # seconds until the transactions that are under way must have ended
STEP = 0.002


@contextlib.contextmanager
def frozen(store: Store, seconds: float) -> Iterator[None]:
    """Freeze writes, in all processes, for so long at most: writers wait, readers go on. The databases
    are on disk whole, and every message that was committed has its name in `messages/`. Messages go on to be received
    into `staging/`; what has not been committed when a copy is made is swept from the copy when it is opened.

    For a thread that has no transaction open. Raises StoreError BUSY, at the end also when that came too late: the
    store has gone on by itself.
    """
    try:
        with store.write_freeze.keep_shut(seconds + PATIENCE):
            deadline = time.monotonic() + PATIENCE
            envs = environments(store).values()
            while any(env.active() for env in envs):
                if time.monotonic() > deadline:
                    raise StoreError(Problem.BUSY, "The store cannot be frozen: something takes too long")
                time.sleep(STEP)
            for env in envs:
                env.flush()
                env.checkpoint(held=True)
            for partition in store.partitions.values():
                _place_all(partition)
            yield
            if not store.write_freeze.left():
                raise StoreError(Problem.BUSY, f"The store was frozen for {seconds:g} s and has gone on")
    except ShutAlready:
        raise StoreError(Problem.BUSY, "The store is frozen already") from None


def _place_all(partition: Partition) -> None:
    """Give every message that was committed, also by other processes, its name: one of two copies of the folders that
    is made before, and one after, could miss it."""
    for path in partition.files.staging.iterdir():
        with contextlib.suppress(ValueError, FileNotFoundError):
            partition.place_if_committed(int(path.name, 16))
    sync_file_system(partition.folder)
