"""Syncs that are asked for at the same time share one: of message files, and of the database's log."""

import logging
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from store.delivery.durability import Durability, place_all
from store.net.threads import ReactorThreads
from store.offload import Threads
from store.partition.partition import READY, Partition
from store.partition.staged import Staged
from store.store import Store

log = logging.getLogger(__name__)

SYNCS = 8                   # batches of message files that are synced at the same time


def attach(store: Store, threads: ReactorThreads) -> None:
    """Have the store's long work done by `threads`. Until then it is done at once. For the thread of the event loop."""
    store.owned.put(Threads, threads)
    store.owned.put(Durability, SharedSyncs(store, threads))
    store.write_freeze.never_waits()


class _Shared:
    """Runs `work` for all who ask; those who ask while it runs `most` times already share the next run.

    `then` follows in the thread when they have been told that it has ended well.
    """

    def __init__(self, threads: ReactorThreads, work: Callable[[list[Any]], None], most: int = 1,
                 then: Callable[[list[Any]], None] = lambda items: None) -> None:
        self._threads = threads
        self._work = work
        self._most = most
        self._then = then
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
        running = self._threads.run("sync", lambda: self._work(items), lambda: self._then(items))
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


class SharedSyncs(Durability):
    """The shared syncs of an open store, one of each kind for each partition."""

    def __init__(self, store: Store, threads: ReactorThreads) -> None:
        self._threads = threads
        self._freeze = store.write_freeze
        self._making: set[str] = set()
        self._folders: dict[str, _Shared] = {}
        self._logs: dict[str, _Shared] = {}

    def staged(self, staged: Staged, partition: Partition) -> "Deferred[None]":
        """Fires when the message file and its name are on disk."""
        found = self._folders.get(partition.name)
        if found is None:
            found = self._folders[partition.name] = _Shared(self._threads, self._sync_staged, SYNCS)
        return found.ask(staged)

    def log(self, partition: Partition, staged: Staged | None = None) -> "Deferred[None]":
        """Fires when everything committed so far is on disk; after that `staged` gets its place."""
        found = self._logs.get(partition.name)
        if found is None:
            found = self._logs[partition.name] = _Shared(
                self._threads, lambda batch: partition.flush(), then=place_all)
        return found.ask(staged)

    def discard(self, staged: Staged) -> None:
        """Some time later, as with the staged name of a message that is kept: the time of the answer must not tell
        whether the content was there."""
        if staged.concealed and staged.on_disk:
            staged.left = True
            staged.place()
        staged.abort()

    def make_ready(self, partition: Partition) -> None:
        """Have files made for messages to come, if there are too few."""
        if partition.files.ready < READY // 2 and partition.name not in self._making and not self._freeze.shut:
            self._making.add(partition.name)
            made = self._threads.run("files", partition.make_ready)
            made.addErrback(lambda failure: log.warning("no message files can be made ready: %s", failure.value))
            made.addBoth(lambda _: self._making.discard(partition.name))

    def _sync_staged(self, batch: list[Staged]) -> None:
        self._threads.side_by_side([staged.sync for staged in batch])
        if not all(staged.named for staged in batch):
            batch[0].files.sync_names()
