"""Mailboxes on which something has begun that concerns the list and a partition: `pending.db`, id -> since when.

A row is written in the transaction that takes the id or changes the mailbox's row in the list, before anything happens
on a partition, so that a start after a crash need look at these mailboxes alone. It goes when both agree again.
"""

import struct
import time
from collections.abc import Iterable, Iterator

from attrs import define

from mboxlist.engine.btree import Table, Txn
from mboxlist.entry import MailboxId

_SINCE = struct.Struct(">I")
_COMPLETE = bytes(4)                # the key of a row that is there when all that is pending is on record


@define(eq=False)
class Pending:
    """The table."""

    _table: Table

    def note(self, mailboxes: Iterable[MailboxId], txn: Txn, *, in_advance: int = 0) -> None:
        """Something begins, or may begin so many seconds from now at the latest."""
        now = _SINCE.pack(int(time.time()) + in_advance)
        for mailbox in sorted(set(mailboxes)):
            self._table.put(mailbox.to_bytes(4, "big"), now, txn)

    def all(self, until: int = (1 << 32) - 1) -> Iterator[tuple[MailboxId, int]]:
        """Those on record since that Unix time or longer, with when."""
        for key, data in self._table.scan(b"\0\0\0\1"):
            since = int(_SINCE.unpack(data)[0])
            if since <= until:
                yield MailboxId(int.from_bytes(key, "big")), since

    def forget(self, mailbox: MailboxId, since: int, txn: Txn) -> None:
        """All agree about it, unless something has begun again since."""
        key = mailbox.to_bytes(4, "big")
        if self._table.get_to_change(key, txn) == _SINCE.pack(since):
            self._table.delete(key, txn)

    def is_complete(self) -> bool:
        """Whether all that is pending is on record: not in a store that an earlier version has left, or a new one."""
        return self._table.get(_COMPLETE) is not None

    def complete(self, txn: Txn) -> None:
        """From now on it is."""
        self._table.put(_COMPLETE, b"", txn)
