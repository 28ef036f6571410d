"""Which message files records refer to, how often, and what the records say of them: counted in one pass over many
millions of records, while they are read or written."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from attrs import define, field
from numpy.typing import NDArray

from store.partition.messagereading import MID_OCTETS
from store.partition.partition import Partition
from store.tables.index import Rows
from store.tables.privateheaders import UNKNOWN
from store.tables.references import STORED, MessageRecord, marks

RECORDS_AT_A_TIME = 200_000 # that are counted
CLAIMS_HELD = 4_000_000     # claims that are held before those of the same files are joined; serials below it have
# places of their own, which takes a fifth of the time
_ODD = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F), np.uint64(0x165667B19E3779F9))

CLAIM = np.dtype([
    ("serial", "<u8"),
    ("digest", "V32"),
    ("references", "<i8"),
    ("check", "<u8"),           # the sum of their marks: see refs
    ("header_length", "<u4"),            # the most that any of them skips
    ("size", "<u8"),            # octets of the file, 0 where none of them knows
])
Claims = NDArray[Any]       # of CLAIM
Digests = NDArray[Any]      # of 32 octets


@define(eq=False)
class Known:
    """What messages.db says: the digests of message files, in order, and the STORED of each."""

    digests: Digests
    stored: NDArray[Any]

    @classmethod
    def of(cls, partition: Partition) -> "Known":
        """All of it."""
        parts = [(b"".join(digests), stored) for digests, stored in partition.refs.all_figures(RECORDS_AT_A_TIME)]
        return cls(np.frombuffer(b"".join([digests for digests, _ in parts]), f"V{MID_OCTETS}"),
                   np.concatenate([np.empty(0, STORED), *(stored for _, stored in parts)]))

    def record(self, at: int) -> MessageRecord:
        """One of them."""
        return MessageRecord.from_bytes(self.stored[at].tobytes())

    def differing(self, claims: Claims) -> Iterator[tuple[int, int, int]]:
        """Those of which records say otherwise: which, how many records there are, the sum of their marks."""
        places = places_among(self.digests, claims["digest"])
        there = places >= 0
        references, checks = np.zeros(len(places), np.int64), np.zeros(len(places), np.uint64)
        references[there], checks[there] = claims["references"][places[there]], claims["check"][places[there]]
        for at in np.flatnonzero((references != self.stored["references"]) | (checks != self.stored["check"])).tolist():
            yield at, int(references[at]), int(checks[at])


@define(eq=False)
class Gathered:
    """What has been counted. `clash`: records say two serials of one file, or two files of one serial. So many records
    are counted `at_a_time`; serials below `most` have a place of their own."""

    partition: Partition
    at_a_time: int = RECORDS_AT_A_TIME
    most: int = CLAIMS_HELD
    clash: bool = False
    _by_serial: "_BySerial" = field(factory=lambda: _BySerial())
    _rows: list[tuple[Any, Rows]] = field(factory=list)     # mailbox, or the mailbox of each
    _held: int = 0
    _joined_claims: list[Claims] = field(factory=list)             # of serials from CLAIMS_HELD on
    _claims: int = 0

    def add(self, mailbox: Any, rows: Rows) -> None:
        """These records of a mailbox, or of one for each."""
        if len(rows):
            self._rows.append((mailbox, rows))
            self._held += len(rows)
        if self._held >= self.at_a_time:
            self._count()

    def all(self) -> Claims:
        """One for each file, in order of digest."""
        self._count()
        self._join()
        claims, clash = self._by_serial.all()
        claims = np.concatenate([claims, *self._joined_claims]) if self._joined_claims else claims
        claims = claims[order_of(claims["digest"])]
        octets = words(claims["digest"])
        self.clash |= clash or bool((octets[1:] == octets[:-1]).all(axis=1).any())
        return claims

    def _count(self) -> None:
        if not self._rows:
            return
        parts, self._rows, self._held = self._rows, [], 0
        made = np.empty(sum(len(rows) for _, rows in parts), CLAIM)
        at = 0
        for mailbox, rows in parts:
            there = made[at:at + len(rows)]
            at += len(rows)
            for name in ("serial", "digest", "header_length"):
                there[name] = rows[name]
            there["references"] = 1
            there["check"] = marks(mailbox, rows["uid"])
            there["size"] = rows["size"] + rows["header_length"]
            if rows["head"].any():
                private_headers = self.partition.private_headers.sizes(rows)
                there["size"] = np.where(private_headers == UNKNOWN, 0,
                                         there["size"].astype(np.int64) - private_headers)
        small = made["serial"] < self.most
        if not small.all():
            self._joined_claims.append(self._joined(made[~small]))
            self._claims += len(self._joined_claims[-1])
            made = made[small]
        self._by_serial.add(made)
        if self._claims > self.most:
            self._join()

    def _join(self) -> None:
        if len(self._joined_claims) > 1:
            self._joined_claims = [self._joined(np.concatenate(self._joined_claims))]
            self._claims = len(self._joined_claims[0])

    def _joined(self, claims: Claims) -> Claims:
        """One for each serial."""
        claims = claims[np.argsort(claims["serial"], kind="stable")]
        new = np.concatenate([[True], claims["serial"][1:] != claims["serial"][:-1]])
        octets = words(claims["digest"])
        self.clash |= bool(((octets[1:] != octets[:-1]).any(axis=1) & ~new[1:]).any())
        starts = np.flatnonzero(new)
        made = claims[starts]
        made["references"] = np.add.reduceat(claims["references"], starts)
        made["check"] = np.add.reduceat(claims["check"], starts)
        made["header_length"] = np.maximum.reduceat(claims["header_length"], starts)
        made["size"] = np.maximum.reduceat(claims["size"], starts)
        return made


@define(eq=False)
class _BySerial:
    """Claims in the places that their serials say, one for each serial. `sums` are those of all digests that records
    have said there, by which one that is not like the others is noticed: to compare each takes as long as all else."""

    references: NDArray[np.int64] = field(factory=lambda: np.zeros(0, np.int64))
    check: NDArray[np.uint64] = field(factory=lambda: np.zeros(0, np.uint64))
    header_length: NDArray[np.uint32] = field(factory=lambda: np.zeros(0, np.uint32))
    size: NDArray[np.uint64] = field(factory=lambda: np.zeros(0, np.uint64))
    sums: NDArray[np.uint64] = field(factory=lambda: np.zeros(0, np.uint64))
    digests: NDArray[np.uint64] = field(factory=lambda: np.zeros((0, 4), np.uint64))

    def add(self, claims: Claims) -> None:
        """Of one record each."""
        if not len(claims):
            return
        at, digests = claims["serial"].astype(np.intp), words(claims["digest"])
        room = int(at.max()) + 1 - len(self.references)
        if room > 0:
            self._grow(max(room, len(self.references) // 2))
        new = self.references[at] == 0
        self.digests[at[new]] = digests[new]
        np.add.at(self.references, at, 1)
        np.add.at(self.sums, at, _mixed(digests))
        check, header_length, size = (np.ascontiguousarray(claims[name]) for name in ("check", "header_length", "size"))
        np.add.at(self.check, at, check)            # of a column of the claims it takes fifteen times as long
        np.maximum.at(self.header_length, at, header_length)
        np.maximum.at(self.size, at, size)

    def _grow(self, room: int) -> None:
        for name in ("references", "check", "header_length", "size", "sums", "digests"):
            there = getattr(self, name)
            setattr(self, name, np.concatenate([there, np.zeros((room, *there.shape[1:]), there.dtype)]))

    def all(self) -> tuple[Claims, bool]:
        """In order of serial, and whether some serial is two files'."""
        at = np.flatnonzero(self.references)
        found, digests = np.empty(len(at), CLAIM), self.digests[at]
        found["serial"] = at
        found["digest"] = digests.view("V32")[:, 0]
        for name in ("references", "check", "header_length", "size"):
            found[name] = getattr(self, name)[at]
        clash = _mixed(digests) * self.references[at].astype(np.uint64) != self.sums[at]
        return found, bool(clash.any())


def _mixed(digests: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Digests as one number each."""
    found: NDArray[np.uint64] = digests[:, 0] + digests[:, 1] * _ODD[0]
    found += digests[:, 2] * _ODD[1]
    found += digests[:, 3] * _ODD[2]
    return found


def words(digests: NDArray[Any]) -> NDArray[np.uint64]:
    """Digests as four numbers each, which compare a hundred times as fast."""
    found: NDArray[np.uint64] = np.ascontiguousarray(digests).view("<u8").reshape(-1, 4)
    return found


def order_of(digests: NDArray[Any]) -> NDArray[np.intp]:
    """The order of digests as octets."""
    octets = np.ascontiguousarray(digests).view(">u8").reshape(-1, 4)
    return np.lexsort((octets[:, 3], octets[:, 2], octets[:, 1], octets[:, 0]))


def places_among(digests: Digests, others: Digests) -> NDArray[np.intp]:
    """Where each of these digests is among the others, which are all different; -1 where it is not."""
    found = np.full(len(digests), -1, np.intp)
    if not len(digests) or not len(others):
        return found
    first, wanted = (np.ascontiguousarray(each).view(">u8")[::4].astype(np.uint64) for each in (others, digests))
    order = np.argsort(first, kind="stable")            # digests are in order nearly always, which is quick
    first, theirs, ours = first[order], words(others)[order], words(digests)
    at = np.searchsorted(first, wanted)
    left = np.ones(len(ours), np.bool_)
    while left.any():                               # some may begin with the same octets as others
        left &= at < len(theirs)
        place = np.minimum(at, len(theirs) - 1)
        left &= first[place] == wanted
        same = left & (theirs[place] == ours).all(axis=1)
        found[same] = order[place[same]]
        left &= ~same
        at = at + 1
    return found
