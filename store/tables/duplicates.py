"""Which messages came to which mailboxes a short time ago, so that one that is sent twice is not kept twice.

`arrivals.db`: digest of Message-ID, sender and mailbox -> the Unix time until which that counts. Nothing else knows of
it: what is lost of it can only let a message come twice.
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
_LATEST = (1 << 32) - 1


def _now() -> float:
    return time.time()


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


def arrival_key(message_id: bytes, sender: bytes, mailbox: MailboxId) -> bytes:
    """The key of a message in a mailbox; `sender` is its Return-Path field."""
    return blake2b(b"\0".join((message_id, sender, b"%d" % mailbox)), digest_size=16).digest()
