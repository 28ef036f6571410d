"""What lists of messages take from many cache records at once: ENVELOPE, BODYSTRUCTURE, BODY, and header fields."""

from collections.abc import Iterable, Sequence
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from store.message.cacherecord import HEAD, HEAD_ROW, HEAD_SIZE, VERSION, CachedMessage
from store.message.fields import FROM_FIRST, TWO_RUNS, Lister

_HEAD_OF = itemgetter(slice(0, HEAD_SIZE))          # of a stored record
_NO_ENDS: NDArray[np.int64] = np.empty((5, 0), np.int64)


class CachedBatch:
    """The cache records of some messages, of which all give the same: no message gets an object of its own."""

    __slots__ = ("_ends", "_values")

    def __init__(self, values: Sequence[bytes], ends: NDArray[np.int64]) -> None:
        """`of` and `of_records` make one; `ends` has a column for each, see `CachedMessage`."""
        self._values = values
        self._ends = ends

    @classmethod
    def of(cls, values: Sequence[bytes | None], digests: NDArray[np.void]) -> "CachedBatch | None":
        """Out of their stored forms; None unless all are there, and what `CachedMessage.from_bytes` finds good records
        of the message files with these digests (V32)."""
        there = [value for value in values if value is not None]
        heads = b"".join(map(_HEAD_OF, there))
        if len(heads) != len(values) * HEAD_SIZE:
            return None
        rows = np.frombuffer(heads, HEAD_ROW)
        ends = rows["octets"].T.astype(np.int64, "C")
        ends[0] += HEAD_SIZE
        np.cumsum(ends, 0, out=ends)
        sizes = np.fromiter(map(len, there), np.int64, len(there))
        sound = rows["digest"].tobytes() == digests.tobytes() and (rows["version"] == VERSION).all() and (
            ends[4] < sizes).all()
        return cls(there, ends) if sound else None

    @classmethod
    def of_records(cls, records: Sequence[CachedMessage]) -> "CachedBatch":
        """Those of records that have been read."""
        return cls([one.data for one in records], np.array([one.ends for one in records], np.int64).reshape(-1, 5).T)

    def envelopes(self) -> list[bytes]:
        """ENVELOPE of each."""
        return [value[HEAD_SIZE:end] for value, end in zip(self._values, self._ends[0].tolist(), strict=True)]

    def bodystructures(self) -> list[bytes]:
        """BODYSTRUCTURE of each."""
        return self._between(0)

    def bodies(self) -> list[bytes]:
        """BODY of each."""
        return self._between(1)

    def _between(self, at: int) -> list[bytes]:
        begins, ends = self._ends[at:at + 2].tolist()
        return [value[begin:end] for value, begin, end in zip(self._values, begins, ends, strict=True)]

    def listed(self, lists: Sequence[Lister]) -> list[list[bytes]] | None:
        """For each of these the header fields of each message; None if a record has none."""
        begins, ends = self._ends[3:]
        if (begins == ends).any():
            return None
        first, last = begins.tolist(), ends.tolist()
        return [one.of_many(self._values, first, last) for one in lists]


class CutBatch(CachedBatch):
    """ENVELOPE, BODYSTRUCTURE and BODY of some messages, cut out of their cache records; there are no header fields."""

    __slots__ = ("_found",)

    def __init__(self, found: tuple[list[bytes], list[bytes], list[bytes]]) -> None:
        """`of_rows` makes one."""
        super().__init__((), _NO_ENDS)
        self._found = found

    @classmethod
    def of_rows(cls, rows: Iterable[tuple[bytes, bytes]], keys: Sequence[bytes], digests: Sequence[bytes]
                ) -> "CutBatch | None":
        """Of stored records, as `listed_of_rows`."""
        found: tuple[list[bytes], list[bytes], list[bytes]] = [], [], []
        envelopes, structures, bodies = [one.append for one in found]
        unpack = HEAD.unpack_from
        for (key, value), wanted, digest in zip(rows, keys, digests):       # noqa: B905 (there may be too few rows)
            if key != wanted or len(value) < HEAD_SIZE:
                return None
            named, _, version, first, second, third, references, fields = unpack(value)
            first += HEAD_SIZE
            second += first
            third += second
            if named != digest or version != VERSION or third + references + fields >= len(value):
                return None
            envelopes(value[HEAD_SIZE:first])
            structures(value[first:second])
            bodies(value[second:third])
        return cls(found) if len(found[0]) == len(keys) else None

    def envelopes(self) -> list[bytes]:
        return self._found[0]

    def bodystructures(self) -> list[bytes]:
        return self._found[1]

    def bodies(self) -> list[bytes]:
        return self._found[2]

    def listed(self, lists: Sequence[Lister]) -> list[list[bytes]] | None:
        return None


def listed_of_rows(lister: Lister, rows: Iterable[tuple[bytes, bytes]], keys: Sequence[bytes], digests: Sequence[bytes]
                   ) -> list[bytes] | None:
    """`CachedBatch.listed` of stored records, which are taken one after the other: none is kept while the next is read,
    so all come to lie in the same memory. None unless each is under its key, and good."""
    found: list[bytes] = []
    add, plans, unpack = found.append, lister.plans, HEAD.unpack_from
    for (key, value), wanted, digest in zip(rows, keys, digests):       # noqa: B905 (there may be too few rows)
        if key != wanted or len(value) < HEAD_SIZE:
            return None
        named, _, version, envelope, structure, body, references, fields = unpack(value)
        at = HEAD_SIZE + envelope + structure + body + references
        end = at + fields
        if named != digest or version != VERSION or not fields or end >= len(value):
            return None
        numbers = value[at:at + 1 + value[at]]
        edges_of, skipped, count = plans.get(numbers) or lister.plan(numbers)
        if count == FROM_FIRST:                 # as from most messages
            run, last = edges_of(value, at)
            at += skipped
            add(value[at:at + run] + value[at + last:end])
        elif count == TWO_RUNS:                 # as from answers
            run, start, stop, last = edges_of(value, at)
            at += skipped
            add(value[at:at + run] + value[at + start:at + stop] + value[at + last:end])
        else:
            add(lister(value[at:end]))
    return found if len(found) == len(keys) else None


NO_RECORDS = CachedBatch((), _NO_ENDS)
