"""A COPY of many messages is made some at a time, and still of all or none (RFC 3501 §6.4.7): until it has come to its
end, it is on record what of it is there. What is on record when the store is opened was cut off, and goes
again; so does, by housekeeping, what a full disk kept from being undone at once.

`state.db`: four zero octets, mailbox id, a serial that no other has -> ranges of the UIDs that are there. These rows
come before those of mailboxes; who goes through those does not see them.
"""

import struct
from collections.abc import Iterator

import numpy as np
from attrs import define, field, frozen
from numpy.typing import NDArray

from mboxlist.engine.btree import Table, Txn
from mboxlist.entry import MailboxId
from store.tables.vanished import from_ranges, to_ranges

_KEY = struct.Struct(">IIQ")
_BEGIN, _END = bytes(5), b"\x00\x00\x00\x01"


@frozen
class CopyUnderWay:
    """One that has begun, and into which mailbox."""

    mailbox: MailboxId
    serial: int

    @property
    def key(self) -> bytes:
        """Of its row."""
        return _KEY.pack(0, self.mailbox, self.serial)


@define(eq=False)
class CopiesUnderWay:
    """The rows. `left`: copies of this process that could not be made, nor undone yet; housekeeping tries again."""

    _table: Table
    left: list[CopyUnderWay] = field(factory=list, init=False)

    def add(self, copy: CopyUnderWay, uids: NDArray[np.uint32], txn: Txn) -> None:
        """These UIDs (ascending, behind those before) are there now."""
        before = self._table.get_to_change(copy.key, txn) or b""
        self._table.put(copy.key, before + to_ranges(uids), txn)

    def uids(self, copy: CopyUnderWay, txn: Txn = None) -> NDArray[np.uint32]:
        """What is on record as being there."""
        return from_ranges(self._table.get(copy.key, txn) or b"")

    def forget(self, copy: CopyUnderWay, txn: Txn) -> None:
        """It has come to its end, or is undone."""
        self._table.delete(copy.key, txn)

    def all(self) -> Iterator[CopyUnderWay]:
        """Those on record."""
        for key, _ in self._table.scan(_BEGIN, _END):
            _, mailbox, serial = _KEY.unpack(key)
            yield CopyUnderWay(MailboxId(mailbox), serial)
