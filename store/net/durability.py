"""Syncs that are asked for at the same time share one: of message files, and of the database's log.

Who waits for which of them, and at which level of the setting `store.sync`, is `offload`'s business.
"""

import logging
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from store.net.lockedmailboxes import LockedMailboxes
from store.net.threads import Threads
from store.partition.partition import READY, Partition
from store.partition.staged import Staged
from store.store import Store

log = logging.getLogger(__name__)

SYNCS = 8                   # batches of message files that are synced at the same time


class _Shared:
    """Runs `work` for all who ask; those who ask while it runs `most` times already share the next run.

    `then` follows in the thread when they have been told that it has ended well.
    """

    def __init__(self, threads: Threads, work: Callable[[list[Any]], None], most: int = 1,
                 then: Callable[[list[Any]], None] = lambda items: None, kind: str = "sync") -> None:
        self._threads = threads
        self._work = work
        self._most = most
        self._then = then
        self._kind = kind
        self._waiting: list[tuple[Any, Deferred[None]]] = []
        self._running = 0

    def ask(self, item: Any = None) -> "Deferred[None]":
        """Fires when a run that began after this call has ended."""
        done: Deferred[None] = Deferred()
        self._waiting.append((item, done))
        if self._running < self._most:
            self._start()
        return done

    def _start(self) -> None:
        batch, self._waiting = self._waiting, []
        self._running += 1
        items = [item for item, _ in batch]
        running = self._threads.run(self._kind, lambda: self._work(items), lambda: self._then(items))
        running.addBoth(self._ended, batch)

    def _ended(self, outcome: object, batch: "list[tuple[Any, Deferred[None]]]") -> None:
        self._running -= 1
        if self._waiting:
            self._start()
        for _, done in batch:
            if isinstance(outcome, Failure):
                done.errback(outcome)
            else:
                done.callback(None)


class Durability:
    """The shared syncs of an open store, one of each kind for each partition."""

    def __init__(self, store: Store, threads: Threads) -> None:
        self.threads = threads
        self._freeze = store.write_freeze
        self.locked = LockedMailboxes(store.settings, threads)
        self.thaw = _Shared(threads, lambda batch: self._freeze.wait(), kind="held")
        self._making: set[str] = set()
        self._folders: dict[str, _Shared] = {}
        self._logs: dict[str, _Shared] = {}

    def staged(self, staged: Staged, partition: Partition) -> "Deferred[None]":
        """Fires when the message file and its name are on disk."""
        found = self._folders.get(partition.name)
        if found is None:
            found = self._folders[partition.name] = _Shared(self.threads, self._sync_staged, SYNCS)
        return found.ask(staged)

    def log(self, partition: Partition, staged: Staged | None = None) -> "Deferred[None]":
        """Fires when everything committed so far is on disk; after that `staged` gets its place."""
        found = self._logs.get(partition.name)
        if found is None:
            found = self._logs[partition.name] = _Shared(
                self.threads, lambda batch: partition.flush(), then=place_all)
        return found.ask(staged)

    def make_ready(self, partition: Partition) -> None:
        """Have files made for messages to come, if there are too few."""
        if (partition.files.ready < READY // 2 and partition.name not in self._making and self.threads.real
                and not self._held_still()):
            self._making.add(partition.name)
            made = self.threads.run("files", partition.make_ready)
            made.addErrback(lambda failure: log.warning("no message files can be made ready: %s", failure.value))
            made.addBoth(lambda _: self._making.discard(partition.name))

    def _held_still(self) -> bool:
        return self._freeze.shut

    def _sync_staged(self, batch: list[Staged]) -> None:
        self.threads.side_by_side([staged.sync for staged in batch])
        if not all(staged.named for staged in batch):
            batch[0].files.sync_names()


def place_all(batch: list[Staged | None]) -> None:
    """The messages are safe under their staged names already, so a failure here is not the senders' business."""
    for staged in batch:
        if staged is None:
            continue
        try:
            staged.place()
        except OSError:
            log.exception("message %s keeps its name in staging", staged.digest.hex())
