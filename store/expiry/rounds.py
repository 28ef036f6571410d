"""Expiry by the clock: which mailboxes are due, one after the other, and what the last round has done.

`run/expire.json` has where the round is, and the counters of its rules: who comes after a crash goes on from there.
(What a round has done in its last seconds before a crash is done, and not counted.)
"""

import json
import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from attrs import asdict, define, field

from mboxlist import privatefiles
from mboxlist.entry import MailboxEntry, MailboxId
from mboxlist.names import MailboxName, NameProblem
from store.errors import Problem, StoreError
from store.expiry.rulebook import Rulebook
from store.expiry.work import BATCH, Counter, Done, Plan, Reported, expire
from store.settings import schedule
from store.store import Store
from store.tables.slices import PartlyDone

log = logging.getLogger(__name__)

MAILBOXES_AT_A_TIME = 256   # that are looked up together
MOST = 2000                 # messages of one mailbox that go before others have their turn
SAVED_EVERY = 5.0           # seconds between two writings of the file
MAX_COUNTERS = 5000         # rules, and
MAX_PROBLEMS = 100          # kinds of trouble, that a round remembers; the rest of the rules is counted together
REST = "others"
SHOWN = 50                  # UIDs of one mailbox that a line of the log has
DAY = 86400


@define
class Record:
    """A round of expiry. Times are Unix times, 0 for never; `position` is the last mailbox that is done, "" when all
    are. `since`: when a schedule was first there, for a store in which there has been no round."""

    began: float = 0.0
    ended: float = 0.0
    since: float = 0.0
    position: str = ""
    mailboxes: int = 0
    counters: dict[str, Counter] = field(factory=dict)
    problems: dict[str, int] = field(factory=dict)

    def add(self, done: Done) -> None:
        for key, counter in done.counters.items():
            if key not in self.counters and len(self.counters) >= MAX_COUNTERS:
                key = REST
            self.counters[key] = self.counters.get(key, Counter()).plus(counter)
        for problem in done.problems:
            if problem in self.problems or len(self.problems) < MAX_PROBLEMS:
                self.problems[problem] = self.problems.get(problem, 0) + 1

    @property
    def running(self) -> bool:
        """Whether it is under way, or was cut off."""
        return self.began > self.ended


def path(store: Store) -> Path:
    return store.root / "run" / "expire.json"


def load(store: Store) -> Record:
    """The record of the last round; an empty one when there is none, or it cannot be read."""
    try:
        values = json.loads(privatefiles.read(path(store)))
        counters = {str(key): Counter(**counter) for key, counter in values.pop("counters").items()}
        return Record(**values, counters=counters)
    except FileNotFoundError:
        return Record()
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        log.warning("%s cannot be read: %s", path(store), error)
        return Record()


def save(store: Store, record: Record) -> None:
    """Write the record, whole; not synced: what is lost costs a look at mailboxes that are done."""
    with privatefiles.replacing(path(store), sync=False) as file:
        file.write(json.dumps(asdict(record)).encode())


def is_due(text: str, record: Record, now: float) -> bool:
    """Whether a round is to begin; also where the last one is to come, since the clock has been set back."""
    kind, seconds = schedule(text)
    last = max(record.began, record.since)
    if kind == "every":
        return not last <= now < last + seconds
    if kind == "at" and last > now:
        return True
    return kind == "at" and last < latest(seconds, now) <= now


def following(text: str, record: Record, now: float) -> float | None:
    """When the next round begins; None: never. One that is due begins now."""
    kind, seconds = schedule(text)
    if kind == "never":
        return None
    if record.running or (record.began or record.since) and is_due(text, record, now):
        return now
    if kind == "every":
        return (max(record.began, record.since) or now) + seconds
    then = time.localtime(now)
    return next(at for days in (0, 1, 2) if (at := time.mktime((
        then.tm_year, then.tm_mon, then.tm_mday + days, seconds // 3600, seconds % 3600 // 60, 0, 0, 0, -1))) > now)


def latest(seconds: int, now: float) -> float:
    """The last time up to now at which the local clock showed so many seconds after midnight."""
    then = time.localtime(now)
    for days in (0, 1):
        at = time.mktime((then.tm_year, then.tm_mon, then.tm_mday - days, seconds // 3600, seconds % 3600 // 60,
                          0, 0, 0, -1))
        if at <= now:
            return at
    return 0.0


def after(store: Store, position: str) -> Iterator[MailboxEntry]:
    """Every mailbox behind that one, in order of name. Nothing is locked while the caller has its turn."""
    try:
        name = MailboxName.parse(position) if position else None
    except NameProblem:
        name = None
    while some := store.mailboxes.some_after(name, MAILBOXES_AT_A_TIME):
        yield from some
        name = some[-1].name


@define(eq=False)
class Rounds:
    """Rounds of a process, for housekeeping. Used by one thread at a time. `most` messages of one mailbox go before
    others have their turn, `batch` in one transaction; the file is written every `saved_every` seconds."""

    clock: Callable[[], float] = time.time
    most: int = MOST
    batch: int = BATCH
    saved_every: float = SAVED_EVERY
    _record: Record = field(factory=Record, init=False)
    _book: Rulebook | None = field(default=None, init=False)
    _more: bool = field(default=False, init=False)
    _saved: float = field(default=0.0, init=False)

    def items(self, store: Store) -> Iterator[MailboxId]:
        """The mailboxes of a round that is due, or was cut off; none otherwise."""
        record, now = load(store), self.clock()
        if schedule(store.settings.expire_schedule)[0] == "never":
            return
        if not record.running or now - record.began > DAY:
            if not record.began and not record.since:
                record.since = now
                save(store, record)
            if not is_due(store.settings.expire_schedule, record, now):
                return
            record = Record(began=now, ended=record.ended, since=record.since)
            log.info("expire: a round begins")
        self._record, self._book = record, Rulebook(store)
        for complaint in self._book.complaints:
            log.error("expire: nothing is expired: %s", complaint)
        self._save(store)
        for entry in after(store, record.position):
            if not store.is_put_off(entry):
                yield entry.id
            while self._more:
                yield entry.id
            record.position = str(entry.name)
            record.mailboxes += 1
            if self.clock() - self._saved > self.saved_every:
                self._save(store)
        record.position, record.ended = "", max(self.clock(), record.began + 0.001)
        self._save(store)
        self._book = None
        log.info("expire: the round has ended: %d mailboxes, %d messages", record.mailboxes,
                 sum(counter.messages for counter in record.counters.values()))

    def work(self, store: Store, mailbox: MailboxId) -> int:
        """Do what is to be done in a mailbox, or a part of it; how many messages that was. Raises StoreError."""
        self._more = False
        entry = store.mailboxes.find_id(mailbox)
        if entry is None:
            return 1
        book = self._book or Rulebook(store)        # what failed comes last, when the round has ended
        try:
            done = expire(store, entry, book, Plan(self.clock(), most=self.most, batch=self.batch))
        except StoreError as error:
            if isinstance(error, PartlyDone):
                self._record.add(error.done[0])
            if error.problem is Problem.NO_MAILBOX:     # deleted just now
                return 1
            raise
        self._more = done.more
        self._record.add(done)
        _report(done)
        return max(1, done.messages)

    def _save(self, store: Store) -> None:
        """What the file says has been done is on disk."""
        for partition in store.partitions.values():
            partition.flush()
        save(store, self._record)
        self._saved = self.clock()


def _report(done: Done) -> None:
    for item in done.reported:
        log.info("expire: report: %s", shown(item))
    for problem in done.problems:
        log.warning("expire: %s", problem)


def shown(item: Reported) -> str:
    uids = " ".join(map(str, item.uids[:SHOWN])) + (" ..." if len(item.uids) > SHOWN else "")
    return f"{item.mailbox} uidvalidity {item.uidvalidity}: {len(item.uids)} messages by {item.rule}: {uids}"


def summary(record: Record) -> dict[str, Any]:
    """The record as commands print it: counters in order of their rules."""
    return {"mailboxes": record.mailboxes, "messages": sum(each.messages for each in record.counters.values()),
            "octets": sum(each.octets for each in record.counters.values()),
            "rules": [{"rule": key, **asdict(counter)} for key, counter in sorted(record.counters.items())],
            "problems": dict(record.problems)}
