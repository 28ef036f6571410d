"""Sets of message numbers: sequence-set of RFC 3501 §9, §6.4.8; `scanner` reads them off a command."""

from collections.abc import Iterable, Iterator
from itertools import chain

import numpy as np
from attrs import frozen
from numpy.typing import ArrayLike, NDArray

from imap.wire.grammar import MAX_NUMBER, SyntaxProblem

NUMBERS_AT_A_TIME = 10_000  # numbers that are written at a time: a millisecond or two
FEW = 100       # numbers that are written one after the other
STAR = 0        # "*" in a range: the largest number in use

Indices = NDArray[np.intp]


@frozen
class NumberSet:
    """sequence-set: ranges as the client wrote them, (n, n) for a single number, STAR for "*".

    `saved`: it is "$", what the last SEARCH saved (RFC 5182), which only a session knows; there are no ranges.
    """

    ranges: tuple[tuple[int, int], ...]
    saved: bool = False

    def __bytes__(self) -> bytes:
        if self.saved:
            return b"$"
        return b",".join(_range_bytes(first, last) for first, last in self.ranges)

    def resolve(self, largest: int) -> list[tuple[int, int]]:
        """The ranges in ascending order, joined where they touch, with `largest` for "*".

        When nothing is there (`largest` 0), "*" stands for nothing, and a range with it for nothing.
        """
        if len(self.ranges) == 1:
            (first, last), = self.ranges
            if not largest and STAR in (first, last):
                return []
            first, last = first or largest, last or largest
            return [(first, last) if first <= last else (last, first)]
        return list(map(tuple, self.joined(largest).tolist()))

    def joined(self, largest: int) -> NDArray[np.int64]:
        """What `resolve` gives, as an array: there may be 20,000 ranges."""
        if len(self.ranges) == 1:
            return np.array(self.resolve(largest), dtype=np.int64).reshape(-1, 2)
        pairs = np.fromiter(chain.from_iterable(self.ranges), np.int64, 2 * len(self.ranges)).reshape(-1, 2)
        stars = pairs == STAR
        if largest:
            pairs[stars] = largest
        else:
            pairs = pairs[~stars.any(axis=1)]
        if len(pairs) < 2:
            return np.sort(pairs, axis=1)
        pairs.sort(axis=1)
        pairs = pairs[np.argsort(pairs[:, 0], kind="stable")]
        ends = np.maximum.accumulate(pairs[:, 1])
        new = pairs[1:, 0] > ends[:-1] + 1
        return np.stack((pairs[np.append(True, new), 0], ends[np.append(new, True)]), axis=1)

    def select(self, uids: NDArray[np.unsignedinteger]) -> Indices:
        """Which of `uids` (ascending) are in this set of UIDs: ascending indices. UIDs not in use are passed over."""
        if not len(uids):
            return np.empty(0, dtype=np.intp)
        ranges = self.joined(int(uids[-1]))
        # Clipped, so that the ranges can have the type of `uids`: searchsorted would else convert all of `uids`.
        ranges = np.minimum(ranges, MAX_NUMBER).astype(uids.dtype)
        starts = np.searchsorted(uids, ranges[:, 0], side="left")
        ends = np.searchsorted(uids, ranges[:, 1], side="right")
        return _spans(starts, ends)

    def positions(self, count: int) -> Indices:
        """The messages with these sequence numbers in a mailbox of `count`, as ascending indices from 0.

        Raises SyntaxProblem if one is not there, as "*" is not in an empty mailbox (RFC 3501 §9 seq-number).
        """
        ranges = self.joined(count)
        if not count or ranges[-1, 1] > count:
            raise SyntaxProblem("There is no message of that number")
        return _spans(ranges[:, 0] - 1, ranges[:, 1])


ALL = NumberSet(((1, STAR),))
SAVED = NumberSet((), saved=True)


def format_numbers(numbers: ArrayLike) -> bytes:
    """sequence-set of these numbers in this order, runs joined: "1:3,5". Of nothing, nothing, which is no sequence-set.

    The two sets of COPYUID go in step (RFC 4315 §3): the order is kept, and nothing is left out.
    """
    values = np.asarray(numbers)
    if len(values) < 2:             # most answers name one message
        return b"%d" % values[0] if len(values) else b""
    return b",".join(set_pieces(values))


def set_pieces(values: NDArray[np.integer]) -> Iterator[bytes]:
    """sequence-set of an array of numbers, in parts to be joined with commas: none of them is long work."""
    new = np.flatnonzero(np.diff(values) != 1)
    firsts, lasts = values[np.concatenate(([0], new + 1))], values[np.concatenate((new, [len(values) - 1]))]
    for at in range(0, len(firsts), NUMBERS_AT_A_TIME):
        yield format_ranges(firsts[at:at + NUMBERS_AT_A_TIME], lasts[at:at + NUMBERS_AT_A_TIME])


def list_pieces(numbers: NDArray[np.integer]) -> Iterable[bytes]:
    """Each of these numbers, none of which is 0, after a blank, in pieces; a tuple of one when they are not many."""
    if len(numbers) <= NUMBERS_AT_A_TIME:
        return _listed(numbers),
    return (_listed(numbers[at:at + NUMBERS_AT_A_TIME]) for at in range(0, len(numbers), NUMBERS_AT_A_TIME))


def _listed(numbers: NDArray[np.integer]) -> bytes:
    """Each of these numbers after a blank, several times as fast as one number after the other: a table has the digits
    of all below 10,000, and of a larger number four digits at a time are taken from it, right to left."""
    if not len(numbers):
        return b""
    if len(numbers) < FEW:
        return (" " + str(numbers.tolist())[1:-1].replace(",", "")).encode("ascii")
    left, groups = numbers.astype(np.uint32), list[NDArray[np.uint32]]()
    while left[left.argmax()] >= _FOUR_DIGITS:
        higher = left // _FOUR_DIGITS
        lower = left - higher * _FOUR_DIGITS
        lower[higher > 0] += _FOUR_DIGITS
        groups.insert(0, _DIGITS[lower])
        left = higher
    groups.insert(0, _DIGITS[left])
    octets = np.empty(len(left), _NUMBERS[len(groups)])
    octets["blank"] = ord(" ")
    for name, digits in zip("abc", groups, strict=False):
        octets[name] = digits
    return octets.tobytes().translate(None, b"\0")


def _digits() -> NDArray[np.uint32]:
    """The four octets of each number below 10,000, first with NUL in the place of leading zeros, then with these; of 0
    alone there is nothing."""
    numbers = np.arange(_FOUR_DIGITS, dtype=np.uint32)[:, np.newaxis]
    zeros = (numbers // np.array([1000, 100, 10, 1]) % 10 + ord("0")).astype(np.uint8)
    none = zeros * (numbers >= np.array([1000, 100, 10, 1]))
    return np.concatenate((none.astype(np.uint8), zeros)).view(np.uint32).ravel()


_FOUR_DIGITS = np.uint32(10_000)
_DIGITS = _digits()
#: A number of so many groups of digits, as it is written.
_NUMBERS = [np.dtype([("blank", np.uint8), *((name, np.uint32) for name in "abc"[:groups])]) for groups in range(4)]


def format_ranges(firsts: NDArray[np.integer], lasts: NDArray[np.integer]) -> bytes:
    """sequence-set of these ranges, of which there must be one."""
    single = firsts == lasts        # written with the C code of list and %, a fifth of the time of a loop
    if single.all():
        return str(firsts.tolist())[1:-1].replace(" ", "").encode("ascii")
    both = np.column_stack((firsts, lasts)).ravel()[np.column_stack((np.ones_like(single), ~single)).ravel()]
    form = ",".join([_FORMS[one] for one in single.tolist()])
    return (form % tuple(both.tolist())).encode("ascii")


_FORMS = ("%d:%d", "%d")


def _range_bytes(first: int, last: int) -> bytes:
    start = b"%d" % first if first else b"*"
    return start if first == last else start + b":" + (b"%d" % last if last else b"*")


def _spans(starts: Indices, ends: Indices) -> Indices:
    """All of start..end-1 of each pair, one after the other."""
    if len(starts) == 1:
        return np.arange(starts[0], ends[0], dtype=np.intp)
    lengths = ends - starts
    offsets = np.repeat(starts - np.concatenate(([0], np.cumsum(lengths)[:-1])), lengths)
    return (np.arange(len(offsets)) + offsets).astype(np.intp, copy=False)
