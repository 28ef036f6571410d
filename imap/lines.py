"""Untagged responses about many messages at once: one format, columns of values, one join. Pure.

No message gets an object or a call of its own; that is what makes FETCH of FLAGS run at millions a second.
"""

import datetime
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from imap.wire.dates import MONTHS
from imap.wire.flags import format_flags
from store.tables.index import Rows

Mask = NDArray[np.bool_]
Positions = NDArray[np.intp]        # 0-based places in a session's numbering, ascending

_RECENT_BIT = 32
_SYSTEM = 31                # all of values.Flag
_CODES = 64
_DAY = 86400
_EPOCH = datetime.date(1970, 1, 1).toordinal()


def format_lines(form: bytes, columns: Sequence[Sequence[Any]]) -> bytes:
    """`form`, a bytes % format of one line, filled for each message with the n-th value of every column."""
    count = len(columns[0])
    values: list[Any] = [None] * (count * len(columns))
    for at, column in enumerate(columns):
        values[at::len(columns)] = column
    return (form * count) % tuple(values)


def flag_lists(rows: Rows, recent: Mask, keywords: Sequence[str]) -> list[bytes]:
    """The flag list of each message, in parentheses. Each combination that occurs is rendered once."""
    codes = (rows["flags"] & _SYSTEM).astype(np.int64)
    codes[recent] |= _RECENT_BIT
    used = rows["keywords"]
    if not used.any():
        return [_SYSTEM_LISTS[code] for code in codes.tolist()]
    bits, which = np.unique(used, return_inverse=True)
    codes += which * _CODES
    sets = [tuple([name for at, name in enumerate(keywords) if word >> at & 1]) for word in bits.tolist()]
    table = {code: _flag_list(code % _CODES, sets[code // _CODES]) for code in np.unique(codes).tolist()}
    return [table[code] for code in codes.tolist()]


def dates(rows: Rows) -> tuple[list[bytes], list[bytes], list[bytes], list[bytes]]:
    """Columns for `DATE_FORM`: the internal date of each message in its own zone (RFC 3501 §9 date-time)."""
    zones = rows["zone"]
    local = rows["received"] + zones.astype(np.int64) * 60
    days, seconds = np.divmod(local, _DAY)
    minutes, seconds = np.divmod(seconds, 60)
    return ([_day(day) for day in days.tolist()], _MINUTES[minutes].tolist(), _SECONDS[seconds].tolist(),
            [_zone(zone) for zone in zones.tolist()])


FLAGS_FORM = b"* %d FETCH (FLAGS %b)\r\n"
UID_FORM = b"* %d FETCH (UID %d FLAGS %b)\r\n"
MODSEQ_FORM = b"* %d FETCH (UID %d FLAGS %b MODSEQ (%d))\r\n"
DATE_FORM = b'"%b %b:%b %b"'
_MINUTES = np.array([b"%02d:%02d" % divmod(minute, 60) for minute in range(1440)])       # of a day
_SECONDS = np.array([b"%02d" % second for second in range(60)])


def flags_changed(positions: Positions, rows: Rows, recent: Mask, keywords: Sequence[str], *, by_uid: bool,
                  modseqs: NDArray[np.uint64] | None = None) -> bytes:
    """FETCH responses that tell the flags of these messages (RFC 3501 §7.4.2); `by_uid` adds the UID (§6.4.8),
    `modseqs` that and the MODSEQ (RFC 7162 §3.2.4)."""
    if not len(positions):
        return b""
    numbers, flags = (positions + 1).tolist(), flag_lists(rows, recent, keywords)
    if modseqs is not None:
        return format_lines(MODSEQ_FORM, (numbers, rows["uid"].tolist(), flags, modseqs.tolist()))
    if by_uid:
        return format_lines(UID_FORM, (numbers, rows["uid"].tolist(), flags))
    return format_lines(FLAGS_FORM, (numbers, flags))


def flags_changed_of(number: int, uid: int, flags: bytes, modseq: int, *, by_uid: bool, modseqs: bool) -> bytes:
    """`flags_changed` of one message."""
    if modseqs:
        return MODSEQ_FORM % (number, uid, flags, modseq)
    return UID_FORM % (number, uid, flags) if by_uid else FLAGS_FORM % (number, flags)


def modseqs_changed(positions: Positions, uids: NDArray[np.uint32], modseqs: NDArray[np.uint64]) -> bytes:
    """FETCH responses that tell the MODSEQs of messages whose flags the client knows (RFC 7162 §3.1.3)."""
    if not len(positions):
        return b""
    return format_lines(b"* %d FETCH (UID %d MODSEQ (%d))\r\n",
                        ((positions + 1).tolist(), uids.tolist(), modseqs.tolist()))


def expunged(positions: Positions) -> bytes:
    """EXPUNGE responses (RFC 3501 §7.4.1). The highest number comes first, so that none of them moves another."""
    if not len(positions):
        return b""
    return format_lines(b"* %d EXPUNGE\r\n", ((positions[::-1] + 1).tolist(),))


def _flag_list(code: int, keywords: tuple[str, ...]) -> bytes:
    return format_flags(code & _SYSTEM, keywords, bool(code & _RECENT_BIT))


_SYSTEM_LISTS = tuple(_flag_list(code, ()) for code in range(_CODES))


@lru_cache(maxsize=4096)
def _day(day: int) -> bytes:
    date = datetime.date.fromordinal(min(max(day + _EPOCH, 1), datetime.date.max.toordinal()))
    return b"%2d-%b-%04d" % (date.day, MONTHS[date.month - 1], date.year)


@lru_cache(maxsize=4096)
def _zone(minutes: int) -> bytes:
    hours, rest = divmod(abs(minutes), 60)
    return b"%b%02d%02d" % (b"-" if minutes < 0 else b"+", hours, rest)

