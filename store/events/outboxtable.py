"""The outbox: what is to leave the store, a row for each receiver, until it has left.

`outbox.db`: b"w", the receiver's name, a zero octet, when, which -> what is waiting, in order; b"d" alike -> dead
letters, which the receiver does not take, or that became too old; b"l" alike -> what is put off, `when` is until then;
b"c" -> the clock. A row is JSON: its `kind` (event, mail), when it was written (`at`, Unix time), `mailbox` (an id, or
0), `tries`, `said` (what the receiver said last) and the `body`, which is what is sent. Events of records are written
packed (`packedevents`), all of a transaction in one row; one with which something is to be done alone gets its own.

When is the clock of the machine, which never goes back, and which the first process to open the environment sets beyond
all that is waiting. A transaction writes its rows last, when it has its mailboxes locked, so those of a mailbox are in
the order of its changes, whichever process made them. The rows of a receiver are read from the first on, and taken away
when they have left; a row that is committed later is still found, whatever its place.
"""

import json
import os
import struct
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import count, groupby, islice
from operator import attrgetter
from threading import Lock
from time import monotonic_ns
from typing import Any, cast

from attrs import define, evolve, field

from mboxlist.engine.btree import Table, Txn
from mboxlist.engine.kv import Env
from mboxlist.engine.transact import transact
from store.events.eventvalues import EVENT, GAP, to_json
from store.events.packedevents import FORM, MOST, PLACE, SOLE, alone_in_row, events_in, pack_row, shifted, sole, unpack

_CLOCK = b"c"
_TIME = struct.Struct(">q")
WAITING, DEAD, LATER = b"w", b"d", b"l"
STATES = (WAITING, LATER, DEAD)
READ = 200                  # rows that are in memory when all are read
_ROWS = 1 << 32
_pack_place = PLACE.pack
_PLACE = slice(-PLACE.size, None)       # of the key of a row
UNREADABLE = ValueError, KeyError, TypeError, IndexError, OverflowError, OSError, struct.error      # of a row
_ROW_KEY = attrgetter("row")
TAKEN = 1000                # rows that one transaction takes from another outbox


@define
class Parcel:
    """Something to be sent to `receiver`; `key` is that of its row, or would be if it had one of its own: `row` is the
    key of the row that it has with others, `together` of them."""

    key: bytes
    receiver: str
    dead: bool
    kind: str
    at: float
    mailbox: int
    tries: int
    said: str
    _body: Mapping[str, Any] | None
    readable: bool = True       # else it says in its place that an event is missing
    row: bytes = field()
    together: int = 1
    _document: str = ""         # the body of a packed event is in it

    @row.default
    def _row_of_its_own(self) -> bytes:
        return self.key

    @property
    def body(self) -> Mapping[str, Any]:
        """What is sent, but for the id."""
        if self._body is None:
            document = json.loads(self._document)
            del document["id"]
            self._body = document
        return self._body

    @property
    def document(self) -> str:
        """What is sent, in JSON: by its `id` a receiver can tell that it has it."""
        if not self._document:
            self._document = to_json({"id": self.id, **self.body})
        return self._document

    @property
    def id(self) -> str:
        """What a receiver can know it by when it comes again; of one event to several receivers it is the same."""
        return self.key[-PLACE.size:].hex()

    @property
    def order(self) -> int:
        """When, by the clock of its environment: nanoseconds."""
        return int(PLACE.unpack(self.key[-PLACE.size:])[0])

    def to_bytes(self) -> bytes:
        """The stored form."""
        return to_json({"kind": self.kind, "at": self.at, "mailbox": self.mailbox, "tries": self.tries,
                        "said": self.said, "body": self.body}).encode()


@define(eq=False)
class OutboxTable:
    """The table of an environment."""

    table: Table
    fresh: bool = field(default=False, init=False)  # whether it was new, or lost, when `set_clock` came
    ahead: int = field(default=0, init=False)       # nanoseconds that the outbox's clock is before the machine's
    _process: bytes = field(factory=lambda: os.urandom(4), init=False)
    pid: int = field(factory=os.getpid, init=False)
    _rows: Iterator[int] = field(factory=count, init=False)         # of this process that have a place
    _several: bytes = field(factory=lambda: os.urandom(4), init=False)      # the process, of places given together:
    _given: int = field(default=0, init=False)                              # so many
    _turns: Lock = field(factory=Lock, init=False)

    def set_clock(self, txn: Txn, least: int = 0) -> None:
        """For whoever opens the environment first. `least`: so much ahead are those of the others."""
        last = max((parcel_order(key) for state in (WAITING, DEAD) for key in self._last(state)), default=0)
        self.fresh = self.fresh or self.table.get(_CLOCK, txn) is None
        self.ahead = max(max(time.time_ns(), last + 1) - monotonic_ns(), least)
        self.table.put(_CLOCK, _TIME.pack(self.ahead), txn)

    def read_clock(self) -> None:
        """For the others."""
        data = self.table.get(_CLOCK)
        self.ahead = time.time_ns() - monotonic_ns() if data is None else _TIME.unpack(data)[0]

    def _last(self, state: bytes) -> Iterator[bytes]:
        """The last key of each receiver."""
        end = bytes((state[0] + 1,))
        while True:
            with closing(cast("Any", self.table.scan_back(state, end))) as rows:
                row = next(rows, None)
            if row is None:
                return
            yield row[0]
            end = row[0][:-PLACE.size]

    @property
    def now(self) -> int:
        """By its clock; what comes later has a place behind it."""
        return self.ahead + monotonic_ns()

    def new_place(self, most: int = 1) -> bytes:
        """Behind all that has a place, and the first of so many; for what several receivers get it is one."""
        if most == 1:               # `next` of a count is one step, whichever threads are here
            return PLACE.pack(self.ahead + monotonic_ns(), self._process, next(self._rows) % _ROWS)
        with self._turns:
            row = self._given if self._given + most <= _ROWS else 0
            self._given = row + most
        return PLACE.pack(self.ahead + monotonic_ns(), self._several, row)

    def add(self, receivers: Iterable[str], kind: str, body: Mapping[str, Any], mailbox: int, txn: Txn) -> list[bytes]:
        """Have it sent to each of these; the keys of its rows."""
        place, at = self.new_place(), time.time()
        keys = [_prefix(WAITING, name) + place for name in sorted(receivers)]
        for name, key in zip(sorted(receivers), keys, strict=True):
            self.table.put(key, Parcel(key, name, False, kind, at, mailbox, 0, "", body).to_bytes(), txn)
        return keys

    def add_events(self, rows: Mapping[tuple[str, int], Sequence[bytes]], places: int, server: bytes, txn: Txn) -> None:
        """Have these sent, packed: by receiver, and by how many thousands (`packedevents.MOST`) of the transaction's
        events come before. It has so many `places`."""
        first, at = self.new_place(places), time.time()
        for (name, thousands), events in rows.items():
            place = shifted(first, thousands * MOST) if thousands else first
            self.table.put(b"%b%b\0%b" % (WAITING, name.encode(), place), pack_row(events, at, self.pid, server), txn)

    def add_event(self, waiting: Iterable[bytes], row: bytes, txn: Txn) -> None:
        """Have the only event of a transaction sent to each of these (`Receiver.waiting`); `row`: see `sole_row`."""
        place = _pack_place(self.ahead + monotonic_ns(), self._process, next(self._rows) % _ROWS)       # `new_place`
        for prefix in waiting:
            self.table.put(prefix + place, row, txn)

    def some(self, name: str, most: int, state: bytes = WAITING, *, after: bytes = b"", until: int = 0) -> list[Parcel]:
        """The first of a receiver in that state, behind that row, and with `until` written until then by its clock: so
        many or some more, since none is without those of its row. Nothing stays locked."""
        dead, found = state == DEAD, list[Parcel]()
        for key, row in self._rows_of(name, most, state, after, until):
            alone = None
            if row.startswith(SOLE):
                try:
                    alone = sole(key[_PLACE], row)
                except UNREADABLE:
                    pass                # `_parcels` says so
            if alone:
                at, mailbox, text = alone
                found.append(Parcel(key, name, dead, EVENT, at, mailbox, 0, "", None, True, key, 1, text))
            else:
                found += _parcels(key, row, name, dead=dead)
        return found

    def _rows_of(self, name: str, most: int, state: bytes, after: bytes, until: int) -> list[tuple[bytes, bytes]]:
        """Their rows; a page of them stays locked only for as long as it takes to read it."""
        prefix, events = _prefix(state, name), 0
        found: list[tuple[bytes, bytes]] = []
        end = prefix + PLACE.pack(until + 1, bytes(4), 0) if until else prefix[:-1] + b"\1"
        with self.table.reading() as rows_from:
            for row in rows_from(after + b"\0" if after else prefix):
                if row[0] >= end:
                    break
                found.append(row)
                events += 1 if row[1].startswith(SOLE) else events_in(row[1])
                if events >= most:
                    break
        return found

    def every(self, name: str) -> Iterator[Parcel]:
        """All of a receiver; some of them are in memory at a time."""
        return (parcel for state in STATES for parcel in self.each(name, state, READ))

    def each(self, name: str, state: bytes, at_a_time: int) -> Iterator[Parcel]:
        """All of a receiver in that state; so many of them are in memory at a time."""
        after = b""
        while some := self.some(name, at_a_time, state, after=after):
            yield from some
            after = some[-1].row

    def find(self, parcel: Parcel, txn: Txn) -> Parcel | None:
        """It, in a row of its own from here on, if it is there; locked."""
        if parcel.row != parcel.key or parcel.together > 1:
            self.part(parcel.row, txn)
        data = self.table.get_to_change(parcel.key, txn)
        return None if data is None else _parcels(parcel.key, data, parcel.receiver, dead=parcel.dead)[0]

    def part(self, row: bytes, txn: Txn) -> None:
        """Have each event of that row in a row of its own."""
        data = self.table.get_to_change(row, txn)
        if data is None or data[:1] != FORM:
            return
        place = row[-PLACE.size:]
        events = unpack(place, data)[1]
        if len(events) > 1 or events[0].place:
            self.table.delete(row, txn)
            for event in events:
                self.table.put(row[:-PLACE.size] + shifted(place, event.place), alone_in_row(event, data), txn)

    def take_away(self, rows: Sequence[bytes], txn: Txn) -> None:
        """These, which ascend, have left with all that was in them."""
        self.table.delete_each(rows, txn)

    def remove(self, parcels: Iterable[Parcel], txn: Txn) -> int:
        """They have left, or nobody wants them; how many were there."""
        removed = 0
        for row, some in groupby(parcels, _ROW_KEY):
            of_row = list(some)
            if len(of_row) == of_row[0].together:
                removed += len(of_row) * self.table.delete(row, txn)
            else:
                removed += sum(self.find(each, txn) is not None and self.table.delete(each.key, txn) for each in of_row)
        return removed

    def mend(self, parcel: Parcel, txn: Txn) -> bool:
        """In the place of a row that cannot be read there is one that says so; whether it was there."""
        now = self.find(parcel, txn)
        if now is None or now.readable:
            return False
        self.table.put(now.key, now.to_bytes(), txn)
        return True

    def bury(self, parcel: Parcel, tries: int, said: str, txn: Txn) -> None:
        """It is a dead letter, if it is still waiting."""
        now = self.find(parcel, txn)
        if now is not None and not now.dead:
            self.table.delete(now.key, txn)
            key = DEAD + now.key[1:]
            self.table.put(key, evolve(now, tries=max(tries, now.tries + 1), said=said).to_bytes(), txn)

    def revive(self, parcel: Parcel, txn: Txn) -> bool:
        """A dead letter is sent once more, behind all that waits; whether it was there."""
        now = self.find(parcel, txn)
        if now is None or not now.dead:
            return False
        self.table.delete(parcel.key, txn)
        key = _prefix(WAITING, now.receiver) + self.new_place()
        body = {**now.body, "vnd.onecopy.again": now.id} if now.kind == EVENT else now.body
        self.table.put(key, evolve(now, at=time.time(), tries=0, said="", body=body, document="").to_bytes(), txn)
        return True

    def put_off(self, parcel: Parcel, until: float, said: str, txn: Txn) -> None:
        """It is sent after that Unix time, if it is still waiting; what waits behind it goes on."""
        now = self.find(parcel, txn)
        if now is not None and not now.dead:
            self.table.delete(parcel.key, txn)
            key = _prefix(LATER, now.receiver) + PLACE.pack(int(until * 1e9), *PLACE.unpack(self.new_place())[1:])
            self.table.put(key, evolve(now, tries=now.tries + 1, said=said).to_bytes(), txn)

    def due(self, name: str, most: int, longest: float) -> list[Parcel]:
        """What was put off until now; and for more than so many seconds: the clock has been set back since."""
        now = time.time_ns()
        return [parcel for parcel in self.some(name, most, LATER) if not now < parcel.order <= now + int(longest * 1e9)]

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
            events = 0
            for _, row in rows:
                events += events_in(row)
                if events >= most:
                    return most
            return events

    def take(self, other: "OutboxTable", env: Env) -> None:
        """Have what is in another one too; `env` is that of this one. On disk when this returns."""
        with closing(cast("Any", other.table.scan(DEAD))) as rows:      # behind the clock
            while some := list(islice(rows, TAKEN)):
                transact(env, lambda txn, some=some: [self.table.put(key, data, txn)       # type: ignore[misc]
                                                      for key, data in some])
                env.flush()


def parcel_order(key: bytes) -> int:
    """The time in the key of a row."""
    return int(PLACE.unpack(key[-PLACE.size:])[0])


def _prefix(state: bytes, name: str) -> bytes:
    return state + name.encode() + b"\0"


def _name(key: bytes) -> str:
    return key[1:-PLACE.size - 1].decode()


def _parcels(key: bytes, row: bytes, name: str, *, dead: bool) -> list[Parcel]:
    """What is in the row; one that cannot be read says in its place that an event is missing, and so it leaves as
    others do."""
    try:
        if row[:1] == FORM:
            place = key[-PLACE.size:]
            at, events = unpack(place, row)
            together, prefix = len(events), key[:-PLACE.size]
            return [Parcel(prefix + shifted(place, number) if number else key, name, dead, EVENT, at, mailbox, 0, "",
                           None, True, key, together, text) for number, mailbox, _, text in events]
        said = json.loads(row)
        return [Parcel(key, name, dead, str(said["kind"]), float(said["at"]), int(said["mailbox"]), int(said["tries"]),
                       str(said["said"]), {**said["body"]})]
    except UNREADABLE:
        return [Parcel(key, name, dead, EVENT, parcel_order(key) / 1e9, 0, 0, "", {
            "event": GAP, "vnd.onecopy.reason": "a row of the outbox could not be read"}, readable=False)]
