"""Work that may wait for the disk or takes long, done in threads, so that the event loop goes on.

`deliver` is the way of every message into the store, `flushed` what comes before every positive answer: syncs that are
asked for at the same time share one.
"""

import logging
import time
from collections.abc import Callable, Coroutine, Generator, Sequence
from typing import Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from mboxlist.entry import MailboxEntry
from store.accounts.base import Account
from store.deliver import NotOnDisk, Outcome, Target, commit, is_known
from store.errors import Problem, StoreError
from store.messagefiles import Staged
from store.net.threads import Inline, Threads
from store.partition import Partition
from store.store import Store
from store.values import InternalDate, Secret

log = logging.getLogger(__name__)

T = TypeVar("T")

SYNCS = 8                   # batches of message files that are synced at the same time


class _Shared:
    """Runs `work` for all who ask; those who ask while it runs `most` times already share the next run."""

    def __init__(self, threads: Threads, work: Callable[[list[Any]], None], most: int = 1) -> None:
        self._threads = threads
        self._work = work
        self._most = most
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
        running = self._threads.run("sync", lambda: self._work([item for item, _ in batch]))
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
        self._folders = {name: _Shared(threads, self._sync_staged, SYNCS) for name in store.partitions}
        self._logs = {name: _Shared(threads, _flusher(partition)) for name, partition in store.partitions.items()}

    def staged(self, staged: Staged, partition: Partition) -> "Deferred[None]":
        """Fires when the message file and its name are on disk."""
        return self._folders[partition.name].ask(staged)

    def log(self, partition: Partition, staged: Staged | None = None) -> "Deferred[None]":
        """Fires when everything committed so far is on disk, and `staged` has its place."""
        return self._logs[partition.name].ask(staged)

    def _sync_staged(self, batch: list[Staged]) -> None:
        self.threads.side_by_side([staged.sync for staged in batch])
        batch[0].files.sync_names()


def _flusher(partition: Partition) -> Callable[[list[Any]], None]:
    def flush(batch: list[Staged | None]) -> None:
        partition.env.flush()
        for staged in batch:
            if staged is not None:
                _place(staged)
    return flush


def _place(staged: Staged) -> None:
    """The message is safe under its staged name already, so a failure here is not the sender's business."""
    try:
        staged.place()
    except OSError:
        log.exception("message %s keeps its name in staging", staged.mid.hex())


def attach(store: Store, threads: Threads) -> None:
    """Have the store's long work done by `threads`. Until then it is done at once."""
    store.durability = Durability(store, threads)


def _durability(store: Store) -> Durability:
    if store.durability is None:
        attach(store, Inline())
    found: Durability = store.durability    # type: ignore[assignment]
    return found


async def run(store: Store, kind: str, function: Callable[..., T], *args: Any) -> T:
    """The result of a function that takes long, or waits: `kind` is one of `threads.POOLS`."""
    return await _durability(store).threads.run(kind, lambda: function(*args))


async def spill(store: Store, staged: Staged) -> None:
    """Write what a message being received holds in memory to its file; call it when `staged.full`."""
    await run(store, "files", staged.spill)


async def deliver(store: Store, staged: Staged, targets: Sequence[Target], received: InternalDate | None = None
                  ) -> list[Outcome]:
    """Deliver a received message to all targets; when this returns, what it says is on disk.

    An outcome for each target, in their order; a StoreError for one that was refused. A partition on which all fails
    does not harm the others. The staged message is used up, also when this raises.
    """
    if staged.costly:
        await run(store, "files", staged.finish)
    else:
        staged.finish()
    received = received or InternalDate(int(time.time()))
    by_partition: dict[str, list[int]] = {}
    for at, target in enumerate(targets):
        by_partition.setdefault(target.entry.partition, []).append(at)
    outcomes: dict[int, Outcome] = {}
    own = staged.files
    # The partition that the message was staged on comes last: until then its file is there to be copied from.
    for name in sorted(by_partition, key=lambda name: store.partitions[name].files is own):
        places = by_partition[name]
        try:
            partition = store.partitions[name]
            copy = staged if partition.files is own else await _copy(store, staged, partition)
            found = await _deliver_here(store, partition, copy, [targets[at] for at in places], received)
        except StoreError as refusal:
            found = [refusal] * len(places)
        outcomes.update(zip(places, found, strict=True))
    if not any(store.partitions[name].files is own for name in by_partition):
        staged.abort()
    return [outcomes[at] for at in range(len(targets))]


async def _deliver_here(store: Store, partition: Partition, staged: Staged, targets: Sequence[Target],
                        received: InternalDate) -> list[Outcome]:
    durability = _durability(store)
    try:
        outcomes = None
        if is_known(partition, staged):
            try:
                outcomes = commit(partition, staged, targets, received)
            except NotOnDisk:
                pass
        if outcomes is None:
            if staged.full:
                await spill(store, staged)
            else:
                staged.spill()              # little: done here, the thread only has to sync
            await durability.staged(staged, partition)
            staged.close()
            outcomes = _commit_twice(partition, staged, targets, received)
    except BaseException:
        staged.abort()
        raise
    await durability.log(partition, staged)
    return outcomes


def _commit_twice(partition: Partition, staged: Staged, targets: Sequence[Target], received: InternalDate
                  ) -> list[Outcome]:
    """Once more when another process brought the same content at the same moment: then it is known."""
    try:
        return commit(partition, staged, targets, received)
    except StoreError as refusal:
        if refusal.problem is not Problem.BUSY:
            raise
        return commit(partition, staged, targets, received)


async def _copy(store: Store, staged: Staged, partition: Partition) -> Staged:
    if not staged.on_disk:
        await _durability(store).threads.run("files", staged.sync)
    serial = partition.next_serial()
    return await run(store, "files", staged.copy_to, partition.files, serial)


async def flushed(store: Store, entry: MailboxEntry) -> None:
    """Return when everything committed so far on the mailbox's partition is on disk: before a positive answer."""
    await _durability(store).log(store.partition_of(entry))


async def authenticate(store: Store, login: str, password: Secret) -> Account:
    """The account that logs in. Raises StoreError BAD_LOGIN, UNAVAILABLE."""
    account = store.directory.remembers(login, password)
    if account is None:
        account = await run(store, "directory", store.directory.authenticate, login, password)
    return account


async def look_up(store: Store, address: str) -> Account | None:
    """The account that mail to the address is for (the built-in directory answers at once)."""
    return store.directory.look_up(address)


def now(work: Coroutine[Any, Any, T]) -> T:
    """The result of work that does not wait for anything: with `Inline`, everything here."""
    steps: Generator[Any, Any, T] = work.__await__()
    try:
        next(steps)
    except StopIteration as end:
        result: T = end.value
        return result
    raise RuntimeError("this work waits for an event loop")
