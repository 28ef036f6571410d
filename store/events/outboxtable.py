"""The outbox: what is to leave the store, a row for each receiver, until it has left.

`outbox.db`: b"w", the receiver's name, a zero octet, when, which -> what is waiting, in order; b"d" alike -> dead
letters, which the receiver does not take, or that became too old; b"l" alike -> what is put off, `when` is until then;
b"c" -> the clock. A row is JSON: its `kind` (event, mail), when it was written (`at`, Unix time), `mailbox` (an id, or
0), `tries`, `said` (what the receiver said last) and the `body`, which is what is sent.

When is the clock of the machine, which never goes back, and which the first process to open the environment sets beyond
all that is waiting. A transaction writes its rows last, when it has its mailboxes locked, so those of a mailbox are in
the order of its changes, whichever process made them. The rows of a receiver are read from the first on, and taken away
when they have left; a row that is committed later is still found, whatever its place.
"""

import itertools
import json
import os
import struct
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from itertools import islice
from typing import Any, cast

from attrs import define, evolve, field, frozen

from mboxlist.engine.btree import Table, Txn
from mboxlist.engine.kv import Env
from mboxlist.engine.transact import transact
from store.events.eventvalues import EVENT, GAP

_CLOCK = b"c"
_TIME = struct.Struct(">q")
_PLACE = struct.Struct(">Q4sI")         # when, which process, which row of it
WAITING, DEAD, LATER = b"w", b"d", b"l"
STATES = (WAITING, LATER, DEAD)
READ = 200                  # rows that are in memory when all are read
_ROWS = 0xFFFFFFFF
TAKEN = 1000                # rows that one transaction takes from another outbox


@frozen
class Parcel:
    """A row: something to be sent to `receiver`."""

    key: bytes
    receiver: str
    dead: bool
    kind: str
    at: float
    mailbox: int
    tries: int
    said: str
    body: Mapping[str, Any]
    octets: int = 0             # of the row, as it was read
    readable: bool = True       # else it says in its place that an event is missing

    @property
    def id(self) -> str:
        """What a receiver can know it by when it comes again; of one event to several receivers it is the same."""
        return self.key[-_PLACE.size:].hex()

    @property
    def order(self) -> int:
        """When, by the clock of its environment: nanoseconds."""
        return int(_PLACE.unpack(self.key[-_PLACE.size:])[0])

    def to_bytes(self) -> bytes:
        """The stored form."""
        return json.dumps({"kind": self.kind, "at": self.at, "mailbox": self.mailbox, "tries": self.tries,
                           "said": self.said, "body": self.body}, separators=(",", ":")).encode()


@define(eq=False)
class OutboxTable:
    """The table of an environment."""

    table: Table
    fresh: bool = field(default=False, init=False)  # whether it was new, or lost, when `set_clock` came
    ahead: int = field(default=0, init=False)       # nanoseconds that the outbox's clock is before the machine's
    _process: bytes = field(factory=lambda: os.urandom(4), init=False)
    _rows: Iterator[int] = field(factory=itertools.count, init=False)

    def set_clock(self, txn: Txn, least: int = 0) -> None:
        """For whoever opens the environment first. `least`: so much ahead are those of the others."""
        last = max((parcel_order(key) for state in (WAITING, DEAD) for key in self._last(state)), default=0)
        self.fresh = self.fresh or self.table.get(_CLOCK, txn) is None
        self.ahead = max(max(time.time_ns(), last + 1) - time.monotonic_ns(), least)
        self.table.put(_CLOCK, _TIME.pack(self.ahead), txn)

    def read_clock(self) -> None:
        """For the others."""
        data = self.table.get(_CLOCK)
        self.ahead = time.time_ns() - time.monotonic_ns() if data is None else _TIME.unpack(data)[0]

    def _last(self, state: bytes) -> Iterator[bytes]:
        """The last key of each receiver."""
        end = bytes((state[0] + 1,))
        while True:
            with closing(cast("Any", self.table.scan_back(state, end))) as rows:
                row = next(rows, None)
            if row is None:
                return
            yield row[0]
            end = row[0][:-_PLACE.size]

    @property
    def now(self) -> int:
        """By its clock; what comes later has a place behind it."""
        return self.ahead + time.monotonic_ns()

    def new_place(self) -> bytes:
        """Behind all that has a place; for what several receivers get it is one."""
        return _PLACE.pack(self.now, self._process, next(self._rows) & _ROWS)

    def add(self, receivers: Iterable[str], kind: str, body: Mapping[str, Any], mailbox: int, txn: Txn) -> list[bytes]:
        """Have it sent to each of these; the keys of its rows."""
        place, at = self.new_place(), time.time()
        keys = [_prefix(WAITING, name) + place for name in sorted(receivers)]
        for name, key in zip(sorted(receivers), keys, strict=True):
            self.table.put(key, Parcel(key, name, False, kind, at, mailbox, 0, "", body).to_bytes(), txn)
        return keys

    def some(self, name: str, most: int, state: bytes = WAITING, *, after: bytes = b"") -> list[Parcel]:
        """The first of a receiver in that state, behind that key. Nothing stays locked."""
        prefix = _prefix(state, name)
        scan = self.table.scan(after + b"\0" if after else prefix, prefix[:-1] + b"\1")
        with closing(cast("Any", scan)) as rows:
            return [_parcel(key, data) for key, data in islice(rows, most)]

    def every(self, name: str) -> Iterator[Parcel]:
        """All of a receiver; some of them are in memory at a time."""
        return (parcel for state in STATES for parcel in self.each(name, state, READ))

    def each(self, name: str, state: bytes, at_a_time: int) -> Iterator[Parcel]:
        """All of a receiver in that state; so many of them are in memory at a time."""
        after = b""
        while some := self.some(name, at_a_time, state, after=after):
            yield from some
            after = some[-1].key

    def find(self, key: bytes, txn: Txn) -> Parcel | None:
        """The row of that key, if it is there; locked."""
        data = self.table.get_to_change(key, txn)
        return None if data is None else _parcel(key, data)

    def remove(self, parcels: Iterable[Parcel], txn: Txn) -> int:
        """They have left, or nobody wants them; how many were there."""
        return sum(self.table.delete(parcel.key, txn) for parcel in parcels)

    def mend(self, parcel: Parcel, txn: Txn) -> bool:
        """In the place of a row that cannot be read there is one that says so; whether it was there."""
        now = self.find(parcel.key, txn)
        if now is None or now.readable:
            return False
        self.table.put(now.key, now.to_bytes(), txn)
        return True

    def bury(self, parcel: Parcel, tries: int, said: str, txn: Txn) -> None:
        """It is a dead letter, if it is still waiting."""
        now = self.find(parcel.key, txn)
        if now is not None and not now.dead:
            self.table.delete(parcel.key, txn)
            key = DEAD + parcel.key[1:]
            self.table.put(key, evolve(now, tries=max(tries, now.tries + 1), said=said).to_bytes(), txn)

    def revive(self, parcel: Parcel, txn: Txn) -> bool:
        """A dead letter is sent once more, behind all that waits; whether it was there."""
        now = self.find(parcel.key, txn)
        if now is None or not now.dead:
            return False
        self.table.delete(parcel.key, txn)
        key = _prefix(WAITING, now.receiver) + self.new_place()
        body = {**now.body, "vnd.onecopy.again": now.id} if now.kind == EVENT else now.body
        self.table.put(key, evolve(now, at=time.time(), tries=0, said="", body=body).to_bytes(), txn)
        return True

    def put_off(self, parcel: Parcel, until: float, said: str, txn: Txn) -> None:
        """It is sent after that Unix time, if it is still waiting; what waits behind it goes on."""
        now = self.find(parcel.key, txn)
        if now is not None and not now.dead:
            self.table.delete(parcel.key, txn)
            key = _prefix(LATER, now.receiver) + _PLACE.pack(int(until * 1e9), self._process, next(self._rows) & _ROWS)
            self.table.put(key, evolve(now, tries=now.tries + 1, said=said).to_bytes(), txn)

    def due(self, name: str, most: int) -> list[Parcel]:
        """What was put off until now."""
        return [parcel for parcel in self.some(name, most, LATER) if parcel.order <= time.time_ns()]

    def wake(self, parcels: Iterable[Parcel], txn: Txn) -> None:
        """What was put off waits again, behind all that does."""
        for parcel in parcels:
            if self.table.delete(parcel.key, txn):
                self.table.put(_prefix(WAITING, parcel.receiver) + self.new_place(), parcel.to_bytes(), txn)

    def receivers(self) -> list[str]:
        """Those for whom there is anything."""
        return sorted({_name(key) for state in STATES for key in self._last(state)})

    def counted(self, name: str, most: int, state: bytes = WAITING) -> int:
        """How many of a receiver are in that state: counted up to `most`."""
        prefix = _prefix(state, name)
        with closing(cast("Any", self.table.scan(prefix, prefix[:-1] + b"\1"))) as rows:
            return sum(1 for _ in islice(rows, most))

    def take(self, other: "OutboxTable", env: Env) -> None:
        """Have what is in another one too; `env` is that of this one. On disk when this returns."""
        with closing(cast("Any", other.table.scan(DEAD))) as rows:      # behind the clock
            while some := list(islice(rows, TAKEN)):
                transact(env, lambda txn, some=some: [self.table.put(key, data, txn)       # type: ignore[misc]
                                                      for key, data in some])
                env.flush()


def parcel_order(key: bytes) -> int:
    """The time in the key of a row."""
    return int(_PLACE.unpack(key[-_PLACE.size:])[0])


def _prefix(state: bytes, name: str) -> bytes:
    return state + name.encode() + b"\0"


def _name(key: bytes) -> str:
    return key[1:-_PLACE.size - 1].decode()


def _parcel(key: bytes, data: bytes) -> Parcel:
    """The row; one that cannot be read says in its place that an event is missing, and so it leaves as others do."""
    try:
        said = json.loads(data)
        return Parcel(key, _name(key), key[:1] == DEAD, str(said["kind"]), float(said["at"]), int(said["mailbox"]),
                      int(said["tries"]), str(said["said"]), {**said["body"]}, len(data))
    except (ValueError, KeyError, TypeError):
        return Parcel(key, _name(key), key[:1] == DEAD, EVENT, parcel_order(key) / 1e9, 0, 0, "", {
            "event": GAP, "vnd.onecopy.reason": "a row of the outbox could not be read"}, len(data), readable=False)
