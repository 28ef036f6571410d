"""Syncs that are asked for at the same time share one: of message files, and of the database's log.

The kernel does them where it can (`KernelSyncs`), and else threads.
"""

import errno
import logging
import os
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Any

from twisted.internet.defer import Deferred, fail
from twisted.python.failure import Failure

from mboxlist.engine.logfiles import Unsynced
from mboxlist.engine.secondcopy import STATE_AT, SecondCopy, State, unknown
from mboxlist.engine.transact import Unflushed
from mboxlist.engine.troubles import TROUBLES, after_commit
from store.delivery.durable import Durability, place_all
from store.errors import StoreError
from store.metrics.histograms import SECONDS
from store.metrics.processcounters import WAITING, Counters
from store.net.linestates import Wait
from store.net.stream import Done
from store.net.threads import ReactorThreads
from store.observing.loglines import DISK
from store.offload import Threads
from store.partition.messagereading import SPILL
from store.partition.partition import Partition
from store.partition.staged import Staged
from store.store import Store

try:
    from caio import linux_aio
except ImportError:         # the kernel is older than 4.18, or a sandbox does not let us
    linux_aio = None  # type: ignore[assignment]

log = logging.getLogger(__name__)

Ended = Callable[[OSError | None], None]
Batch = list[tuple[Done, Sequence[Staged]]]

BATCHES = 8                 # batches of message files that threads sync at the same time
SYNCS = 256                 # that the kernel has to do at the same time
GATHER_SECONDS = 0.1       # for which message files wait for others that get their places too


def attach(store: Store, threads: ReactorThreads, kernel: "KernelSyncs | None" = None, reactor: Any = None) -> None:
    """Have the store's long work done by `threads`, and its syncs by the kernel; what waits for a standby waits in the
    event loop of the `reactor`. Until then all is done at once. For the thread of the event loop."""
    if reactor is not None:
        store.write_freeze.second.serve(reactor)
    store.owned.put(Threads, threads)
    store.owned.put(Durability, SharedSyncs(store, threads, kernel))
    store.write_freeze.never_waits()


class KernelSyncs:
    """Syncs that threads of the kernel do (Linux's asynchronous I/O, io_submit(2)): one is begun and answered in the
    event loop, which costs a tenth of a thread of Python's that waits for it and must get the interpreter's lock."""

    def __init__(self, reactor: Any, most: int = SYNCS) -> None:
        self._context = linux_aio.Context(most)
        self._most = most
        self._under_way = 0
        self._waiting: deque[tuple[int, Ended]] = deque()
        once_each = getattr(reactor, "add_signalled", None)     # the server's own: see there
        self._must_read = once_each is None
        (once_each or reactor.addReader)(self)

    @classmethod
    def of(cls, reactor: Any) -> "KernelSyncs | None":
        """Those of this process; None where the kernel has none, or does not let us."""
        try:
            if linux_aio is not None:
                return cls(reactor)
        except (RuntimeError, SystemError, ValueError, OverflowError) as error:     # caio's for io_setup(2)
            log.info("the kernel does no syncs, threads do: %s", error)
        return None

    def sync(self, handle: int, ended: Ended) -> None:
        """Have `ended` called when the open file's octets are on disk, or with the error with which that has failed; it
        must not raise."""
        if self._under_way >= self._most:
            try:
                self._waiting.append((os.dup(handle), ended))
            except OSError:             # there are no more descriptors, and a sync that has not begun has not failed
                self._under_way += 1
                self._ended(ended, _sync_at_once(handle))
            return
        operation = linux_aio.Operation.fdsync(handle)
        operation.set_callback(partial(self._ended, ended))
        self._under_way += 1
        try:
            self._context.submit(operation)
        except (SystemError, ValueError, OverflowError):        # as caio puts the errors of io_submit(2)
            self._ended(ended, _sync_at_once(handle))

    def _ended(self, ended: Ended, result: int) -> None:
        """`result` is that of the kernel: 0, or an error's negative number as 64 bits without a sign."""
        self._under_way -= 1
        if result:
            number = -result % (1 << 64)
            ended(OSError(number, os.strerror(number)))
        else:
            ended(None)

    # What the reactor calls

    def fileno(self) -> int:
        """That of the eventfd."""
        return self._context.fileno

    def logPrefix(self) -> str:
        """For Twisted's log."""
        return "syncs"

    def doRead(self) -> None:
        """Some have ended."""
        if self._must_read:
            self._context.poll()
        self._context.process_events()          # all that have ended: it takes more than SYNCS at a time
        while self._waiting and self._under_way < self._most:
            handle, ended = self._waiting.popleft()
            self.sync(handle, ended)
            os.close(handle)

    def connectionLost(self, reason: Failure) -> None:
        """The reactor has ended."""


def _sync_at_once(handle: int) -> int:
    """What the kernel could not be asked for; the result as in `KernelSyncs._ended`."""
    try:
        os.fdatasync(handle)
    except OSError as error:
        return -(error.errno or errno.EIO)
    return 0


class _Shared:
    """Runs `work` for all who ask; those who ask while it runs `most` times already share the next run."""

    def __init__(self, work: "Callable[[list[Any]], Deferred[None]]", most: int = 1) -> None:
        self._work = work
        self._most = most
        self._waiting: list[tuple[Any, Deferred[None]]] = []
        self._running = 0

    def ask(self, item: Any = None) -> "Deferred[None]":
        """Fires when a run that began after this call has ended."""
        done: Wait[None] = Wait()
        done.waits_for = DISK
        self._waiting.append((item, done))
        if self._running < self._most:
            self._start()
        return done

    def _start(self) -> None:
        batch, self._waiting = self._waiting, []
        self._running += 1
        try:
            running = self._work([item for item, _ in batch])
        except Exception:               # or nobody would ever run again
            running = fail()
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


class _Placing:
    """Gives the messages of a partition their places, all those of a short while together: a thread that does it for
    each costs the event loop more than the link itself. Nobody waits; a reader finds a message in `staging/` too."""

    def __init__(self, threads: ReactorThreads) -> None:
        self._threads = threads
        self._waiting: deque[Staged] = deque()
        self._due = False

    def add(self, batch: Sequence[Staged]) -> None:
        """They are on disk. Stopping the threads waits until all have their places."""
        self._waiting.extend(batch)
        if not self._due:
            self._due = True
            try:
                self._threads.start("placing", self._place)
            except RuntimeError as error:       # what is delivered is delivered; the next ones bring these along
                self._due = False
                TROUBLES.met("messages keep their names in staging for now", str(error))

    def _place(self) -> None:
        time.sleep(GATHER_SECONDS)
        self._due = False               # who comes from here on has the next turn, or still this one
        with suppress(IndexError):
            while True:
                place_all([self._waiting.popleft()])


class _LogFlush:
    """The flushes of a partition's log, one at a time: those who ask while one is under way share the next one. Nothing
    but Unflushed comes of it: what is to be on disk has been committed."""

    def __init__(self, store: Store, partition: Partition, threads: ReactorThreads, kernel: KernelSyncs | None) -> None:
        self._partition = partition
        self._threads = threads
        self._kernel = kernel
        self._placing = _Placing(threads)
        self._times, self._sharing = Counters.of(store).of_partition(partition.name)
        self._began = 0.0
        self._waiting: list[tuple[Done, Sequence[Staged]]] = []
        self._under_way = False
        self._second = partition.env.second

    def ask(self, staged: Sequence[Staged]) -> Done:
        """Fires when a flush that began after this call has ended; then these messages get their places."""
        done = Done()
        self._waiting.append((done, staged))
        if not self._under_way:
            self._begin()
        return done

    def _begin(self) -> None:
        self._under_way = True
        self._began = monotonic()
        batch, self._waiting = self._waiting, []
        if self._second is not None and self._second.shared[STATE_AT]:
            self._ask_standby(self._second, batch)
            return
        log_flush, kernel, log_file = self._partition.env.log, self._kernel, None
        if kernel is not None:
            try:
                log_file = log_flush.unsynced()
            except OSError:             # without a descriptor it takes `flush`
                pass
        try:
            if kernel is not None and log_file is not None:
                kernel.sync(log_file[0], partial(self._synced, batch, log_file))
            else:
                self._flush_in_thread(batch)
        except Exception as error:      # or nobody would ever ask for one again
            self._ended(batch, error)

    def _flush_in_thread(self, batch: Batch) -> None:
        self._threads.run("sync", self._partition.flush).addCallbacks(
            lambda _: self._ended(batch), lambda failure: self._ended(batch, failure.value))

    def _ask_standby(self, second: SecondCopy, batch: Batch) -> None:
        """Who has the connection to it has the log put on our disk before it is sent."""
        try:
            if second.serves:
                second.when(second.ask(), partial(self._copied, batch))
            else:
                self._flush_in_thread(batch)
        except Exception as error:
            self._ended(batch, error)

    def _copied(self, batch: Batch, state: State) -> None:
        if state is State.ALONE:
            self._flush_in_thread(batch)
        else:
            self._ended(batch, unknown() if state is State.REFUSING else None)

    def _synced(self, batch: Batch, log_file: Unsynced, failure: OSError | None) -> None:
        try:
            self._partition.env.log.synced(log_file, failure)
        except Exception as error:
            self._ended(batch, error)
        else:
            self._ended(batch)

    def _ended(self, batch: Batch, failure: Exception | None = None) -> None:
        seconds, asked = monotonic() - self._began, len(batch)
        self._times.counts[bisect_left(SECONDS, seconds)] += 1
        self._times.total += seconds
        self._sharing.counts[bisect_left(WAITING, asked)] += 1
        self._sharing.total += asked
        self._under_way = False
        if self._waiting:
            self._begin()
        if failure is not None:
            failure = _unflushed(failure)
        for done, staged in batch:
            if staged and failure is None:
                after_commit(self._placing.add, staged)
            done.end(failure)


class SharedSyncs(Durability):
    """The shared syncs of an open store, one of each kind for each partition."""

    def __init__(self, store: Store, threads: ReactorThreads, kernel: KernelSyncs | None) -> None:
        self._threads = threads
        self._kernel = kernel
        self._store = store
        self._freeze = store.write_freeze
        self._making: set[str] = set()
        self._folders: dict[str, _Shared] = {}
        self._logs: dict[str, _LogFlush] = {}
        for name in store.partitions:       # a counter is seen to grow only where it has been seen before
            Counters.of(store).of_partition(name)

    def staged(self, staged: Staged, partition: Partition) -> "Deferred[None]":
        """Fires when the message file and its name are on disk."""
        if self._kernel is not None and staged.named and staged.held <= SPILL:
            done = Done()
            done.waits_for = DISK
            try:
                self._kernel.sync(staged.unsynced(), partial(_file_synced, staged, done))
            except StoreError:
                return fail()
            return done
        found = self._folders.get(partition.name)
        if found is None:
            found = self._folders[partition.name] = _Shared(
                lambda batch: self._threads.run("sync", lambda: self._sync_staged(batch)), BATCHES)
        return found.ask(staged)

    def log(self, partition: Partition, staged: Sequence[Staged] = ()) -> Done:
        """Fires when everything committed so far is on disk; after that these messages get their places. Nothing but
        Unflushed comes of it."""
        found = self._logs.get(partition.name)
        if found is None:
            found = self._logs[partition.name] = _LogFlush(self._store, partition, self._threads, self._kernel)
        return found.ask(staged)

    def discard(self, staged: Staged) -> None:
        """Some time later, as with the staged name of a message that is kept: the time of the answer must not tell
        whether the content was there."""
        if staged.concealed and staged.on_disk and not staged.needed:
            staged.left = True
            staged.place()
        staged.abort()

    def make_ready(self, partition: Partition) -> None:
        """Have files made for messages to come, if there are too few."""
        if partition.files.few_ready and partition.name not in self._making and not self._freeze.shut:
            self._making.add(partition.name)
            made = self._threads.run("files", partition.serials.make_ready)
            made.addErrback(lambda failure: TROUBLES.met("no message files can be made ready", str(failure.value)))
            made.addBoth(lambda _: self._making.discard(partition.name))

    def _sync_staged(self, batch: list[Staged]) -> None:
        self._threads.side_by_side([staged.sync for staged in batch])
        if not all(staged.named for staged in batch):
            batch[0].files.sync_names()


def _file_synced(staged: Staged, done: Done, failure: OSError | None) -> None:
    if failure is None:
        staged.on_disk = True
        done.end()
        return
    try:
        staged.synced(failure)
    except StoreError as error:
        done.end(error)


def _unflushed(failure: Exception) -> Unflushed:
    """What has kept a flush from being begun, too, leaves open what is on disk."""
    if isinstance(failure, Unflushed):
        return failure
    unknown = Unflushed(getattr(failure, "errno", None) or errno.EIO, str(failure))
    unknown.__cause__ = failure
    return unknown
