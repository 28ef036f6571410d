"""What can be found out of records in damaged chunks, from all that can still be read of a partition.

`messages.db` has the number of references to each message file and the sum of their marks. What the records that can
be read leave over of both are the references in damaged chunks; and the sum tells which mailboxes and UIDs these are,
since no two have the same mark.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from attrs import define, field, frozen
from numpy.typing import NDArray

from mboxlist.engine.btree import Txn
from mboxlist.entry import MailboxId
from store.partition.partition import Partition
from store.partition.records import Owned, are_sound, every_reference, sound
from store.tables.index import CHUNK, ROW, TRAILER, Rows, chunk_key, chunk_of_key, is_divided, records_of, writable
from store.tables.references import MessageRecord, mark, marks

MESSAGES_AT_A_TIME = 10_000              # messages whose references are compared at a time
PAIRS = 50_000_000          # sums that are tried, at most, to find two references each that are missing
_MASK = (1 << 64) - 1

Reference = tuple[int, int]     # mailbox, UID


@frozen(eq=False)
class Chunk:
    """A chunk that cannot be used as it is."""

    mailbox: MailboxId
    number: int
    value: bytes

    def candidates(self) -> Iterator[Any]:
        """What may be its records. Octets that were lost or added in the middle move those behind them."""
        if is_divided(self.value):
            yield from np.frombuffer(records_of(self.value), ROW)
            return
        data = self.value[:-TRAILER]
        over = len(data) % ROW.itemsize
        yield from np.frombuffer(data[:len(data) - over], ROW)
        if over:
            yield from np.frombuffer(data[over:], ROW)

    def has(self, uid: int) -> bool:
        """Whether a record of that UID belongs into it."""
        return self.number * CHUNK < uid <= (self.number + 1) * CHUNK


@frozen(eq=False)
class Salvaged:
    """What `messages.db` knows of the records in damaged chunks.

    `placed`: the message of each UID for which it is certain. `open`: by digest, how many references there are besides
    of which it is not known where they were.
    """

    broken: list[Chunk]
    placed: dict[Reference, tuple[bytes, MessageRecord]] = field(factory=dict)
    open: dict[bytes, int] = field(factory=dict)


def broken_chunks(partition: Partition, mailbox: MailboxId) -> list[Chunk]:
    """The mailbox's chunks that cannot be used as they are."""
    start, end = chunk_key(mailbox, 0), chunk_key(MailboxId(mailbox + 1), 0)
    chunks = [(chunk_of_key(key)[1], value) for key, value in partition.index.scan(start, end)]
    if are_sound(chunks):
        return []
    return [Chunk(mailbox, number, value) for number, value in chunks if not sound(mailbox, number, value)]


def readable(mailbox: MailboxId, chunks: Iterable[tuple[bytes, bytes]]) -> tuple[Rows, list[int]]:
    """The records of a mailbox's chunks that can be read, and the numbers of those that cannot."""
    values, broken = [], []
    for key, value in chunks:
        number = chunk_of_key(key)[1]
        if sound(mailbox, number, value):
            values.append(value)
        else:
            broken.append(number)
    return writable(values), broken


@define(eq=False)
class Counts:
    """How many records use each message file, by its arrival serial (ascending), and the sums of their marks."""

    serials: NDArray[np.uint64]
    references: NDArray[np.int64]
    checks: NDArray[np.uint64]
    known: NDArray[np.bool_] = field(init=False)        # which of them `differing` came upon in messages.db

    @classmethod
    def of(cls, owned: Iterable[Owned]) -> "Counts":
        """Of records and the ids of their mailboxes."""
        serials, values = [np.empty(0, np.uint64)], [np.empty(0, np.uint64)]
        for owners, rows in owned:
            serials.append(rows["serial"].copy())
            values.append(marks(owners, rows["uid"]))
        serial, value = np.concatenate(serials), np.concatenate(values)
        order = np.argsort(serial, kind="stable")
        serial = serial[order]
        starts = np.flatnonzero(np.append(True, serial[1:] != serial[:-1])) if len(serial) else np.empty(0, np.int64)
        checks = np.add.reduceat(value[order], starts) if len(starts) else value
        return cls(serial[starts], np.diff(starts, append=len(serial)), checks)

    def differing(self, partition: Partition, txn: Txn = None) -> Iterator[tuple[bytes, MessageRecord, int, int]]:
        """The messages of which messages.db says otherwise: digest, record as it is stored, what was counted, sum of
        the marks."""
        self.known = np.zeros(len(self.serials), np.bool_)
        for digests, said in partition.refs.all_figures(MESSAGES_AT_A_TIME, txn):
            references, checks = self._find(said["serial"])
            for at in np.flatnonzero((references != said["references"]) | (checks != said["check"])).tolist():
                yield (digests[at], MessageRecord.from_bytes(said[at].tobytes()), int(references[at]), int(checks[at]))

    def _find(self, serials: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
        if not len(self.serials):
            return np.zeros(len(serials), np.int64), np.zeros(len(serials), np.uint64)
        at = np.minimum(np.searchsorted(self.serials, serials), len(self.serials) - 1)
        there = self.serials[at] == serials
        self.known[at[there]] = True
        return np.where(there, self.references[at], 0), np.where(there, self.checks[at], np.uint64(0))


@define(eq=False)
class Possible:
    """References that there may have been, in order of their marks. `left`: sums that are tried to find two of them;
    with so much missing the search would take for ever."""

    marks: NDArray[np.uint64]
    mailboxes: NDArray[np.uint64]
    uids: NDArray[np.uint64]
    left: int = PAIRS

    @classmethod
    def of(cls, ranges: Iterable[tuple[MailboxId, int, int]]) -> "Possible":
        """Those of these mailboxes, from one UID up to, not including, another."""
        mailboxes, uids = [np.empty(0, np.uint64)], [np.empty(0, np.uint64)]
        for mailbox, first, end in ranges:
            uids.append(np.arange(first, max(first, end), dtype=np.uint64))
            mailboxes.append(np.full(len(uids[-1]), mailbox, np.uint64))
        owners, owned = np.concatenate(mailboxes), np.concatenate(uids)
        values = marks(owners, owned)
        order = np.argsort(values, kind="stable")
        return cls(values[order], owners[order], owned[order])

    def one(self, total: int) -> list[Reference] | None:
        """The one whose mark that is."""
        at = int(np.searchsorted(self.marks, np.uint64(total)))
        return [self._reference(at)] if at < len(self.marks) and int(self.marks[at]) == total else None

    def two(self, total: int) -> list[Reference] | None:
        """Two whose marks have that sum."""
        self.left -= len(self.marks)
        if self.left < 0 or not len(self.marks):
            return None
        others = np.full(len(self.marks), total, np.uint64) - self.marks
        at = np.minimum(np.searchsorted(self.marks, others), len(self.marks) - 1)
        found = np.flatnonzero((self.marks[at] == others) & (at != np.arange(len(at))))
        return [self._reference(int(found[0])), self._reference(int(at[found[0]]))] if len(found) else None

    def _reference(self, at: int) -> Reference:
        return int(self.mailboxes[at]), int(self.uids[at])


def gather(partition: Partition) -> Salvaged:
    """All that can be found out of the partition's damaged chunks. What changes meanwhile stays open, at worst: a
    sum of marks that is not of one moment is that of no reference."""
    broken: list[Chunk] = []

    def usable(mailbox: MailboxId, number: int, value: bytes) -> bool:
        if sound(mailbox, number, value):
            return True
        broken.append(Chunk(mailbox, number, value))
        return False

    counts = Counts.of(every_reference(partition, usable=usable))
    salvaged = Salvaged(broken)
    if not broken:
        return salvaged
    possible = Possible.of((chunk.mailbox, chunk.number * CHUNK + 1, (chunk.number + 1) * CHUNK + 1)
                           for chunk in broken)
    claimed: dict[bytes, set[Reference]] = {}
    for chunk in broken:
        for row in chunk.candidates():
            if chunk.has(int(row["uid"])):
                claimed.setdefault(bytes(row["digest"]), set()).add((chunk.mailbox, int(row["uid"])))
    for digest, record, references, check in counts.differing(partition):
        missing = record.references - references
        found = solve(missing, record.check - check & _MASK, claimed.get(digest, set()), possible)
        if found is not None:
            known = partition.refs.complete(digest, record)
            salvaged.placed.update((reference, (digest, known)) for reference in found)
        elif missing > 0:
            salvaged.open[digest] = missing
    return salvaged


def solve(missing: int, total: int, claimed: set[Reference], possible: Possible) -> list[Reference] | None:
    """The `missing` references whose marks sum to `total`, if they can be found."""
    if missing == len(claimed) and sum(mark(MailboxId(mailbox), uid) for mailbox, uid in claimed) & _MASK == total:
        return list(claimed)
    if missing == 1:
        return possible.one(total)
    return possible.two(total) if missing == 2 else None
