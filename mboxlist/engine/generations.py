"""Tells which state of an environment is on disk, and whether it is the newest that there was. So a start finds an
older copy that somebody put back.

A generation is a time in microseconds, greater than any before it. Each table has its generation, and the one before
it, in a row under `KEY`, which nobody else sees. At each checkpoint one transaction gives all tables of an environment
the same new generation. So after recovery a table with a smaller one is an older copy. One table (`MAIN`) also has the
environment's generation, which each start raises, too. The environment's generation is also kept outside of it
(`Marks`), in places that are not rolled back with it: an environment that is behind its mark is an older copy.

It is also on record what an environment has not been through: the generations between that of its last state and that
of the start that found it (`note_start`). What was written of it in one of these belongs to another course of events,
although it may have gone on since.

A mark is written when the transaction is on disk, and is synced only at a checkpoint. So after a kill or a loss of
power it may be too small, but never too great. Behind it is written how far the log was on disk (`LogEnd`), in each
second in which the log grows: so a copy of the last generation is found, too.
"""

import contextlib
import os
import struct
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from attrs import frozen
from berkeleydb import db

from mboxlist import privatefiles
from mboxlist.engine.btree import GENERATION_KEY as KEY
from mboxlist.engine.btree import HISTORY_KEY, Table, Txn
from mboxlist.engine.damagemarks import known_tables, logs

MAIN = ("state.db", "mailboxes.db")     # the table that has the environment's generation; else the first by name
_ROW = struct.Struct("<QQQ")            # the table's, the one before it, the environment's
_GAP = struct.Struct("<QQ")             # the last generation before a start, and one that is not behind it
_GAPS = 256                             # so many are on record, the newest ones
_MARK = 30                              # octets of a mark
_TAIL = 1024                            # octets of the log of which a mark has the checksum
AT_ONCE = 1000              # microseconds: generations of one moment are numbered on, ahead of the clock

@frozen
class LogEnd:
    """A place up to which a log was on disk: file, octet, and the checksum of what is before it. A log that has
    something else there is an older copy, or has gone on from one."""

    file: int
    octet: int
    checksum: int

    @classmethod
    def of(cls, folder: Path, end: tuple[int, int]) -> "LogEnd | None":
        """Of the log in that folder; None when it does not go so far."""
        first = max(0, end[1] - _TAIL)
        try:
            with privatefiles.open_file(folder / f"log.{end[0]:010}", "rb") as file:
                file.seek(first)
                tail = file.read(end[1] - first)
        except OSError:
            return None
        return cls(*end, zlib.crc32(tail)) if tail and len(tail) == end[1] - first else None

    def is_in(self, folder: Path) -> bool:
        """Whether the log in that folder went through this place, as far as that can be told: the file may have been
        dropped since."""
        first = next((int(path.name[4:]) for path in logs(folder)), 0)
        return self.file < first or LogEnd.of(folder, (self.file, self.octet)) == self

    def to_bytes(self) -> bytes:
        """The stored form."""
        return _checked(b"%010d %010d %08x" % (self.file, self.octet, self.checksum))

    @classmethod
    def from_bytes(cls, data: bytes) -> "LogEnd | None":
        """From the stored form; None for what is not whole."""
        if data != _checked(data[:30]):
            return None
        file, octet, checksum = data[:30].split()
        return cls(int(file), int(octet), int(checksum, 16))

    def __str__(self) -> str:
        return f"log.{self.file:010}:{self.octet}"


def _checked(octets: bytes) -> bytes:
    return octets + b" %08x\n" % zlib.crc32(octets)


class Marks:
    """The files outside of an environment that have its generation (`places`)."""

    def __init__(self, places: Callable[[], Iterable[Path]]) -> None:
        self._places = places

    def read(self) -> int:
        """The greatest generation there; 0 where there is none."""
        return max(map(read_mark, self._places()), default=0)

    def write(self, generation: int, *, sync: bool) -> None:
        """Write it to every place that can be written to. A failure here stops nobody."""
        self._write(0, _checked(b"%020d" % generation), sync=sync)

    def write_end(self, end: LogEnd) -> None:
        """Write there how far the log is on disk."""
        self._write(_MARK, end.to_bytes(), sync=False)

    def ends(self, generation: int) -> Iterator[LogEnd]:
        """How far the log of that generation was on disk, by the places that have it."""
        for place in self._places():
            with contextlib.suppress(OSError):
                if read_mark(place) == generation and (
                        end := LogEnd.from_bytes(privatefiles.read(place)[_MARK:])) is not None:
                    yield end

    def _write(self, at: int, octets: bytes, *, sync: bool) -> None:
        for place in self._places():
            with contextlib.suppress(OSError):
                privatefiles.make_folder(place.parent, exist_ok=True)
                handle = privatefiles.open_handle(place, os.O_WRONLY | os.O_CREAT)
                try:
                    os.pwrite(handle, octets, at)
                    if sync:
                        os.fsync(handle)
                finally:
                    os.close(handle)


def read_mark(place: Path) -> int:
    """The generation in that file; 0 for none, or when it is not whole."""
    with contextlib.suppress(OSError, ValueError):
        octets = privatefiles.read(place)[:_MARK]
        if octets == _checked(octets[:20]):
            return int(octets[:20])
    return 0


@frozen
class Generation:
    """What the row of a table says; zeros where it has none. `environment` is 0 but in one table."""

    table: int = 0
    before: int = 0
    environment: int = 0

    @classmethod
    def from_bytes(cls, row: bytes | None) -> "Generation":
        """From the stored form."""
        return cls(*_ROW.unpack(row)) if row is not None and len(row) == _ROW.size else cls()

    def to_bytes(self) -> bytes:
        """The stored form."""
        return _ROW.pack(self.table, self.before, self.environment)


# Raising it, in a transaction of the environment whose tables these are

def raise_all(tables: Sequence[Table], least: int, txn: Txn) -> int:
    """Give the tables of an environment, and the environment, a new generation, greater than `least`."""
    rows = {table.name: Generation.from_bytes(table.get(KEY, txn)) for table in tables}
    new, before = _next(rows.values(), least), max((row.table for row in rows.values()), default=0)
    for table in tables:
        table.put(KEY, Generation(new, before, new if table.name == _main(rows) else 0).to_bytes(), txn)
    return new


def raise_environment(tables: Sequence[Table], least: int, txn: Txn) -> int:
    """Have the environment be of a new generation, greater than `least`; its tables, too, if they have not one."""
    rows = {table.name: Generation.from_bytes(table.get(KEY, txn)) for table in tables}
    if len({row.table for row in rows.values()}) != 1 or not all(row.table for row in rows.values()):
        return raise_all(tables, least, txn)
    new, main = _next(rows.values(), least), _main(rows)
    for table in tables:
        if table.name == main:
            table.put(KEY, Generation(rows[main].table, rows[main].before, new).to_bytes(), txn)
    return new


def _next(rows: Iterable[Generation], least: int) -> int:
    return max(int(time.time() * 1e6), least + 1, *(max(row.table, row.environment) + 1 for row in rows))


def _main(names: Iterable[str]) -> str:
    there = sorted(names)
    return next((name for name in MAIN if name in there), there[0] if there else "")


# What it has not been through

def generation(table: Table, txn: Txn = None) -> int:
    """The generation of an environment, as its main table has it."""
    row = Generation.from_bytes(table.get(KEY, txn))
    return max(row.table, row.environment)


def note_start(table: Table, txn: Txn) -> None:
    """Note that the environment with that main table begins anew, from its present state."""
    last = generation(table, txn)
    if last:
        gaps = (table.get(HISTORY_KEY, txn) or b"") + _GAP.pack(last, max(int(time.time() * 1e6), last + 1))
        table.put(HISTORY_KEY, gaps[-_GAPS * _GAP.size:], txn)


def gaps(table: Table) -> list[tuple[int, int]]:
    """The spans of generations in which it was not there."""
    return list(_GAP.iter_unpack(table.get(HISTORY_KEY) or b""))


# Looking at tables that are at rest

def of_table(file: Path) -> Generation | None:
    """What the row of a table says; None when the table cannot be read."""
    handle = db.DB()
    try:
        handle.open(str(file), dbtype=db.DB_BTREE, flags=db.DB_RDONLY)
        return Generation.from_bytes(handle.get(KEY))
    except db.DBError:
        return None
    finally:
        with contextlib.suppress(db.DBError):
            handle.close()


def of_environment(folder: Path, names: Iterable[str]) -> int:
    """The generation of an environment with these tables; 0 where it has none."""
    main = _main(names)
    row = of_table(folder / main) if main else None
    return max(row.table, row.environment) if row is not None else 0


def complete_until(folder: Path, names: Iterable[str], *, recovered: bool) -> int:
    """Until when (Unix time, in microseconds) everything that was committed is in the tables; 0 when nobody can tell,
    also because the clock has been ahead. Tables that have not been `recovered` may lack what came after the generation
    before."""
    main = _main(names)
    row = of_table(folder / main) if main and (folder / main).is_file() else None
    found = 0 if row is None else max(row.table, row.environment) if recovered else row.before
    return found if found <= time.time() * 1e6 + AT_ONCE else 0


def older_tables(folder: Path, names: Iterable[str], *, recovered: bool = True) -> dict[str, str]:
    """The tables that are older than the others, and how old they are. If they have not been `recovered`, a checkpoint
    may have written only some of them: the others are then of the generation before."""
    found = {name: row for name in names if (row := of_table(folder / name)) is not None}
    newest = max(found.values(), key=lambda row: row.table, default=Generation())
    least = newest.table if recovered else newest.before
    return {name: f"is older ({shown(row.table)}) than the other tables ({shown(newest.table)})"
            for name, row in found.items() if row.table < least}


def look(folder: Path, marks: Marks, *, untouched: bool) -> tuple[str, bool]:
    """What is older in an environment that has been recovered, or was left clean and is `untouched`; "" if nothing. And
    whether all of it is older."""
    names = list(known_tables(folder))
    older = {} if untouched else older_tables(folder, names)
    if older:
        return "; ".join(f"{name} {why}" for name, why in older.items()), False
    mark = marks.read() if names else 0
    there = of_environment(folder, names) if mark else 0
    if there < mark:
        return f"it is older ({shown(there)}) than what was there last ({shown(mark)})", True
    lacking = next((end for end in marks.ends(mark) if not end.is_in(folder)), None) if there == mark else None
    return ("" if lacking is None else f"it is older than what was there last: its log has not been at {lacking}",
            lacking is not None)


def shown(generation: int) -> str:
    """A generation, in words for people."""
    return datetime.fromtimestamp(generation / 1e6, UTC).strftime("of %Y-%m-%d %H:%M:%S.%f UTC") if generation else (
        "of an unknown time")
