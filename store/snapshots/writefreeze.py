"""The write freeze: nothing is committed, and no file of the store is written, while somebody copies its volumes."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator

from mboxlist.engine.freezegate import ShutAlready
from store.errors import Problem, StoreError
from store.partition.messagefiles import sync_file_system
from store.partition.partition import Partition
from store.partition.processes import partitions_in_use
from store.snapshots.taking import all_environments
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
    envs = all_environments(store).values()
    try:
        with store.write_freeze.keep_shut(seconds + PATIENCE):
            deadline = time.monotonic() + PATIENCE
            while any(env.active() for env in envs):
                if time.monotonic() > deadline:
                    raise StoreError(Problem.BUSY, "The store cannot be frozen: something takes too long")
                time.sleep(STEP)
            if set(partitions_in_use(store.root) or ()) - store.partitions.keys():
                raise StoreError(Problem.BUSY, "A partition was added while the store was frozen")
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


@contextlib.contextmanager
def frozen_for(store: Store, command: str, seconds: float | None = None) -> Iterator[None]:
    """Freeze writing while the body reads the moment of a snapshot, and then a shell command runs, for so many seconds
    at most (`store.freeze_time`). Raises StoreError BUSY, also when the command takes longer or ends with a failure."""
    limit = store.settings.freeze_time if seconds is None else seconds
    with frozen(store, limit):
        yield
        child = subprocess.Popen(command, shell=True, start_new_session=True, stdout=2)
        try:
            status = child.wait(min(limit, store.write_freeze.left()))
        except BaseException as error:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            if isinstance(error, subprocess.TimeoutExpired):
                raise StoreError(Problem.BUSY, f"the command took longer than {limit:g} s and was ended; no snapshot "
                                               "was made") from None
            raise
    if status:
        raise StoreError(Problem.BUSY, f"the command ended with status {status}; no snapshot was made")


def _place_all(partition: Partition) -> None:
    """Give every message that was committed, also by other processes, its name: one of two copies of the folders that
    is made before, and one after, could miss it."""
    for path in partition.files.staging.iterdir():
        with contextlib.suppress(ValueError, FileNotFoundError):
            partition.place_if_committed(int(path.name, 16))
    sync_file_system(partition.folder)
