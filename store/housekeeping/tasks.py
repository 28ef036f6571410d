"""What has to be done from time to time: tasks, which work through their items one by one.

A task names its items (partitions, mailboxes, messages) and what to do with one of them. A `Round` goes through them in
slices: between two items it can be left off, between two slices it waits as the rate limit wants. An item that fails is
reported once, and from then on comes after all others; the rest goes on.
"""

import logging
import time
from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import partial
from typing import Any

from attrs import define, field, frozen

from mboxlist.engine.transact import transact
from mboxlist.engine.troubles import AWAY, NO_ROOM, TROUBLES
from mboxlist.entry import MailboxId
from store.events import outgoingfiles, outgoingmail
from store.expiry.rounds import Rounds
from store.filtering import eventscripts
from store.housekeeping import interrupted, keptoctets, notices
from store.mailboxes import copymessages, deletion, namespace
from store.mailboxes.expunge import Batch, Due, Expunges, due, expunges, forget, last_due, purge_batch
from store.mend import idxfiles, lostfigures
from store.operations import clockrecord
from store.operations.clockrecord import ClockWatch
from store.partitions import volumes
from store.problems import NO_BUG, is_no_room, is_standby_away
from store.quota import accounting
from store.rebuild.recount import count_what_is_due, is_uncounted, recount_some, repair_damaged
from store.recovery import knownfiles, newerfiles, userareacheck
from store.snapshots import retention
from store.snapshots.taking import environments
from store.store import Store
from store.tables import domainlimits
from store.userarea import writing
from store.users import lifecycle, restorable

log = logging.getLogger(__name__)

SLICE = 0.05                # seconds of work after which a round lets others in
MOST_BAD = 10_000           # items that failed that a task remembers
DEADLOCK_INTERVAL = FLUSH_INTERVAL = 1
TROUBLES_INTERVAL = 5
TROUBLES_TASK = "troubles"
UNFINISHED_INTERVAL = 5         # seconds; how long a message file keeps its staged name beside its own
PURGE_INTERVAL = 60
CLOCK_INTERVAL = 60
MAILBOXES_INTERVAL = 600
EXPIRE_INTERVAL = 30        # between two looks at the clock
NOTICES_INTERVAL = 300
REPAIR_INTERVAL = 2
PARTITIONS_INTERVAL = 5
RECEIVERS_INTERVAL = 2
USERS_INTERVAL = 600
SWEEP_INTERVAL = 600
SWEEP_OUTGOING = 3600
SCRIPTS_INTERVAL = 1        # seconds until scripts run for what an IMAP command did
DUPLICATES_INTERVAL = 600
VOLUME_INTERVAL = 5
SNAPSHOT_INTERVAL = 60      # seconds between two looks whether a snapshot is due
LOG_VOLUME = 256 << 20      # octets of log after which there is a checkpoint early: recovery reads some 150 MB a second
SWEEP_AGE = 3600            # seconds since a file in `staging/` was written to before it counts as left over


@frozen
class Task:
    """Something to do every `interval` seconds: `work` for each of `items`.

    An item is hashable. `work` gives how much that was (messages, mailboxes), which the rate limit counts if `limited`;
    it may raise anything. Both run in a thread; `items` may be a generator, but must keep no transaction open.
    """

    name: str
    interval: float
    items: Callable[[Store], Iterable[Any]]
    work: Callable[[Store, Any], int]
    limited: bool = False
    by_age: bool = False        # it removes what is old: not while the clock is not believed (`clockrecord`)


@frozen
class Status:
    """What a task has done so far. Times are Unix times, 0 for never; `bad`: items that failed when last tried."""

    name: str
    running: bool
    rounds: int                 # that have been completed
    began: float                # the last round
    took: float                 # seconds, the last completed round
    done: int                   # items, in all rounds
    failures: int               # in all rounds
    bad: int
    interval: float             # seconds from the end of a round to the next one, or up to one less
    completed: float            # when the last completed round began


@define(eq=False)
class Round:
    """The rounds of one task through its items, one after the other. Used by one thread at a time."""

    task: Task
    store: Store
    _queue: Iterator[Hashable] | None = field(default=None, init=False)
    _last: list[Hashable] = field(factory=list, init=False)         # come after all others
    _bad: dict[Hashable, str] = field(factory=dict, init=False)     # what failed when last tried, and how
    _found: set[Hashable] = field(factory=set, init=False)          # of these, what this round has come upon
    _began: float = field(default=0.0, init=False)
    _took: float = field(default=0.0, init=False)
    _completed: float = field(default=0.0, init=False)
    _rounds: int = field(default=0, init=False)
    _done: int = field(default=0, init=False)
    _failures: int = field(default=0, init=False)

    def step(self, stopping: Callable[[], bool] = lambda: False) -> float | None:
        """Work for a slice; the seconds to wait before the next, or None when the round is over, or `stopping` is true.

        The first step after that begins a new round.
        """
        start, amount = time.monotonic(), 0
        if self.task.by_age and clockrecord.holds_back(self.store.root):
            if self._queue is not None:
                self._end()
            return None
        if self._queue is None:
            self._queue, self._began = self._items(), time.time()
        while not stopping():
            try:
                item = next(self._queue)
            except StopIteration:
                self._end()
                return None
            amount += self._try(item)
            spent = time.monotonic() - start
            rate = self.store.settings.housekeeping_rate if self.task.limited else 0
            if spent >= SLICE or rate and amount > rate * spent + rate * SLICE:
                return max(0.0, amount / rate - spent) if rate else 0.0
        return None

    def status(self) -> Status:
        """How it stands."""
        return Status(self.task.name, self._queue is not None, self._rounds, self._began, self._took, self._done,
                      self._failures, len(self._bad), self.task.interval, self._completed)

    def _items(self) -> Iterator[Hashable]:
        """Those that have not failed, and then the others."""
        self._last, self._found = [], set()
        try:
            for item in self.task.items(self.store):
                if item in self._bad:
                    self._found.add(item)
                    self._last.append(item)
                else:
                    yield item
            self._good(None)
        except Exception as error:
            self._fail(None, error)
        yield from self._last

    def _try(self, item: Hashable) -> int:
        try:
            amount = self.task.work(self.store, item)
        except Exception as error:
            self._fail(item, error)
            return 1
        self._done += 1
        self._good(item)
        return amount

    def _good(self, item: Hashable) -> None:
        if self._bad.pop(item, None) is not None:
            log.info("housekeeping: %s: %s is in order again", self.task.name, _shown(item))

    def _fail(self, item: Hashable, error: Exception) -> None:
        self._failures += 1
        self._found.add(item)
        if is_standby_away(error):              # so do all others; when it is back they are tried in their order
            TROUBLES.met(AWAY, until_over=True, level=logging.WARNING, remind=False)
            return
        text = f"{type(error).__name__}: {error}"
        where = f"housekeeping: {self.task.name}: {_shown(item)} failed"
        if is_no_room(error):                   # which fails them all
            TROUBLES.met(NO_ROOM, f"{where}: {error}")
        elif self._bad.get(item) != text:       # what disks and databases say has no need of our code
            log.error("%s: %s", where, text, exc_info=None if isinstance(error, NO_BUG) else error)
        if len(self._bad) < MOST_BAD:
            self._bad[item] = text

    def _end(self) -> None:
        self._queue = None
        self._rounds += 1
        self._took, self._completed = time.time() - self._began, self._began
        for item in self._bad.keys() - self._found:         # it is no longer there
            del self._bad[item]
        log.debug("housekeeping: %s took %.3f s: %d items so far, %d failures, %d bad", self.task.name, self._took,
                  self._done, self._failures, len(self._bad))


def _shown(item: Hashable) -> str:
    return "the list of its items" if item is None else " ".join(
        each.hex() if isinstance(each, bytes) else str(each) for each in (item if isinstance(item, tuple) else (item,)))


# The tasks

def every_process(store: Store) -> list[Task]:
    """What each process that serves clients does."""
    return [Task(TROUBLES_TASK, TROUBLES_INTERVAL, lambda store: ("log",), _look_at_troubles),
            Task("settle", UNFINISHED_INTERVAL, _partitions, _finish),
            Task("copies", UNFINISHED_INTERVAL, copymessages.left, copymessages.undo_left),
            Task("renames", UNFINISHED_INTERVAL, namespace.left, namespace.undo_left),
            Task("staging", SWEEP_INTERVAL, _partitions, _sweep),
            Task("store.idx", writing.INTERVAL, _partitions, _write_changed),
            Task("domains", domainlimits.FRESH, _domains, _refresh_domains),
            Task("partitions", PARTITIONS_INTERVAL, volumes.added, _join),
            Task("receivers", RECEIVERS_INTERVAL, lambda store: ("filters",), _look_at_receivers),
            Task("repair", REPAIR_INTERVAL, _damaged, _repair)]


def one_process(store: Store) -> list[Task]:
    """What one process, the keeper, does for the whole store (`tools.server.process.housekeeper`)."""
    flush = [Task("flush", FLUSH_INTERVAL, environments, _flush)] if store.settings.sync != "none" else []
    fair = [Task("fair shares", store.settings.quota_fair_interval, _partitions, accounting.reckon, limited=True)
            ] if store.settings.quota_charge == "fair" else []
    return [*flush, *fair,
            Task("clock", CLOCK_INTERVAL, lambda store: (clockrecord.FILE,), partial(_look_at_clock, ClockWatch())),
            Task("deadlocks", DEADLOCK_INTERVAL, environments, _detect_deadlocks),
            Task("checkpoint", store.settings.checkpoint_interval, environments, _checkpoint),
            Task("early checkpoint", VOLUME_INTERVAL, environments, _checkpoint_early),
            Task("logs", store.settings.checkpoint_interval, _with_logs, _drop_logs),
            Task("pending", interrupted.PENDING_SECONDS, interrupted.pending, interrupted.finish),
            Task("expunged", PURGE_INTERVAL, _expunged, _forget_expunged, limited=True, by_age=True),
            Task("purge", PURGE_INTERVAL, (files := _Purge()).items, files.work, limited=True, by_age=True),
            Task("uncounted", MAILBOXES_INTERVAL, _uncounted, _count),
            Task("mailboxes", MAILBOXES_INTERVAL, deletion.due_mailboxes, deletion.purge_mailbox, limited=True,
                 by_age=True),
            Task("expire", EXPIRE_INTERVAL, (rounds := Rounds()).items, rounds.work, limited=True, by_age=True),
            Task("arrivals", DUPLICATES_INTERVAL, _duplicates, _forget_duplicates, limited=True),
            Task("scripts", SCRIPTS_INTERVAL, eventscripts.waiting, eventscripts.run_some),
            Task("outgoing", SWEEP_OUTGOING, lambda store: ("files",), _sweep_outgoing, limited=True, by_age=True),
            Task("users", USERS_INTERVAL, lifecycle.due, _forget_user, by_age=True),
            Task("forgotten", USERS_INTERVAL, restorable.due, restorable.drop, by_age=True),
            Task("notices", NOTICES_INTERVAL, notices.due, notices.send, limited=True),
            Task("octets", keptoctets.INTERVAL, (counting := keptoctets.Counting()).items, counting.work),
            Task("snapshots", SNAPSHOT_INTERVAL, retention.due, retention.make_due),
            Task("cache", writing.INTERVAL, knownfiles.uncached, knownfiles.cache_one, limited=True),
            Task("reconcile", writing.INTERVAL, userareacheck.steps, userareacheck.take_step, limited=True)]


def _look_at_clock(watch: ClockWatch, store: Store, _: str) -> int:
    watch.look(store.root)
    return 1


def _look_at_troubles(store: Store, _: str) -> int:
    """Tell the log how what goes wrong for a while stands."""
    if not store.write_freeze.second.refuses:
        TROUBLES.over(AWAY)
    TROUBLES.look()
    return 1


def _partitions(store: Store) -> Iterable[str]:
    return tuple(store.partitions)


def _finish(store: Store, partition: str) -> int:
    """Take the staged names of placed messages away. Every process that delivers does this for its own."""
    return store.partitions[partition].files.drop_staged_names()


def _sweep(store: Store, partition: str) -> int:
    """Take up what this process has left in `staging/`; that of others is taken up when the store is next recovered."""
    return store.partitions[partition].sweep(SWEEP_AGE)


def _sweep_outgoing(store: Store, _what: str) -> int:
    """Large messages that have left, or that no transaction wants."""
    outboxes = [store.outbox, *(partition.outbox for partition in store.partitions.values())]
    return outgoingfiles.sweep(store.root, lambda: outgoingmail.named_files(store.recorder, outboxes))


def _write_changed(store: Store, partition: str) -> int:
    """Each process writes the `store.idx` of the mailboxes that it has changed."""
    return writing.write_round(store, store.partitions[partition])


def _domains(store: Store) -> Iterable[str]:
    return ("limits",)


def _refresh_domains(store: Store, _: str) -> int:
    """Learn of new limits of domains, and sum up those that mail comes to."""
    store.domains.refresh()
    return len(store.domains.limited)


def _with_logs(store: Store) -> list[str]:
    """The environments whose log is that of their volume."""
    return [name for name, env in environments(store).items()
            if all(env is not each.env or not each.read_only for each in store.partitions.values())]


def _look_at_receivers(store: Store, _: str) -> int:
    """Hear of receivers of events that are new, and of those that are full."""
    return int(store.recorder.look())


def _damaged(store: Store) -> Iterator[tuple[str, MailboxId]]:
    """The mailboxes in which this process has met damage, or which are behind their `store.idx`."""
    for name, partition in store.writable.items():
        for mailbox in sorted(partition.damaged | partition.outdated):
            yield name, mailbox


def _repair(store: Store, item: tuple[str, MailboxId]) -> int:
    partition, mailbox = store.partitions[item[0]], item[1]
    if mailbox in partition.outdated:
        return newerfiles.take_in(store, partition, mailbox)
    found, done = store.known(mailbox), []
    if found is not None and found[0].partition == partition.name and partition.any_state(mailbox) is None:
        done += lostfigures.restore(store, partition, *found) + count_what_is_due(partition)
    done += idxfiles.follow_files(store, partition, [mailbox])
    repaired = repair_damaged(store, partition, mailbox)
    for correction in done + recount_some(store, partition, [mailbox])[0]:
        log.warning("repaired %s: %s", correction.where, correction.what)
    return int(repaired)


def _uncounted(store: Store) -> list[str]:
    """The partitions on which a command put figures of mailboxes back, and was killed before it counted what hangs on
    these; or is about to count it."""
    return [name for name, partition in store.writable.items() if is_uncounted(partition)]


def _count(store: Store, name: str) -> int:
    done = count_what_is_due(store.partitions[name])
    for correction in done:
        log.warning("counted again: %s: %s", correction.where, correction.what)
    return len(done)


def _flush(store: Store, environment: str) -> int:
    """Have on disk what was acknowledged without it (setting `sync`), and on record how far the log goes: of what the
    kernel syncs that is known only when more has been written (`LogFlush.unsynced`)."""
    env = environments(store)[environment]
    flushed = env.flush_new()
    env.mark_end()
    return int(flushed)


def _detect_deadlocks(store: Store, environment: str) -> int:
    if ended := environments(store)[environment].detect_deadlocks():
        log.info("%s: %d waits for a lock were ended", environment, ended)
    return 1


def _checkpoint(store: Store, environment: str) -> int:
    """Write changed pages to the tables, so that recovery is short and old logs can go."""
    environments(store)[environment].checkpoint()
    return 1


def _checkpoint_early(store: Store, environment: str) -> int:
    environments(store)[environment].checkpoint(LOG_VOLUME)
    return 1


def _drop_logs(store: Store, environment: str) -> int:
    """Remove the logs that recovery needs no more, once they are archived if that is wanted."""
    archive = store.settings.log_archive
    return environments(store)[environment].drop_logs(archive / environment if archive is not None else None,
                                                      2 * store.settings.snapshot_logs)


def _join(store: Store, partition: str) -> int:
    """Every process must know of a partition that was added, to keep house on it."""
    store.partition(partition)
    return 1


def _forget_user(store: Store, user: str) -> int:
    restorable.forget_user(store, user)
    log.info("%s, who was removed, is forgotten", user)
    return 1


def _expunged(store: Store) -> Iterator[tuple[str, Expunges]]:
    """What can be restored no more."""
    now = time.time()
    for name, partition in store.writable.items():
        yield from ((name, some) for some in expunges(partition, last_due(partition, now)))
        partition.flush()


def _forget_expunged(store: Store, item: tuple[str, Expunges]) -> int:
    return forget(store.partitions[item[0]], item[1])


@define(eq=False)
class _Purge:
    """Removes message files that have been in no mailbox for longer than the purge delay, many at a time. One that
    cannot be removed becomes an item of its own, which is what is reported."""

    _failed: list[Due] = field(factory=list, init=False)

    def items(self, store: Store) -> Iterator[tuple[str, Batch]]:
        """Batches that are due."""
        for name, partition in store.writable.items():
            for batch in due(partition):
                self._failed.clear()
                yield name, batch
                yield from [(name, Batch((each,))) for each in self._failed]
            partition.flush()

    def work(self, store: Store, item: tuple[str, Batch]) -> int:
        """Raises OSError."""
        name, batch = item
        purged = purge_batch(store.partitions[name], batch.files)
        if len(batch.files) == 1:
            for error in purged.failed.values():
                raise error
        self._failed = [each for each in batch.files if each[1] in purged.failed]
        return len(batch.files)


def _duplicates(store: Store) -> Iterator[tuple[str, bytes]]:
    """What is on record of messages that must not come twice."""
    for name, partition in store.writable.items():
        for start in partition.duplicates.starts():
            yield name, start


def _forget_duplicates(store: Store, item: tuple[str, bytes]) -> int:
    """Those that have had their time."""
    partition = store.partitions[item[0]]
    if over := partition.duplicates.over(item[1]):
        transact(partition.env, lambda txn: partition.duplicates.forget(over, txn))
    return max(1, len(over))
