"""How many records use a message file, those of mailboxes and those expunged that can still be restored; and which
files wait to be purged.

`messages.db`: digest -> arrival serial, references, octets of the file, octets of the trace header at its head, when a
reference last went, and a check value: the sum of a mark of each reference. A reference that is given back twice, or
was never counted, leaves a sum that is not 0 when the count is: then the file stays. `purge.db`, in order of time:
(Unix time, digest) -> digests. Files whose last references went together, and that arrived about together, are in one
list, with the key of the first of them: they are purged together, too, and a row for each would cost as much as its
record.
"""

import itertools
import logging
import struct
import time
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from operator import itemgetter
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from mboxlist.entry import MailboxId
from store.errors import Problem, StoreError
from store.tables.index import Rows

if TYPE_CHECKING:                   # who only counts needs no database
    from mboxlist.engine.btree import Table, Txn

log = logging.getLogger(__name__)

_RECORD = struct.Struct("<QIQIIQ")
STORED = np.dtype([("serial", "<u8"), ("references", "<u4"), ("size", "<u8"), ("trace", "<u4"), ("released", "<u4"),
                   ("check", "<u8")])       # the same, for many at a time
_OCTETS = np.dtype((np.void, STORED.itemsize))     # of which many are copied faster than field by field
UNSEEN_TRACE = (1 << 32) - 1    # stands for the length of a trace header in a file that nobody has looked at yet
_TRACE, _UNSEEN = slice(20, 24), struct.pack("<I", UNSEEN_TRACE)    # where it is stored, and how
_UNKNOWN = bytes(_RECORD.size)
_NOTHING = 0, 0, 0, 0, 0, 0
FOREVER = (1 << 32) - 2     # Unix time after everything on the purge list
_DUE = struct.Struct(">I")
_MID = 32                   # octets of a digest
LISTED = 256                # digests in a list, at most, unless two lists have become one
_MASK = (1 << 64) - 1
HELD = 2000                 # records that are held one by one at a time: of more, each would be fresh memory
FEW = 8                     # below that many references numpy is slower


@frozen
class MessageRecord:
    """The record of a message file.

    `released` is the latest Unix time at which a reference went, or 0 (also when the check value of a file without
    references is not 0: it does not wait for the purge); `check` the sum of the `mark` of each reference,
    modulo 2^64.
    """

    serial: int
    references: int
    size: int
    trace: int
    released: int = 0
    check: int = 0

    def to_bytes(self) -> bytes:
        """The stored form."""
        return _RECORD.pack(self.serial, self.references, self.size, self.trace, self.released, self.check)

    @classmethod
    def from_bytes(cls, data: bytes) -> "MessageRecord":
        """From the stored form."""
        return cls(*_RECORD.unpack(data))


class References:
    """The two tables. Of a file that nobody has looked at since the tables were rebuilt, `look` completes the record.

    When the disk does not say what is in that file, it raises StoreError UNAVAILABLE: so does who asks for one message.
    Who goes through many (`figures`, `all`) gets the record as it is stored, with UNSEEN_TRACE.
    """

    def __init__(self, messages: "Table", purge: "Table",
                 look: Callable[[bytes, MessageRecord], MessageRecord] = lambda digest, record: record) -> None:
        self.messages = messages
        self._purge = purge
        self._look = look

    def complete(self, digest: bytes, record: MessageRecord) -> MessageRecord:
        """A record as it is stored, with what its file says if nobody has looked at that."""
        return record if record.trace != UNSEEN_TRACE else self._look(digest, record)

    def is_unseen(self, digest: bytes) -> bool:
        """Whether nobody has looked at the file since the tables were rebuilt, at this moment."""
        data = self.messages.glance(digest)
        return data is not None and data[_TRACE] == _UNSEEN

    def record(self, digest: bytes, data: bytes) -> MessageRecord:
        return self.complete(digest, MessageRecord.from_bytes(data))

    def _stored(self, digest: bytes, data: bytes) -> bytes:
        """A record as it would be stored, completed."""
        return data if data[_TRACE] != _UNSEEN else self._of_many(digest, data).to_bytes()

    def _of_many(self, digest: bytes, data: bytes) -> MessageRecord:
        try:
            return self.record(digest, data)
        except StoreError:
            return MessageRecord.from_bytes(data)

    def find(self, digest: bytes, txn: "Txn" = None, *, raw: bool = False) -> MessageRecord | None:
        """The record of a message file; `raw`: as it is stored."""
        data = self.messages.get(digest, txn)
        if data is None:
            return None
        return MessageRecord.from_bytes(data) if raw else self.record(digest, data)

    def has(self, beginning: bytes, txn: "Txn" = None) -> bool:
        """Whether there is a message file on record whose digest begins so."""
        with closing(cast("Any", self.messages.scan(beginning, txn=txn, hold=txn is not None))) as rows:
            return any(key.startswith(beginning) for key, _ in itertools.islice(rows, 1))

    def figures(self, digests: NDArray[np.void], txn: "Txn" = None) -> NDArray[Any]:
        """The records of these message files (V32) as an array of STORED, all 0 for one that is not known: no arrival
        has the serial 0."""
        digests = np.ascontiguousarray(digests)       # once, not for each piece
        order = in_order(digests)
        found = np.empty(len(digests), STORED)
        octets = found.view(_OCTETS)
        for at in range(0, len(order), HELD):
            places = order[at:at + HELD]
            octets[places] = self._said(digests.take(places).tolist(), txn).view(_OCTETS)
        return found

    def _said(self, digests: Sequence[bytes], txn: "Txn") -> NDArray[Any]:
        values = self.messages.pick(digests, txn)
        said = np.frombuffer(b"".join([value or _UNKNOWN for value in values]), STORED)
        if (said["trace"] == UNSEEN_TRACE).any():
            said = np.frombuffer(b"".join([self._stored(digest, value or _UNKNOWN) for digest, value
                                           in zip(digests, values, strict=True)]), STORED)
        return said

    def glance(self, digest: bytes) -> MessageRecord | None:
        """The record as it is at this moment (see `btree.Table.glance`)."""
        data = self.messages.glance(digest)
        return self.record(digest, data) if data is not None else None

    def find_to_change(self, digest: bytes, txn: "Txn", *, raw: bool = False) -> MessageRecord | None:
        """`find`, locked to the end of the transaction."""
        data = self.messages.get_to_change(digest, txn)
        if data is None:
            return None
        return MessageRecord.from_bytes(data) if raw else self.record(digest, data)

    def stored_to_change(self, digests: Sequence[bytes], txn: "Txn") -> list[bytes | None]:
        """The records of many files, in order of digest, as they are stored, locked to the end of the transaction."""
        return self.messages.pick_to_change(digests, txn)

    def write(self, digest: bytes, record: MessageRecord, txn: "Txn") -> None:
        """Set the record."""
        self.messages.put(digest, record.to_bytes(), txn)

    def write_as_new(self, digest: bytes, record: MessageRecord, txn: "Txn") -> None:
        """Set the record of a file that has come again, as if the file were new: the log names the digest of each row
        that is added, and so a standby that lacks the file, too, asks for it (`store.standby.logrecords`)."""
        self.messages.delete(digest, txn)
        self.write(digest, record, txn)

    def write_with(self, digest: bytes, record: MessageRecord, count: int, check: int, txn: "Txn") -> None:
        """Set the record to this one with `count` more references, whose marks sum to `check`."""
        self.messages.put(digest, _RECORD.pack(record.serial, record.references + count, record.size, record.trace,
                                               record.released, record.check + check & _MASK), txn)

    def add(self, digest: bytes, count: int, check: int, txn: "Txn") -> None:
        """`count` more index records, whose marks sum to `check`, use the file. Raises StoreError CORRUPT."""
        data = self.messages.get_to_change(digest, txn)
        if data is None:
            raise StoreError(Problem.CORRUPT, detail=f"message {digest.hex()} is not in messages.db")
        serial, references, size, trace, last, before = _RECORD.unpack(data)
        record = _RECORD.pack(serial, references + count, size, trace, last, before + check & _MASK)
        self.messages.put(digest, record, txn)

    def add_all(self, tallies: Iterable[tuple[bytes, int, int]], txn: "Txn") -> None:
        """`add` for many files, in order of digest: it takes half the time. Raises StoreError CORRUPT."""
        given: dict[bytes, tuple[int, int]] = {digest: (count, check) for digest, count, check in tallies}

        def more(digest: bytes, data: bytes | None) -> bytes:
            if data is None:
                raise StoreError(Problem.CORRUPT, detail=f"message {digest.hex()} is not in messages.db")
            (serial, references, size, trace, last, before), (count, check) = _RECORD.unpack(data), given[digest]
            return _RECORD.pack(serial, references + count, size, trace, last, before + check & _MASK)

        self.messages.revise(given, more, txn)

    def release(self, digest: bytes, count: int, check: int, txn: "Txn", when: int | None = None) -> None:
        """`count` index records fewer use the file, as of `when` (now): see `release_all`."""
        self.release_all([(digest, count, check)], int(time.time()) if when is None else when, txn)

    def release_all(self, tallies: Sequence[tuple[bytes, int, int]], when: int, txn: "Txn") -> None:
        """Of each of these files (in order of digest) so many index records fewer use it, and their marks sum to that;
        with the last, it goes on the purge list.

        It waits there since the latest of these times: records of a deleted mailbox are given back late, and what was
        expunged after the mailbox was deleted can still be restored.

        A file with fewer references than are given back, or whose check value does not come out, is reported and left
        alone: a wrong count must never delete mail, nor keep the rest of a mailbox from being expunged.
        """
        unpack, pack = _RECORD.unpack, _RECORD.pack
        waiting: list[tuple[int, int, bytes]] = []
        given = iter(tallies)

        def less(digest: bytes, data: bytes | None) -> bytes | None:
            _, count, check = next(given)
            serial, references, size, trace, last, before = unpack(data) if data else _NOTHING
            if references < count:
                log.error("message %s is released more often than it was used; its file stays", digest.hex())
                return data
            left, after, released = references - count, before - check & _MASK, when if when > last else last
            if not left and after:
                log.error("message %s: what was released is not what used it; its file stays", digest.hex())
                released = 0
            elif not left:
                waiting.append((released, serial, digest))
            return pack(serial, left, size, trace, released, after)

        self.messages.revise([digest for digest, _, _ in tallies], less, txn)
        waiting.sort()              # these rows come behind all others, as the purge locks them
        for released, together in itertools.groupby(waiting, itemgetter(0)):
            digests = [digest for _, _, digest in together]
            for at in range(0, len(digests), LISTED):
                self._list(released, digests[at:at + LISTED], txn)

    def _list(self, released: int, digests: Sequence[bytes], txn: "Txn") -> None:
        """These wait for the purge, as of that Unix time. A list with that key may be there, of the same second."""
        key = _DUE.pack(released) + digests[0]
        there = self._purge.get_to_change(key, txn)
        if there is not None:
            digests = list(dict.fromkeys([*_listed(key, there), *digests]))
        self._purge.put(key, b"".join(digests), txn)

    def park(self, digest: bytes, record: MessageRecord, txn: "Txn") -> None:
        """A file that nothing uses (yet): it waits for the purge, as of `record.released`."""
        self._list(record.released, [digest], txn)
        self.write(digest, record, txn)

    def exchange(self, digest: bytes, old: int, new: int, txn: "Txn") -> None:
        """References whose marks sum to `old` become as many whose marks sum to `new`. Raises StoreError CORRUPT."""
        self.add(digest, 0, new - old, txn)

    def lists(self, until: int, after: bytes = b"", txn: "Txn" = None
              ) -> Generator[tuple[bytes, list[bytes]], None, None]:
        """What lost its last reference up to that Unix time, and was listed together: the key of the list (see
        `since`), and the digests; in order of time, from behind `after`, a key."""
        for key, digests in self._purge.scan(after + b"\0" if after else b"", _DUE.pack(until + 1), txn,
                                          hold=txn is not None):
            yield key, _listed(key, digests)

    def waiting(self, until: int, txn: "Txn" = None) -> Iterator[tuple[int, bytes]]:
        """What `lists` has, one by one: when, and the digest."""
        for key, digests in self.lists(until, txn=txn):
            released = since(key)
            for digest in digests:
                yield released, digest

    def list_for_purge(self, digest: bytes, txn: "Txn") -> None:
        """Have a file that was released on the purge list."""
        record = self.find_to_change(digest, txn, raw=True)
        if record is not None and record.released and not record.references:
            self._list(record.released, [digest], txn)

    def forget(self, digests: Iterable[bytes], is_over: Callable[[bytes, bytes | None], bool], txn: "Txn") -> None:
        """Of these message files, in order of digest, those are no more of which that is said, with the records that
        are there, as they are stored."""
        self.messages.revise(digests, lambda digest, data: None if is_over(digest, data) else data, txn)

    def waits(self, key: bytes, digest: bytes, txn: "Txn" = None) -> bool:
        """Whether a file belongs into the list with that key: it is known, and was released then, or since. (One that
        is used again stays there until its time has come.)"""
        record = self.find(digest, txn, raw=True)
        return record is not None and record.released >= since(key)

    def strike(self, key: bytes, digests: Collection[bytes], txn: "Txn") -> None:
        """Take these off a list of those that wait for the purge."""
        there = self._purge.get_to_change(key, txn)
        if there is None:
            return
        left = [digest for digest in _listed(key, there) if digest not in digests]
        if left:
            self._purge.put(key, b"".join(left), txn)
        else:
            self._purge.delete(key, txn)

    def all_figures(self, most: int, txn: "Txn" = None) -> Iterator[tuple[list[bytes], NDArray[Any]]]:
        """The digests of all message files on record, in order, so many at a time, and their records as they are
        stored: no file is looked at."""
        for digests, stored in self.messages.pieces(most, txn):
            yield digests, np.frombuffer(b"".join(stored), STORED)

    def all(self, txn: "Txn" = None, start: bytes = b"", end: bytes | None = None, *, raw: bool = False
            ) -> Iterator[tuple[bytes, MessageRecord]]:
        """Every message file on record, in order of digest, or those from `start` up to, not including, `end`;
        within a transaction they stay as they are. `raw`: as they are stored."""
        for digest, data in self.messages.scan(start, end, txn, hold=txn is not None):
            yield digest, MessageRecord.from_bytes(data) if raw else self._of_many(digest, data)


def serial_of(stored: bytes) -> int:
    """The arrival serial in a record as it is stored."""
    return int(_RECORD.unpack(stored)[0])


def waits_since(stored: bytes) -> int:
    """When the last reference to a message file went, by its record as it is stored; -1: it has one."""
    _, references, _, _, released, _ = _RECORD.unpack(stored)
    return -1 if references else released


def since(key: bytes) -> int:
    """Since which Unix time those wait for the purge that are in the list with this key."""
    return int(_DUE.unpack_from(key)[0])


def _listed(key: bytes, digests: bytes) -> list[bytes]:
    """The digests in a list: before format 4 it had one, and its value nothing."""
    return [digests[at:at + _MID] for at in range(0, len(digests), _MID)] or [key[_DUE.size:]]


def in_order(digests: NDArray[np.void]) -> NDArray[np.intp]:
    """The places of these digests (V32) in their order: a tenth of what `sorted` takes. Nearly always the first eight
    octets tell. (As S32 numpy compares octet by octet, NULs at the end as any others.)"""
    leads = np.ascontiguousarray(digests).view(">u8")[::4].astype(np.uint64)
    order = np.argsort(leads, kind="stable")
    leads = leads.take(order)
    alike = np.flatnonzero(leads[1:] == leads[:-1])
    if (digests.take(order.take(alike)) != digests.take(order.take(alike + 1))).any():
        return np.argsort(digests.view("S32"), kind="stable")
    return order


def mark(mailbox: MailboxId, uid: int) -> int:
    """A number for a reference, as if drawn at random from 64 bits (the mixing function of SplitMix64)."""
    value = ((mailbox << 32 | uid) + 0x9E3779B97F4A7C15) & _MASK
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    value = (value ^ value >> 27) * 0x94D049BB133111EB & _MASK
    return value ^ value >> 31


def marks(mailbox: MailboxId | NDArray[Any], uids: NDArray[Any]) -> NDArray[np.uint64]:
    """The `mark` of each UID, of one mailbox or each of its own."""
    return _mixed((np.asarray(mailbox, np.uint64) << np.uint64(32)) + uids.astype(np.uint64))


def sum_of_marks(references: list[tuple[MailboxId, int]]) -> int:
    """The sum of the marks of these mailboxes and UIDs."""
    if len(references) < FEW:
        return sum(mark(mailbox, uid) for mailbox, uid in references)
    pairs = np.array(references, np.uint64)
    return int(_mixed((pairs[:, 0] << np.uint64(32)) + pairs[:, 1]).sum())


def _mixed(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    value = value + np.uint64(0x9E3779B97F4A7C15)
    value = (value ^ value >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ value >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return value ^ value >> np.uint64(31)


def tally(mailbox: MailboxId, rows: Rows) -> list[tuple[bytes, int, int]]:
    """The message files that these records use, in order of digest: digest, references, sum of their marks."""
    digests, values = rows["digest"].tolist(), marks(mailbox, rows["uid"]).tolist()
    found = dict(zip(digests, values, strict=True))
    if len(found) == len(digests):                 # each file once, as nearly always
        return [(digest, 1, found[digest]) for digest in sorted(found)]
    counts: dict[bytes, int] = {}
    found = {}
    for digest, value in zip(digests, values, strict=True):
        counts[digest] = counts.get(digest, 0) + 1
        found[digest] = found.get(digest, 0) + value
    return [(digest, counts[digest], found[digest]) for digest in sorted(found)]
