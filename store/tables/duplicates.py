"""Which messages came to which mailboxes a short time ago, so that one that is sent twice is not kept twice.

`arrivals.db`: digest of Message-ID, sender and mailbox -> the Unix time until which that counts. The same for digest
and mailbox of a delivery that ended without an answer, and for each unclean end (`delivery.repeats`). Nothing else
knows of it: what is lost of it can only let a message come twice.
"""

import struct
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from hashlib import blake2b
from itertools import islice
from typing import Any, cast

from attrs import define

from mboxlist.engine.btree import Table, Txn
from mboxlist.entry import MailboxId

ROWS_AT_A_TIME = 500        # that are looked at together, and forgotten in one transaction
_UNTIL = struct.Struct("<I")
_SPAN = struct.Struct(">II")
_END = b"\0unclean end"     # longer than any other key begins alike, or so good as never: those are 16 octets
ENDS_SECONDS = 86_400       # how long an unclean end is on record
BEFORE_END = 60             # seconds before it in which a delivery may have had no answer
_LATEST = (1 << 32) - 1


def _now() -> float:
    return time.time()


def steady() -> float:
    """Seconds of a clock that nobody sets, and that goes on while the machine sleeps (clock_gettime(2))."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@define(eq=False)
class Duplicates:
    """The table. `clock` gives the Unix time."""

    _table: Table
    clock: Callable[[], float] = _now

    def counts(self, key: bytes, txn: Txn) -> bool:
        """Whether the message has come, and it counts; locked to the end of the transaction."""
        data = self._table.get_to_change(key, txn)
        return data is not None and _UNTIL.unpack(data)[0] > self.clock()

    def add(self, key: bytes, seconds: int, txn: Txn) -> None:
        """It comes now, and counts so long."""
        self._table.put(key, _UNTIL.pack(min(int(self.clock()) + seconds, _LATEST)), txn)

    def add_all(self, keys: Iterable[bytes], seconds: int, txn: Txn) -> None:
        """`add` each."""
        for key in keys:
            self.add(key, seconds, txn)

    def is_noted(self, key: bytes) -> bool:
        """Whether there is such a row that counts, at this moment."""
        data = self._table.get(key)
        return data is not None and _UNTIL.unpack(data)[0] > self.clock()

    def note_end(self, last: int, txn: Txn) -> None:
        """There was an unclean end: what was delivered in the minute before that Unix time may have had no answer. It
        is of the clock that gave these messages their time, whichever machine's that was."""
        last = min(max(last, 0), _LATEST)       # a clock may stand at 1970, or beyond what a row can have
        self.add(_END + _SPAN.pack(max(last - BEFORE_END, 0), last), ENDS_SECONDS, txn)

    def ends(self) -> tuple[tuple[int, int, float], ...]:
        """The unclean ends of late: those times, and when that was noted, by `steady`. So no end seems to be long ago
        because the clock has been set since, as it often is soon after a machine has started."""
        now, unix_time = steady(), self.clock()
        with closing(cast("Any", self._table.scan(_END, _END + b"\xff" * (_SPAN.size + 1)))) as rows:
            return tuple((*_SPAN.unpack(key[len(_END):]),
                          now - max(0.0, unix_time - (_UNTIL.unpack(data)[0] - ENDS_SECONDS))) for key, data in rows
                         if len(key) == len(_END) + _SPAN.size and not self._is_over(data))

    def starts(self) -> Iterator[bytes]:
        """The first key of each part of the table, for `over`; none if it is empty. Nothing is locked between two."""
        rows = self._some_rows(b"")
        while rows:
            yield rows[0][0]
            rows = self._some_rows(rows[-1][0] + b"\0")

    def over(self, start: bytes) -> list[bytes]:
        """The keys that have had their time, of the part that begins there."""
        return [key for key, data in self._some_rows(start) if self._is_over(data)]

    def forget(self, keys: Iterable[bytes], txn: Txn) -> int:
        """Forget those of these keys, in ascending order, that did not come again meanwhile; how many."""
        return sum(self._table.delete(key, txn) for key in keys if self._is_over(self._table.get_to_change(key, txn)))

    def _some_rows(self, start: bytes) -> list[tuple[bytes, bytes]]:
        with closing(cast("Any", self._table.scan(start))) as rows:
            return list(islice(rows, ROWS_AT_A_TIME))

    def _is_over(self, data: bytes | None) -> bool:
        return data is not None and _UNTIL.unpack(data)[0] <= self.clock()


def repeat_key(digest: bytes, mailbox: MailboxId) -> bytes:
    """The key of a message in a mailbox to which it was delivered without an answer."""
    return blake2b(b"\0".join((b"repeat", digest, b"%d" % mailbox)), digest_size=16).digest()


def arrival_key(message_id: bytes, sender: bytes, mailbox: MailboxId) -> bytes:
    """The key of a message in a mailbox; `sender` is its Return-Path field."""
    return blake2b(b"\0".join((message_id, sender, b"%d" % mailbox)), digest_size=16).digest()
