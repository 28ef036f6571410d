"""What has to be done from time to time: plain functions, and how often a server runs them in a thread."""

import logging
from collections.abc import Callable

from attrs import frozen

from mboxlist.kv import Failure
from store.errors import StoreError
from store.expunge import purge
from store.store import Store

log = logging.getLogger(__name__)

SETTLE_INTERVAL = 5         # seconds; how long a message file keeps its staged name beside its own
PURGE_INTERVAL = 60


@frozen
class Task:
    """Something to run in a thread every `interval` seconds."""

    name: str
    interval: float
    run: Callable[[Store], None]


def settle(store: Store) -> None:
    """Take the staged names of placed messages away. Every process that delivers does this for its own."""
    for partition in store.partitions.values():
        partition.files.settle()


def checkpoint(store: Store) -> None:
    """Write changed pages to the tables, so that recovery is short and old logs go."""
    for partition in store.partitions.values():
        partition.env.checkpoint()
    store.mailboxes.env.checkpoint()


def purge_expunged(store: Store) -> None:
    """Remove message files that have been in no mailbox for longer than the purge delay."""
    for partition in store.partitions.values():
        while purge(partition):
            pass
        partition.env.flush()


def every_process(store: Store) -> list[Task]:
    """What each process that serves clients does."""
    return [Task("settle", SETTLE_INTERVAL, settle)]


def one_process(store: Store) -> list[Task]:
    """What one process does for the whole store."""
    return [Task("checkpoint", store.settings.checkpoint_interval, checkpoint),
            Task("purge", PURGE_INTERVAL, purge_expunged)]


def run(task: Task, store: Store) -> None:
    """Run a task; a failure is logged, and the task comes again at its time."""
    try:
        task.run(store)
    except (StoreError, OSError, Failure):
        log.exception("housekeeping: %s failed", task.name)
