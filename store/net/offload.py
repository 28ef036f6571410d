"""Work that may wait for the disk or takes long, done in threads, so that the event loop goes on.

`deliver` is the way of every message into the store, `flushed` what comes before every positive answer: syncs that are
asked for at the same time share one.
"""

import logging
import time
from collections.abc import Callable, Coroutine, Generator, Sequence
from queue import SimpleQueue
from threading import Thread
from typing import Any, Protocol, TypeVar

from twisted.internet.defer import Deferred, succeed
from twisted.python.failure import Failure

from mboxlist.entry import MailboxEntry
from store.accounts.base import Account
from store.deliver import NotOnDisk, Outcome, Target, commit, is_known
from store.errors import Problem, StoreError
from store.messagefiles import Staged
from store.partition import Partition
from store.store import Store
from store.values import InternalDate, Secret

log = logging.getLogger(__name__)

T = TypeVar("T")

SYNCS = 8                   # batches of message files that are synced at the same time
SIDE_BY_SIDE = 8            # message files synced at the same time: the journal merges what comes together
POOLS = {"sync": 10, "search": 2, "directory": 2, "files": 4, "changes": 2, "names": 1, "housekeeping": 1}


class Threads(Protocol):
    """Where work is done that must not hold up the event loop."""

    def run(self, kind: str, work: Callable[[], T]) -> "Deferred[T]":
        """The result of `work`, which runs in a thread of that kind (`POOLS`)."""

    def side_by_side(self, work: list[Callable[[], None]]) -> None:
        """Run all of `work` at the same time and wait for it; raises what one of them raised. For a thread."""


class Inline:
    """No threads: the work is done at once. For tests and the command line."""

    def run(self, kind: str, work: Callable[[], T]) -> "Deferred[T]":
        """The result of `work`."""
        try:
            return succeed(work())
        except Exception:
            failed: Deferred[T] = Deferred()
            failed.errback()
            return failed

    def side_by_side(self, work: list[Callable[[], None]]) -> None:
        """One after the other."""
        for one in work:
            one()


class ReactorThreads:
    """Threads for each kind of work, made when they are first needed; results come back in the reactor's thread."""

    def __init__(self, call_from_thread: Callable[..., object]) -> None:
        self._call = call_from_thread
        self._pools = {kind: _Pool(kind, size) for kind, size in POOLS.items()}
        self._files = _Pool("file", SIDE_BY_SIDE)

    def run(self, kind: str, work: Callable[[], T]) -> "Deferred[T]":
        """The result of `work`."""
        done: Deferred[T] = Deferred()

        def task() -> None:
            try:
                result = work()
            except BaseException as error:
                self._call(done.errback, error)
            else:
                self._call(done.callback, result)

        self._pools[kind].put(task)
        return done

    def side_by_side(self, work: list[Callable[[], None]]) -> None:
        """The last one in this thread, the others in threads of their own."""
        ended: SimpleQueue[BaseException | None] = SimpleQueue()
        for one in work[:-1]:
            self._files.put(lambda one=one: ended.put(_caught(one)))    # type: ignore[misc]
        failures = [_caught(work[-1]), *(ended.get() for _ in work[:-1])]
        for failure in failures:
            if failure is not None:
                raise failure

    def stop(self) -> None:
        """Wait for what is under way, and take no more."""
        for pool in (*self._pools.values(), self._files):
            pool.stop()


class _Pool:
    """Up to `size` threads that do what is put to them, in order."""

    def __init__(self, name: str, size: int) -> None:
        self._name = name
        self._size = size
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._threads: list[Thread] = []
        self._idle = 0

    def put(self, task: Callable[[], None]) -> None:
        """Have it done; it must not raise."""
        self._queue.put(task)
        if self._queue.qsize() > self._idle and len(self._threads) < self._size:
            thread = Thread(target=self._work, name=f"{self._name}-{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _work(self) -> None:
        while True:
            self._idle += 1
            task = self._queue.get()
            self._idle -= 1
            if task is None:
                return
            task()

    def stop(self) -> None:
        """Wait until all is done, and end the threads."""
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()


def _caught(work: Callable[[], None]) -> BaseException | None:
    try:
        work()
    except BaseException as error:
        return error
    return None


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
    """The result of a function that takes long, or waits: `kind` is one of POOLS."""
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
