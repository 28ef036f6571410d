"""Unique-ids that messages brought along from another POP3 server (RFC 1939 §7), so that clients know them again.

A partition's `uidls.db` has a row for each such message: mailbox id and UID -> its unique-id. It goes with the message.
A mailbox that has any has one more row, under the UID 0, with their number, so that it costs others next to nothing.
A message has its unique-id in this mailbox alone: a copy of it is another message.
"""

import re
import struct
from collections.abc import Iterable, Mapping
from contextlib import closing
from typing import Any, cast

from attrs import define

from mboxlist.engine.btree import Table, Txn
from mboxlist.entry import MailboxId
from store.tables.index import Rows

_KEY = struct.Struct(">II")
_COUNT = struct.Struct(">I")
_LEGAL = re.compile(rb"[!-~]{1,70}")        # RFC 1939 §7


def is_legal(uidl: bytes) -> bool:
    """Whether these octets can be a unique-id."""
    return _LEGAL.fullmatch(uidl) is not None


@define(eq=False)
class Uidls:
    """The table."""

    _table: Table

    def any(self, mailbox: MailboxId, txn: Txn = None) -> bool:
        """Whether messages of the mailbox have any."""
        return self._table.get(_KEY.pack(mailbox, 0), txn) is not None

    def of(self, mailbox: MailboxId, txn: Txn = None) -> dict[int, bytes]:
        """Those of a mailbox, by UID."""
        return self.all(mailbox, txn) if self.any(mailbox, txn) else {}

    def all(self, mailbox: MailboxId, txn: Txn = None) -> dict[int, bytes]:
        """Those of a mailbox, whatever their number should be."""
        scan = self._table.scan(_KEY.pack(mailbox, 1), _KEY.pack(mailbox + 1, 0), txn)
        with closing(cast("Any", scan)):
            return {_KEY.unpack(key)[1]: uidl for key, uidl in scan}

    def put(self, mailbox: MailboxId, uidls: Mapping[int, bytes], txn: Txn) -> None:
        """Set those of some messages."""
        if uidls:
            count = self.counted(mailbox, txn)
            for uid, uidl in sorted(uidls.items()):
                key = _KEY.pack(mailbox, uid)
                count += self._table.get(key, txn) is None
                self._table.put(key, uidl, txn)
            self._keep_count(mailbox, count, txn)

    def drop(self, mailbox: MailboxId, uids: Iterable[int], txn: Txn) -> None:
        """The messages are no more."""
        if count := self.counted(mailbox, txn):
            gone = sum(self._table.delete(_KEY.pack(mailbox, uid), txn) for uid in uids)
            self._keep_count(mailbox, count - gone, txn)

    def forget(self, mailbox: MailboxId, txn: Txn) -> None:
        """The mailbox is no more."""
        for uid in self.all(mailbox, txn):
            self._table.delete(_KEY.pack(mailbox, uid), txn)
        self._keep_count(mailbox, 0, txn)

    def counted(self, mailbox: MailboxId, txn: Txn = None) -> int:
        """How many there should be."""
        data = self._table.get(_KEY.pack(mailbox, 0), txn)
        return 0 if data is None else int(_COUNT.unpack(data)[0])

    def correct(self, mailbox: MailboxId, rows: Rows, txn: Txn) -> int:
        """Have none but those of these records, each legal and of one message only; how many were wrong."""
        found, count = self.all(mailbox, txn), self.counted(mailbox, txn)
        kept = {uidl: uid for uid, uidl in sorted(of_rows(found, rows).items(), reverse=True) if is_legal(uidl)}
        wrong = found.keys() - set(kept.values())
        for uid in wrong:
            self._table.delete(_KEY.pack(mailbox, uid), txn)
        if count != len(kept):
            self._keep_count(mailbox, len(kept), txn)
        return len(wrong) or int(count != len(kept))

    def mailboxes(self, txn: Txn = None) -> set[int]:
        """The mailboxes whose messages have any."""
        return {_KEY.unpack(key)[0] for key, _ in self._table.scan(txn=txn)}

    def _keep_count(self, mailbox: MailboxId, count: int, txn: Txn) -> None:
        key = _KEY.pack(mailbox, 0)
        if count > 0:
            self._table.put(key, _COUNT.pack(count), txn)
        else:
            self._table.delete(key, txn)


def of_rows(uidls: Mapping[int, bytes], rows: Rows) -> dict[int, bytes]:
    """Those of these records' messages."""
    if not uidls:
        return {}
    there = set(rows["uid"].tolist())
    return {uid: uidl for uid, uidl in uidls.items() if uid in there}
