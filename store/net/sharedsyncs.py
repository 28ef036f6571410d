"""Syncs that are asked for at the same time share one: of message files, and of the database's log.

The kernel does them where it can (`kernelsyncs`), and else threads.
"""

import errno
import logging
import os
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from time import monotonic
from typing import Any, TypeVar

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
from store.net.kernelsyncs import KernelSyncs
from store.net.linestates import Wait
from store.net.stream import Done
from store.net.threads import ReactorThreads
from store.observing.loglines import DISK
from store.offload import Threads
from store.partition.filejournal import FileJournal
from store.partition.messagereading import SPILL
from store.partition.partition import Partition
from store.partition.staged import Staged
from store.store import Store

log = logging.getLogger(__name__)

NOT_SETTLED = "message files cannot be synced; they are in the file journal"
NOT_MADE = "no file journal can be made: message files are synced one by one"
Batch = list[tuple[Done, Sequence[Staged]]]
T = TypeVar("T")

BATCHES = 8                 # batches of message files that threads sync at the same time
JOURNAL_SECONDS = 30.0     # after which a file journal is tried again that could not be made
GATHER_SECONDS = 0.1       # for which message files wait for others that get their places too


def attach(store: Store, threads: ReactorThreads, kernel: KernelSyncs | None = None, reactor: Any = None) -> None:
    """Have the store's long work done by `threads`, and its syncs by the kernel; what waits for a standby waits in the
    event loop of the `reactor`. Until then all is done at once. For the thread of the event loop."""
    if reactor is not None:
        store.write_freeze.second.serve(reactor)
    store.owned.put(Threads, threads)
    store.owned.put(Durability, SharedSyncs(store, threads, kernel))
    store.write_freeze.never_waits()


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
        """Have these messages placed, which are on disk. Stopping the threads waits until all have their places."""
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

    @contextmanager
    def together(self) -> Iterator[None]:
        """All who ask within the block share the next flush, which begins after it."""
        if self._under_way:             # they share the one after that in any case
            yield
            return
        self._under_way = True
        try:
            yield
        finally:
            self._under_way = False
            if self._waiting:
                self._begin()

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
        if self._second is not None and self._second.shared[STATE_AT] and not self._partition.env.is_free:
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
        try:
            flushed = self._threads.run("sync", self._partition.flush)
        except Exception as error:      # there is no thread: or nobody would ever ask for one again
            self._ended(batch, error)
        else:
            flushed.addCallbacks(lambda _: self._ended(batch), lambda failure: self._ended(batch, failure.value))

    def _ask_standby(self, second: SecondCopy, batch: Batch) -> None:
        """Ask the standby for its sync. The process that has the connection to it puts the log on our disk before it
        sends it."""
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


class _Journalling:
    """Messages of a partition that go to this process's file journal, which is synced for all that wait at a moment."""

    def __init__(self, partition: Partition, threads: ReactorThreads, kernel: KernelSyncs | None, log_flush: _LogFlush
                 ) -> None:
        self._partition = partition
        self._log_flush = log_flush
        self._threads = threads
        self._kernel = kernel
        self._journal: FileJournal | None = None
        self._next_try = 0.0
        self._making = self._settling = self._under_way = self._gathering = False
        self._waiting: list[tuple[Done, Staged]] = []

    def is_of(self, partition: Partition) -> bool:
        """Whether this is the journal of just that partition: another may have come in its place, with its name."""
        return self._partition is partition

    def ask(self, staged: Staged) -> Done | None:
        """Fires when the message is on disk; None: its file is to be synced. Raises StoreError."""
        journal = self._journal
        if journal is None or journal.given_up:
            self._begin_another()
            return None
        done = Done()
        done.waits_for = DISK
        try:
            if not journal.append(staged, partial(self._begin, journal, done, staged)):
                return None
        except StoreError:                  # of its file: it is refused, whatever becomes of the sync
            done.addErrback(lambda _: None)
            raise
        if journal.half_full and not self._settling:
            self._settling = True
            try:
                self._threads.start("sync", self._settle)
            except RuntimeError as error:       # the next message tries it again
                self._settling = False
                TROUBLES.met(NOT_SETTLED, str(error))
        return done

    def ask_all(self, messages: Sequence[Staged], ask: Callable[[Staged], T]) -> list[T]:
        """What `ask` gives for each of the messages: those that go to the journal share the next sync."""
        self._gathering = True
        try:
            return [ask(staged) for staged in messages]
        finally:
            self._gathering = False
            if self._waiting and not self._under_way and self._journal is not None:
                self._sync(self._journal)

    def _begin(self, journal: FileJournal, done: Done, staged: Staged) -> None:
        self._waiting.append((done, staged))
        if not (self._under_way or self._gathering):
            self._sync(journal)

    def _sync(self, journal: FileJournal) -> None:
        batch, self._waiting = self._waiting, []
        self._under_way = True
        ended = partial(self._synced, journal, batch)
        try:
            if self._kernel is not None:
                self._kernel.sync(journal.handle, ended)
            else:
                self._threads.run("sync", partial(os.fdatasync, journal.handle)).addCallbacks(
                    lambda _: ended(None), lambda failure: ended(failure.value))
        except (OSError, RuntimeError) as error:        # or nobody would ever ask for one again
            ended(error if isinstance(error, OSError) else OSError(errno.EAGAIN, str(error)))

    def _synced(self, journal: FileJournal, batch: list[tuple[Done, Staged]], failure: OSError | None) -> None:
        self._under_way = False
        if failure is not None:
            log.error("%s cannot be synced: %s", journal.path, failure.strerror)
            journal.given_up = True         # what it has had on disk stays there
            # Those behind had been written: what has failed may have been theirs, and another sync would not say so.
            batch, self._waiting = [*batch, *self._waiting], []
        if self._waiting:
            self._sync(journal)
        if len(batch) == 1:
            (done, staged), = batch
            _file_synced(staged, done, failure)
            return
        with self._log_flush.together():        # each of them goes on, and its transaction wants a flush
            for done, staged in batch:
                _file_synced(staged, done, failure)

    def _settle(self) -> None:
        try:
            if self._journal is not None and self._journal.settled_lately:
                with suppress(StoreError):      # there is no room: messages find it full more often
                    self._journal.grow()
            self._partition.files.drop_staged_names()
        except OSError as error:
            TROUBLES.met(NOT_SETTLED, str(error))
        finally:
            self._settling = False

    def _begin_another(self) -> None:
        """Have another journal made, in a thread; in place of one that was given up, when that is not needed any
        more."""
        if self._making or self._partition.env.quiesced or monotonic() < self._next_try:
            return
        self._next_try = monotonic() + JOURNAL_SECONDS
        if self._journal is not None and (self._under_way or self._journal.holds):
            return
        try:
            made = self._threads.run("files", self._made)
        except RuntimeError as error:
            TROUBLES.met(NOT_MADE, str(error))
            return
        self._making = True
        made.addErrback(lambda failure: TROUBLES.met(NOT_MADE, str(failure.value)))
        made.addBoth(lambda _: setattr(self, "_making", False))

    def _made(self) -> None:
        files, before = self._partition.files, self._journal
        if before is not None:
            self._journal = files.journal = None
            before.close()          # which waits for a sync of all
        self._journal = files.journal = FileJournal.make(files, self._partition.serials.next_serial())


class SharedSyncs(Durability):
    """The shared syncs of an open store, one of each kind for each partition."""

    def __init__(self, store: Store, threads: ReactorThreads, kernel: KernelSyncs | None) -> None:
        self._threads = threads
        self._kernel = kernel
        self._store = store
        self._making: set[str] = set()
        self._folders: dict[str, _Shared] = {}
        self._logs: dict[str, _LogFlush] = {}
        self._journals: dict[str, _Journalling] = {}
        for name in store.partitions:       # a counter is seen to grow only where it has been seen before
            Counters.of(store).of_partition(name)

    def staged(self, staged: Staged, partition: Partition) -> "Deferred[None]":
        """Fires when the message file and its name are on disk."""
        if staged.named and staged.held <= SPILL:
            try:
                if (done := self._journalling(partition).ask(staged)) is not None:
                    return done
                if self._kernel is not None:
                    done = Done()
                    done.waits_for = DISK
                    self._kernel.sync(staged.unsynced(), partial(_file_synced, staged, done))
                    return done
            except StoreError:
                return fail()
        found = self._folders.get(partition.name)
        if found is None:
            found = self._folders[partition.name] = _Shared(
                lambda batch: self._threads.run("sync", lambda: self._sync_staged(batch)), BATCHES)
        return found.ask(staged)

    def all_staged(self, messages: Sequence[Staged], partition: Partition) -> "Sequence[Deferred[None]]":
        """`staged` of each of several messages, which share a sync."""
        return self._journalling(partition).ask_all(messages, lambda staged: self.staged(staged, partition))

    def _journalling(self, partition: Partition) -> _Journalling:
        found = self._journals.get(partition.name)
        if found is None or not found.is_of(partition):
            found = self._journals[partition.name] = _Journalling(
                partition, self._threads, self._kernel, self._flushes(partition))
        return found

    def log(self, partition: Partition, staged: Sequence[Staged] = ()) -> Done:
        """Fires when everything committed so far is on disk; after that these messages get their places. Nothing but
        Unflushed comes of it."""
        return self._flushes(partition).ask(staged)

    def _flushes(self, partition: Partition) -> _LogFlush:
        found = self._logs.get(partition.name)
        if found is None:
            found = self._logs[partition.name] = _LogFlush(self._store, partition, self._threads, self._kernel)
        return found

    def discard(self, staged: Staged) -> None:
        """Remove the message some time later, as with the staged name of a message that is kept: the time of the answer
        must not tell whether the content was there."""
        if staged.concealed and staged.on_disk and not staged.needed:
            staged.left = True
            staged.place()
        staged.abort()

    def make_ready(self, partition: Partition) -> None:
        """Have files made for messages to come, if there are too few."""
        if partition.files.few_ready and partition.name not in self._making and not partition.env.quiesced:
            try:
                made = self._threads.run("files", partition.serials.make_ready)
            except RuntimeError as error:           # there is no thread: the next message tries it again
                TROUBLES.met("no message files can be made ready", str(error))
                return
            self._making.add(partition.name)
            made.addErrback(lambda failure: TROUBLES.met("no message files can be made ready", str(failure.value)))
            made.addBoth(lambda _: self._making.discard(partition.name))

    def _sync_staged(self, batch: list[Staged]) -> None:
        self._threads.side_by_side([staged.sync for staged in batch])
        if new := [staged.names_since for staged in batch if not staged.named]:
            batch[0].files.sync_names(min(new))


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
