"""The tables of an environment: octet strings under octet strings, in order (Berkeley DB's access method Btree)."""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import Any

from berkeleydb import db

Txn = Any                   # a berkeleydb DBTxn: `commit()` and `abort()`

TRIES = 50                  # how often a read is tried that meets a deadlock
GENERATION_KEY = b"\0"      # of the row that no reader of the table sees (`generations`); it sorts first;
HISTORY_KEY = b"\0\0"       # of another such row;
FIRST_KEY = b"\0\0\0"       # no key of a reader's row is below this
_RMW: int = db.DB_RMW
_CURRENT: int = db.DB_CURRENT


class Table:
    """An ordered table of octet strings. `put` sets the value under a key in a transaction. It is Berkeley DB's own
    function, and everything that is written goes through it."""

    __slots__ = ("_broken", "_db", "_get", "glances", "name", "put")

    def __init__(self, handle: Any, broken: Callable[[], None], name: str, glances: bool = False) -> None:
        self.name = name
        self.glances = glances
        self._broken = broken
        self.use(handle)

    def use(self, handle: Any) -> None:
        """Use this handle for everything from now on."""
        self._db = handle
        self._get = handle.get          # these two are called for every record of everything
        self.put: Callable[[bytes, bytes, Txn], None] = handle.put

    def get(self, key: bytes, txn: Txn = None) -> bytes | None:
        """The value under `key`, or None. Outside a transaction it is asked for again when Berkeley DB ends the wait
        for its lock, as it does to end a deadlock. Raises DBLockDeadlockError."""
        try:
            value: bytes | None = self._get(key, None, txn)
        except db.DBLockDeadlockError:
            if txn is not None:
                raise
            return self._get_again(key)
        except db.DBRunRecoveryError:
            self._broken()
            raise
        return value

    def _get_again(self, key: bytes) -> bytes | None:
        for _ in range(TRIES):
            with suppress(db.DBLockDeadlockError):
                value: bytes | None = self._get(key, None, None)
                return value
        raise db.DBLockDeadlockError

    def glance(self, key: bytes) -> bytes | None:
        """The value under `key` as it is at this moment, committed or not. Waits for no lock.

        For hints only: a caller that acts on it looks again in a transaction.
        """
        if not self.glances:            # these are the files of an environment at rest
            return self.get(key)
        try:
            value: bytes | None = self._get(key, None, None, db.DB_READ_UNCOMMITTED)
        except db.DBRunRecoveryError:
            self._broken()
            raise
        return value

    def get_to_change(self, key: bytes, txn: Txn) -> bytes | None:
        """The value under `key`, locked for writing from now to the end of the transaction."""
        value: bytes | None = self._get(key, None, txn, _RMW)
        return value

    def put_part(self, key: bytes, at: int, octets: bytes, txn: Txn) -> None:
        """Set these octets of the value under `key`. Only these go to the log. `put` would log everything from the
        first octet that changes to the last one."""
        self._db.put(key, octets, txn, 0, len(octets), at)

    def delete(self, key: bytes, txn: Txn) -> bool:
        """Remove `key`; whether it was there."""
        try:
            self._db.delete(key, txn)
        except db.DBNotFoundError:
            return False
        return True

    def delete_each(self, keys: Sequence[bytes], txn: Txn) -> None:
        """As `delete`, for many keys, which ascend and are near each other: a step to the next one takes less than a
        look-up."""
        with closing(self._db.cursor(txn)) as cursor:
            following, find, delete = cursor.next, cursor.set_range, cursor.delete
            there = b""
            for key in keys:
                if there < key:
                    row = following(_RMW) if there else None
                    if row is None or row[0] < key:
                        row = find(key, _RMW)
                    if row is None:
                        break               # nothing is behind it
                    there = row[0]
                if there == key:
                    delete()

    def scan(self, start: bytes = b"", end: bytes | None = None, txn: Txn = None, *, hold: bool = False
             ) -> Iterator[tuple[bytes, bytes]]:
        """Keys and values from `start` up to, not including, `end`, in order of key.

        No row stays locked once the scan has passed it, unless `hold` asks for that. Close the iterator if it is left
        early.
        """
        try:
            with closing(self._db.cursor(txn, 0 if txn is None or hold else db.DB_READ_COMMITTED)) as cursor:
                row = cursor.set_range(max(start, FIRST_KEY))
                while row is not None and (end is None or row[0] < end):
                    yield row
                    row = cursor.next()
        except db.DBRunRecoveryError:
            self._broken()
            raise

    def scan_back(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """As `scan`, from the last row before `end` back to `start`."""
        try:
            with closing(self._db.cursor(None, 0)) as cursor:
                row = cursor.prev() if cursor.set_range(end) is not None else cursor.last()
                while row is not None and row[0] >= start:
                    yield row
                    row = cursor.prev()
        except db.DBRunRecoveryError:
            self._broken()
            raise

    def pieces(self, most: int, txn: Txn = None) -> Iterator[tuple[list[bytes], list[bytes]]]:
        """Keys and values of all rows, in order of key, so many at a time. For very many rows it takes half the time of
        `scan`. Within a transaction they do not change. Close the iterator if it is left early."""
        try:
            with closing(self._db.cursor(txn, 0)) as cursor:
                following, row = cursor.next, cursor.set_range(FIRST_KEY)
                while row is not None:
                    keys: list[bytes] = []
                    values: list[bytes] = []
                    while row is not None and len(keys) < most:
                        keys.append(row[0])
                        values.append(row[1])
                        row = following()
                    yield keys, values
        except db.DBRunRecoveryError:
            self._broken()
            raise

    def pick(self, keys: Sequence[bytes], txn: Txn = None) -> list[bytes | None]:
        """The value under each of these keys, which ascend, or None. For many keys that are near each other, since a
        step to the next row takes a third of a `get`. No row stays locked."""
        return self._pick(keys, txn, 0 if txn is None else db.DB_READ_COMMITTED, 0)

    def pick_to_change(self, keys: Sequence[bytes], txn: Txn) -> list[bytes | None]:
        """As `pick`; every row that was looked at is locked for writing from now to the end of the transaction."""
        return self._pick(keys, txn, 0, _RMW)

    def _pick(self, keys: Sequence[bytes], txn: Txn, isolation: int, flags: int) -> list[bytes | None]:
        found: list[bytes | None] = []
        take = found.append
        try:
            with closing(self._db.cursor(txn, isolation)) as cursor:
                following, find = cursor.next, cursor.set_range
                row = find(keys[0], flags) if keys else None
                there, value = row or (b"", None)
                for key in keys:
                    if there < key:
                        row = row and following(flags)
                        if row is not None and row[0] < key:
                            row = find(key, flags)
                        if row is None:
                            break               # nothing is behind it
                        there, value = row
                    take(value if there == key else None)
        except db.DBRunRecoveryError:
            self._broken()
            raise
        return found + [None] * (len(keys) - len(found))

    @contextmanager
    def reading(self) -> Iterator[Callable[[bytes], Iterator[tuple[bytes, bytes]]]]:
        """A context, which gives a function: this gives the rows from a key on, each when it is asked for. There is one
        cursor: a call with another key ends the rows of the one before. A caller that takes what it needs of a row, and
        drops the row, gets the next one in the same memory. No row stays locked."""
        try:
            with closing(self._db.cursor(None, 0)) as cursor:
                following, find = cursor.next, cursor.set_range

                def rows(key: bytes) -> Iterator[tuple[bytes, bytes]]:
                    first = find(key)
                    return chain((first,), iter(following, None)) if first else iter(())

                yield rows
        except db.DBRunRecoveryError:
            self._broken()
            raise

    def revise(self, keys: Iterable[bytes], new: Callable[[bytes, bytes | None], bytes | None], txn: Txn) -> None:
        """Set the value under each of these keys to what `new` makes of the key and its value. When `new` gives None
        the row is removed; when it gives the same object the row stays as it is. A key without a row gets none.

        Every row that was looked at is locked for writing from now to the end of the transaction. `put` would look for
        each row a second time.
        """
        with closing(self._db.cursor(txn)) as cursor:
            find, put, delete = cursor.set, cursor.put, cursor.delete
            for key in keys:
                row = find(key, _RMW)
                old = row and row[1]
                value = new(key, old)
                if row is None or value is old:
                    continue
                if value is None:
                    delete()
                else:
                    put(key, value, _CURRENT)

    def scan_to_change(self, start: bytes, end: bytes, txn: Txn) -> Iterator[tuple[bytes, bytes]]:
        """As `scan`; every row that was looked at is locked for writing from now to the end of the transaction."""
        with closing(self._db.cursor(txn)) as cursor:
            row = cursor.set_range(max(start, FIRST_KEY), _RMW)
            while row is not None and row[0] < end:
                yield row
                row = cursor.next(_RMW)

    def close(self) -> None:
        """Close the table."""
        self._db.close()


def salvage(file: Path) -> Generator[tuple[bytes, bytes], None, None]:
    """The rows of a table that has lost its environment, in order, as far as they can be read. Raises Failure."""
    handle = db.DB()
    try:
        handle.open(str(file), dbtype=db.DB_BTREE, flags=db.DB_RDONLY)
        with closing(handle.cursor()) as cursor:
            row = cursor.set_range(FIRST_KEY)
            while row is not None:
                yield row
                row = cursor.next()
    finally:
        handle.close()
