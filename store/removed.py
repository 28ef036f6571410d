"""Expunged records, kept until their message files may be purged: what `undelete` brings back.

`removed.db`: (Unix time, mailbox id, MODSEQ of the expunge) -> the names of the mailbox's keywords, and the records.
"""

import struct
from collections.abc import Iterator, Sequence

import numpy as np
from attrs import frozen

from mboxlist.entry import MailboxId
from mboxlist.kv import Table, Txn
from store.index import ROW, Rows

_KEY = struct.Struct(">IIQ")
_NAMES = struct.Struct("<H")


@frozen(eq=False)
class Expunged:
    """What one expunge took out of a mailbox; `when` is Unix time, `key` what `Removed.forget` wants."""

    key: bytes
    when: int
    mailbox: MailboxId
    keywords: tuple[str, ...]
    rows: Rows


def key_of(when: int, mailbox: MailboxId, modseq: int) -> bytes:
    """The key of what was expunged from the mailbox then."""
    return _KEY.pack(when, mailbox, modseq)


class Removed:
    """The table."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def keep(self, when: int, mailbox: MailboxId, modseq: int, keywords: Sequence[str], rows: Rows, txn: Txn) -> None:
        """These records leave the mailbox."""
        names = " ".join(keywords).encode()
        self._table.put(_KEY.pack(when, mailbox, modseq), _NAMES.pack(len(names)) + names + rows.tobytes(), txn)

    def replace(self, item: Expunged, rows: Rows, txn: Txn) -> None:
        """Of the item only these records are left."""
        if len(rows):
            when, mailbox, modseq = _KEY.unpack(item.key)
            self.keep(when, mailbox, modseq, item.keywords, rows, txn)
        else:
            self._table.delete(item.key, txn)

    def find(self, key: bytes) -> bytes | None:
        """An item as it is stored."""
        return self._table.get(key)

    def rows(self, key: bytes) -> Rows:
        """The records of an item; none when it is not there."""
        data = self._table.get(key)
        return np.empty(0, ROW) if data is None else np.frombuffer(
            data, ROW, offset=_NAMES.size + _NAMES.unpack_from(data)[0])

    def forget_key(self, key: bytes, txn: Txn) -> None:
        """The same as `forget`."""
        self._table.delete(key, txn)

    def all(self, until: int | None = None, txn: Txn = None, *, since: int = 0) -> Iterator[Expunged]:
        """What was expunged from one Unix time up to another, or everything; the oldest first."""
        end = None if until is None else _KEY.pack(until + 1, 0, 0)
        for key, data in self._table.scan(_KEY.pack(since, 0, 0), end, txn):
            when, mailbox, _ = _KEY.unpack(key)
            start = _NAMES.size + _NAMES.unpack_from(data)[0]
            names = data[_NAMES.size:start].decode()
            yield Expunged(key, when, mailbox, tuple(names.split(" ")) if names else (),
                           np.frombuffer(data, ROW, offset=start))

    def forget(self, item: Expunged, txn: Txn) -> None:
        """It can be brought back no more."""
        self._table.delete(item.key, txn)
