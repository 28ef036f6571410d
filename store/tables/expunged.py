"""Expunged records, kept until their message files may be purged: what `undelete` restores.

`removed.db`: (Unix time, mailbox id, MODSEQ of the expunge) -> the names of the mailbox's keywords, and the records.
They are still counted as references to their message files (`held`), and given back when they are forgotten: an expunge
need not touch the row of each file. Not so those that have come from another partition, and those of older versions.
"""

import struct
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from mboxlist.engine.btree import Table, Txn
from mboxlist.entry import MailboxId
from store.tables.index import ROW, Rows, take
from store.tables.references import References, tally

_KEY = struct.Struct(">IIQ")
_HEAD = struct.Struct("<H?I")           # _NEW, whether it is held, octets of the names
_OLD = struct.Struct("<H")              # octets of the names; it is not held
_NEW = 0xFFFF


@frozen(eq=False)
class Expunged:
    """What one expunge took out of a mailbox; `when` is Unix time, `key` what `ExpungedMessages.forget` wants; `held`:
    the records are still counted as references."""

    key: bytes
    when: int
    mailbox: MailboxId
    keywords: tuple[str, ...]
    rows: Rows
    held: bool


def key_of(when: int, mailbox: MailboxId, modseq: int) -> bytes:
    """The key of what was expunged from the mailbox then."""
    return _KEY.pack(when, mailbox, modseq)


def _expunged(key: bytes, data: bytes) -> Expunged | None:
    """None for what cannot be read."""
    try:
        when, mailbox, _ = _KEY.unpack(key)
        (octets,), held, head = _OLD.unpack_from(data), False, _OLD.size
        if octets == _NEW:
            (_, held, octets), head = _HEAD.unpack_from(data), _HEAD.size
        names = data[head:head + octets].decode()
        rows = np.frombuffer(data, ROW, offset=head + octets)
    except (struct.error, ValueError):
        return None
    return Expunged(key, when, mailbox, tuple(names.split(" ")) if names else (), rows, held)


class ExpungedMessages:
    """The table, and the references that its records are."""

    def __init__(self, table: Table, refs: References) -> None:
        self._table = table
        self._refs = refs

    def keep(self, when: int, mailbox: MailboxId, modseq: int, keywords: Sequence[str], rows: Rows, txn: Txn, *,
             held: bool) -> None:
        """These records leave the mailbox. `held`: they stay counted."""
        names = " ".join(keywords).encode()
        self._table.put(_KEY.pack(when, mailbox, modseq),
                        _HEAD.pack(_NEW, held, len(names)) + names + rows.tobytes(), txn)

    def replace(self, item: Expunged, rows: Rows, txn: Txn) -> None:
        """Of the item only these records are left. The references of the others are the caller's."""
        if len(rows):
            when, mailbox, modseq = _KEY.unpack(item.key)
            self.keep(when, mailbox, modseq, item.keywords, rows, txn, held=item.held)
        else:
            self._table.delete(item.key, txn)

    def renumber(self, keys: Iterable[bytes], serials: Mapping[bytes, int], txn: Txn) -> None:
        """In these items the records of message files have these arrival serials, by digest."""
        for key in keys:
            item = self.find_to_change(key, txn)
            if item is not None:
                rows = item.rows.copy()
                rows["serial"] = [serials.get(digest, serial) for digest, serial in zip(
                    rows["digest"].tolist(), rows["serial"].tolist(), strict=True)]
                self.replace(item, rows, txn)

    def find_to_change(self, key: bytes, txn: Txn) -> Expunged | None:
        """An item that can be read, locked to the end of the transaction."""
        data = self._table.get_to_change(key, txn)
        return None if data is None else _expunged(key, data)

    def find(self, key: bytes) -> bytes | None:
        """An item as it is stored."""
        return self._table.get(key)

    def rows(self, key: bytes) -> Rows:
        """The records of an item; none when it is not there."""
        data = self._table.get(key)
        item = None if data is None else _expunged(key, data)
        return np.empty(0, ROW) if item is None else item.rows

    def all(self, until: int | None = None, txn: Txn = None, *, since: int = 0, after: bytes = b""
            ) -> Generator[Expunged, None, None]:
        """What was expunged from one Unix time up to another, or everything, or what comes behind that key; the oldest
        first; within a transaction it stays as it is. What cannot be read is passed over: the check says so, and a
        recount lets go of it."""
        end = None if until is None else _KEY.pack(until + 1, 0, 0)
        for key, data in self._table.scan(after + b"\0" if after else _KEY.pack(since, 0, 0), end, txn,
                                          hold=txn is not None):
            item = _expunged(key, data)
            if item is not None:
                yield item

    def uids(self, mailbox: MailboxId, txn: Txn) -> NDArray[np.uint32]:
        """What can be undeleted of one mailbox, whose figures the transaction has locked; no other row stays so. Looks
        at everything."""
        found = [item.rows["uid"] for key, data in self._table.scan(txn=txn) if _KEY.unpack(key)[1] == mailbox
                 and (item := _expunged(key, data)) is not None]
        return np.concatenate([np.empty(0, np.uint32), *found])

    def unreadable(self, txn: Txn = None) -> list[bytes]:
        """The keys of the items that cannot be read."""
        return [key for key, data in self._table.scan(txn=txn, hold=txn is not None) if _expunged(key, data) is None]

    def discard(self, keys: Iterable[bytes], txn: Txn) -> None:
        """Have these items no more, whatever was in them. The references of their records are the caller's."""
        for key in keys:
            self._table.delete(key, txn)

    def held(self, txn: Txn = None, until: int | None = None) -> Iterator[Expunged]:
        """The items whose records are counted."""
        return (item for item in self.all(until, txn) if item.held)

    def counts(self, txn: Txn = None, until: int | None = None) -> Counter[bytes]:
        """How many of the references of each message file are these."""
        found: Counter[bytes] = Counter()
        for item in self.held(txn, until):
            found.update(item.rows["digest"].tolist())
        return found

    def drop(self, key: bytes, is_there: Callable[[bytes, int], bool], txn: Txn) -> int:
        """Of an item that is held only those records are left of which that is said, by digest and serial; how many
        were not."""
        item = self.find_to_change(key, txn)
        if item is None or not item.held:
            return 0
        pairs = zip(item.rows["digest"].tolist(), item.rows["serial"].tolist(), strict=True)
        left = np.fromiter((is_there(digest, serial) for digest, serial in pairs), np.bool_, len(item.rows))
        gone = take(item.rows, np.flatnonzero(~left))
        if len(gone):
            known = [each for each in tally(item.mailbox, gone) if self._refs.find(each[0], txn, raw=True) is not None]
            self._refs.release_all(known, item.when, txn)
            self.replace(item, take(item.rows, np.flatnonzero(left)), txn)
        return len(gone)

    def shorten(self, key: bytes, most: int, txn: Txn) -> bool:
        """Give up the first records of an item: so many, or an eighth of them, since the others are
        written again. Whether it has more than so many left."""
        item = self.find_to_change(key, txn)
        if item is None or len(item.rows) <= most:
            return False
        count = max(most, len(item.rows) // 8)
        if item.held:
            self._refs.release_all(tally(item.mailbox, item.rows[:count]), item.when, txn)
        self.replace(item, item.rows[count:], txn)
        return len(item.rows) - count > most

    def forget(self, keys: Iterable[bytes], txn: Txn) -> None:
        """These items cannot be restored any more; their references are given back as of the time of the expunge."""
        for key in keys:
            item = self.find_to_change(key, txn)
            if item is None:
                continue
            if item.held:
                self._refs.release_all(tally(item.mailbox, item.rows), item.when, txn)
            self._table.delete(key, txn)
