"""One receiver: what waits for it is read, sent, and taken away; again and again, whatever becomes of it.

What happens is gathered for a time (`Settings.gather`), so that a look, a flush of the log and an answer of the
receiver are shared by all of it. A batch that is full goes at once.

When the receiver is down the batch is tried again, after a time that doubles up to a longest one, with some chance in
it so that many servers do not come back at once. When it refuses a batch, its events are sent one by one, and one that
it refuses again and again becomes a dead letter, so that the others go on; so does what has become too old while the
receiver was down. Dead letters are kept, and sent again by `onecopy outbox retry`.
"""

import logging
import random
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any

from attrs import define, field
from twisted.internet.defer import Deferred, ensureDeferred

from mboxlist.engine.btree import Txn
from mboxlist.engine.kv import Env
from mboxlist.engine.transact import transact
from store.events.outboxtable import DEAD, LATER, WAITING, OutboxTable, Parcel
from store.offload import Threads
from tools.outbox.destination import Destination, Down, NotNow, Refused
from tools.outbox.outboxsettings import Settings

log = logging.getLogger(__name__)

COUNT_INTERVAL = 10.0       # seconds between two looks how much waits,
COUNT_SHARE = 50            # or so many times as long as a look takes
COUNTED_DEAD = 10_000       # dead letters, at most
LOOKED_AT = 1000            # mails that were put off, at most, to find the oldest
WOKEN = 100                 # rows that were put off and wait again, in one transaction,
REMOVED = 100               # or that have left: whoever writes rows may wait for the page
BATCH_OCTETS = 1 << 20      # of rows that are sent together, unless one alone is larger
_BY_KEY, _BY_ROW = attrgetter("key"), attrgetter("row")

Outboxes = Callable[[], Mapping[str, tuple[Env, OutboxTable]]]      # of all environments that are there, by name


@define(eq=False)
class Sending:
    """See the module's text. `reactor` is Twisted's, or a test's clock; `chance` gives numbers between 0 and 1."""

    name: str
    settings: Settings
    destination: Destination
    outboxes: Outboxes
    threads: Threads
    reactor: Any
    chance: Callable[[], float] = random.random
    sent: int = field(default=0, init=False)
    buried: int = field(default=0, init=False)
    failures: int = field(default=0, init=False)            # one after the other
    said: str = field(default="", init=False)               # why the last attempt failed
    down_since: float = field(default=0.0, init=False)      # Unix time; 0: it is not down
    next_try: float = field(default=0.0, init=False)        # Unix time
    waiting: int = field(default=0, init=False)             # how many, when they were last counted
    dead: int = field(default=0, init=False)                # how many dead letters were kept then
    oldest: float = field(default=0.0, init=False)          # Unix time of the first that waits; 0: none
    _put_off_since: float = field(default=0.0, init=False)  # the same of mail that was put off
    _refused: dict[bytes, int] = field(factory=dict, init=False)
    _one_by_one: int = field(default=0, init=False)         # of so many events
    _call: Any = field(default=None, init=False)
    _under_way: Any = field(default=None, init=False)       # the batch that the receiver has been given last
    _stopped: bool = field(default=False, init=False)
    _next_count: float = field(default=0.0, init=False)
    _more: bool = field(default=False, init=False)          # whether more waits than the batch that was read
    _places: dict[bytes, tuple[Env, OutboxTable]] = field(factory=dict, init=False)      # where its rows are

    def start(self) -> None:
        """Begin."""
        self._later(0.0)

    def stop(self) -> None:
        """Begin nothing more, and wait for no receiver: what is under way is sent again by the next start."""
        self._stopped = True
        if self._call is not None and self._call.active():
            self._call.cancel()
        if self._under_way is not None:
            self._under_way.cancel()
        try:
            self.destination.close()
        except Exception as error:      # of a library: the others are to be let go too, and the server ends
            log.error("outbox %s: it cannot be let go: %s: %s", self.name, type(error).__name__, error)

    def status(self) -> dict[str, Any]:
        """How it stands."""
        return {"receiver": self.name, "to": self.settings.kind, "gets": self.settings.gets,
                "state": "down" if self.down_since else "up",
                "down_since": self.down_since, "failures": self.failures, "said": self.said, "next_try": self.next_try,
                "sent": self.sent, "dead": self.buried, "waiting": self.waiting, "kept_dead": self.dead,
                "waited": max(0.0, round(time.time() - self.oldest, 1)) if self.oldest else 0.0}

    def _later(self, seconds: float) -> None:
        if not self._stopped:
            self._call = self.reactor.callLater(seconds, self._begin)

    def _begin(self) -> None:
        done = ensureDeferred(self.step())
        done.addErrback(self._failed)
        done.addCallback(self._later)

    def _failed(self, failure: Any) -> float:
        """Nothing that a receiver does: a database, or a mistake of ours."""
        log.error("outbox %s: %s", self.name, failure.getTraceback())
        return self._put_off(str(failure.value))

    async def step(self) -> float:
        """Send a batch, if there is one; the seconds until the next."""
        most = 1 if self._one_by_one else self.settings.batch
        batch = await self.threads.run("outbox", partial(self._fetch, most))
        if self._stopped:
            return self.settings.gather
        if not batch:
            self._worked()
            return self.settings.gather
        try:
            await self._within(self.destination.send(batch))
        except Down as error:           # what a stop cuts off says nothing of the receiver
            return self.settings.gather if self._stopped else await self._is_down(batch, str(error))
        except Refused as error:
            return await self._is_refused(batch, str(error), final=error.final)
        except NotNow as error:
            return await self._is_put_off(batch[0], str(error))
        await self.threads.run("outbox", partial(self._remove, batch))
        self.sent += len(batch)
        self._one_by_one = max(0, self._one_by_one - 1)
        if self._refused:
            for parcel in batch:
                self._refused.pop(parcel.key, None)
        self._worked()
        pause = 0.0 if self._more else self.settings.gather
        return max(pause, len(batch) / self.settings.rate) if self.settings.rate else pause

    async def _within(self, sending: Any) -> None:
        """Raises Down when it takes too long."""
        done: Deferred[None] = ensureDeferred(sending)
        self._under_way = done
        late = self.reactor.callLater(self.settings.timeout, done.cancel)
        try:
            await done
        except Exception as error:
            if not late.active():           # whatever the destination makes of being cancelled
                raise Down("no answer in time") from error
            if isinstance(error, Down | Refused | NotNow):
                raise
            raise Down(f"{type(error).__name__}: {error}") from error
        finally:
            if late.active():
                late.cancel()

    def _worked(self) -> None:
        if self.down_since:
            log.info("outbox %s: the receiver takes %s again", self.name, self.settings.gets)
        self.failures, self.down_since, self.next_try, self.said = 0, 0.0, 0.0, ""

    def _put_off(self, said: str) -> float:
        if not self.down_since:
            self.down_since = time.time()
            log.warning("outbox %s: %s: what waits for it is kept, and sent later", self.name, said)
        self.said = said
        wait = self._delay(self.failures)
        self.failures += 1
        self.next_try = time.time() + wait
        return wait

    def _delay(self, failures: int) -> float:
        """Seconds until the next attempt, after so many that failed before the last."""
        seconds = min(self.settings.retry_longest, self.settings.retry * 2 ** min(failures, 30))
        return float(seconds * (0.5 + self.chance() / 2))

    async def _is_down(self, batch: Sequence[Parcel], said: str) -> float:
        oldest = time.time() - self.settings.give_up
        if old := [parcel for parcel in batch if parcel.at < oldest]:
            await self._bury(old, f"too old; {said}")
        return self._put_off(said)

    async def _is_put_off(self, parcel: Parcel, said: str) -> float:
        if parcel.at < time.time() - self.settings.give_up:
            await self._bury([parcel], f"too old; {said}")
        else:
            log.warning("outbox %s: %s is put off: %s", self.name, parcel.id, said)
            until = time.time() + self._delay(parcel.tries)
            await self.threads.run("outbox", partial(self._change, parcel, lambda outbox, txn: outbox.put_off(
                parcel, until, said, txn)))
        self._worked()
        return 0.0

    async def _is_refused(self, batch: Sequence[Parcel], said: str, *, final: bool) -> float:
        if len(batch) > 1:
            self._one_by_one = len(batch)
            return self._put_off(said)
        parcel = batch[0]
        tries = self._refused[parcel.key] = self._refused.get(parcel.key, 0) + 1
        if tries < self.settings.attempts and not final:
            return self._put_off(said)
        await self._bury(batch, said)
        self._one_by_one = max(0, self._one_by_one - 1)
        self._worked()
        return 0.0

    async def _bury(self, parcels: Sequence[Parcel], said: str) -> None:
        log.error("outbox %s: %d %s are dead letters: %s; the first is %s", self.name, len(parcels), self.settings.gets,
                  said, parcels[0].id)
        await self.threads.run("outbox", partial(self._bury_all, parcels, said))
        self.buried += len(parcels)

    # In threads

    def _fetch(self, most: int) -> list[Parcel]:
        """The first that wait, of all environments in the order of their clocks, and on disk. What came after the look
        began waits for the next: what is before it, in an environment that was read already, may not have been seen."""
        found: list[Parcel] = []
        if self.settings.is_relay:
            self._wake()
        self._places.clear()
        outboxes = [(env, outbox, outbox.now) for env, outbox in self.outboxes().values()]
        for env, outbox, now in outboxes:
            if some := outbox.some(self.name, most, until=now):
                env.flush()
                self._places |= dict.fromkeys(map(_BY_ROW, some), (env, outbox))
                found += some
        began = time.monotonic()
        if began >= self._next_count:
            self.waiting = sum(outbox.counted(self.name, self.settings.backlog + 1, state) for _, outbox, _ in outboxes
                               for state in (WAITING, LATER))
            self.dead = sum(outbox.counted(self.name, COUNTED_DEAD, DEAD) for _, outbox, _ in outboxes)
            self._put_off_since = min((each.at for _, outbox, _ in outboxes for each in outbox.some(
                self.name, LOOKED_AT, LATER)), default=0.0) if self.settings.is_relay else 0.0
            ended = time.monotonic()
            self._next_count = ended + max(COUNT_INTERVAL, COUNT_SHARE * (ended - began))
        found.sort(key=_BY_KEY)         # all are in the same state
        self.oldest = min(filter(None, (found[0].at if found else 0.0, self._put_off_since)), default=0.0)
        if found and found[0].together > most:
            env, outbox = self._places[found[0].row]
            transact(env, lambda txn: outbox.part(found[0].row, txn))
            return self._fetch(most)
        batch = _fitting(found, most)
        self._more = len(found) > len(batch) or len(found) >= most
        return batch

    def _wake(self) -> None:
        """What was put off until now waits again. Only mail is put off: events keep their order."""
        for env, outbox in self.outboxes().values():
            if due := outbox.due(self.name, WOKEN, self.settings.retry_longest):
                transact(env, lambda txn, outbox=outbox, due=due: outbox.wake(due, txn))     # type: ignore[misc]

    def _remove(self, batch: Sequence[Parcel]) -> None:
        """Not flushed: what comes again after a crash is sent again, as is what has got a row of its own meanwhile
        (`onecopy outbox discard --id`)."""
        for (env, outbox), of_one in groupby(dict.fromkeys(map(_BY_ROW, batch)), self._places.__getitem__):
            rows = list(of_one)
            for begin in range(0, len(rows), REMOVED):
                transact(env, partial(outbox.take_away, rows[begin:begin + REMOVED]))

    def _bury_all(self, parcels: Sequence[Parcel], said: str) -> None:
        for parcel in parcels:
            tries = self._refused.pop(parcel.key, self.failures + 1)
            self._change(parcel, lambda outbox, txn, parcel=parcel, tries=tries: outbox.bury(   # type: ignore[misc]
                parcel, tries, said, txn))

    def _change(self, parcel: Parcel, work: Callable[[OutboxTable, Txn], None]) -> None:
        """Do that where the row is."""
        env, outbox = self._places[parcel.row]
        transact(env, lambda txn: work(outbox, txn))


def _fitting(parcels: list[Parcel], most: int) -> list[Parcel]:
    """The first of them, at least one, that are sent together; none without those of its row."""
    if len(parcels) <= most and sum([len(parcel.document) for parcel in parcels]) <= BATCH_OCTETS:
        return parcels
    octets, fitting = 0, 0
    for at, parcel in enumerate(parcels):
        if at and parcel.row != parcels[at - 1].row:
            fitting = at
        octets += len(parcel.document)
        if at >= most or octets > BATCH_OCTETS and fitting:
            return parcels[:fitting]
    return parcels
