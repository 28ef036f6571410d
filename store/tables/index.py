"""The index of a mailbox on disk: chunks of records, 64 UIDs each, and their form as numpy arrays.

A chunk's key is the mailbox id and the number of the chunk; UID u is in chunk (u - 1) // 64. Its value has one of two
forms, and everybody who reads or writes one does it by this module. The length tells them apart. Both end with the
CRC-32 of all that comes before it.

Plain: the records in ascending order of UID, and the CRC-32. It stands at the end so that an arrival, which only
appends, changes few octets of the value and so few octets of log.

Divided: the heads of all records, that is the first octets of each and its balance, in which is all that a STORE
changes; the rests of all records; an octet 0; the CRC-32. A STORE of many messages changes the first third of such a
value, and the log gets no more. A chunk is divided by a STORE of many when no message can arrive in it any more.

A STORE changes one run of octets of a chunk, and not its CRC-32: the balance of the last record that it changes is made
such that the CRC-32 up to there is what it was. What a CRC-32 differs by after some octets depends on nothing but what
these differ by, and four octets that differ by just that end it. So a balance says nothing, and is part of no
comparison. What is changed by damage is seen as before. Not seen are records as they were before a STORE, with the
balance that they had then, among newer ones. A chunk is on one page of the table, whose checksum is that of one moment.

Partitions of form 7 have divided chunks of another kind (older), which are only read. In these there are no balances
among the heads, but behind them the CRC-32 of the heads, exclusive or that of the rests.
"""

import struct
import zlib
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from store.errors import Problem, StoreError

ROW = np.dtype([
    ("uid", "<u4"),         # RFC 3501 §2.3.1.1
    ("flags", "<u2"),       # values.Flag
    ("zone", "<i2"),        # of the internal date, minutes east of UTC
    ("keywords", "<u8"),    # bit n: the n-th of the mailbox's keywords
    ("modseq", "<u8"),      # RFC 7162 §3.1.1
    ("received", "<i8"),    # internal date, Unix time
    ("size", "<u8"),        # RFC822.SIZE
    ("serial", "<u8"),      # arrival serial of the message file: key of the cache
    ("saved", "<u4"),       # when it came into this mailbox, Unix time
    ("header_length", "<u4"),        # octets at the head of the message file that are not part of this message
    ("digest", "V32"),         # digest that names the message file
    ("head", "<u4"),        # number of the header fields that stand before it in this mailbox, 0 for none: see heads
    ("balance", "<u4"),     # says nothing: see `with_flags`
])
Rows = NDArray[Any]         # of ROW
OWN = np.dtype([("flags", "u1"), ("modseq", "<u8")])        # what a reader has of its own of a UID: see readers
_FLAGS = struct.Struct("<IHhQQ")                # of a record: UID, flags, zone, keywords, MODSEQ
_MESSAGE = struct.Struct("<32xQQ4xI32sI4x")     # of a record: size, serial, header length, digest, head
_OCTETS = np.dtype((np.void, ROW.itemsize))     # a record as plain octets: copied many times as fast as field by field

_ARRIVAL = struct.Struct("<IH2xQ16xQ56x")         # of a record: UID, flags, keywords, size
_SIZE = ROW.itemsize
_BALANCE = _SIZE - 4        # where that begins in a record,
_FIRST = _FLAGS.size        # and in a head: octets of a record before what no STORE changes
HEAD = _FIRST + 4           # octets
_REST = _SIZE - HEAD
_FIRST_OCTETS, _REST_OCTETS = np.dtype((np.void, _FIRST)), np.dtype((np.void, _REST))
_PARTS = np.dtype([("first", _FIRST_OCTETS), ("rest", _REST_OCTETS), ("balance", "<u4")])
_HEADS = np.dtype([("first", _FIRST_OCTETS), ("balance", "<u4")])
_OLDER = np.dtype([("head", _FIRST_OCTETS), ("rest", (np.void, _SIZE - _FIRST))])
_SAID = np.dtype([("said", (np.void, _BALANCE)), ("balance", "<u4")])

CHUNK = 64                  # UIDs in a chunk
MAX_UID = (1 << 32) - 1     # RFC 3501 §2.3.1.1
_KEY = struct.Struct(">II")
chunk_key: Callable[[int, int], bytes] = _KEY.pack
"""The key of a chunk of a mailbox."""
_TRAILER = struct.Struct("<I")
TRAILER = _TRAILER.size     # octets of a check value
DIVIDED, OLDER = 1 + TRAILER, 2 * TRAILER       # octets of a chunk's value besides records,
_OVER = TRAILER, DIVIDED, OLDER                 # of all its forms
_RUN = 32                   # divided chunks that are laid out at a time
_WHOLE = 0x2144DF1C         # the CRC-32 of anything that ends with its own CRC-32


def chunk_number(uid: int) -> int:
    """The chunk that holds the UID."""
    return (uid - 1) // CHUNK


def chunk_of_key(key: bytes) -> tuple[int, int]:
    """The mailbox id and the chunk number of a key."""
    mailbox, number = _KEY.unpack(key)
    return mailbox, number


def spans(uids: NDArray[np.uint32], numbers: NDArray[np.int64]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Where the records of these chunks begin and end among records with these UIDs (ascending)."""
    firsts, lasts = numbers * CHUNK + 1, np.minimum((numbers + 1) * CHUNK, MAX_UID)
    return (np.searchsorted(uids, firsts.astype(uids.dtype), "left"),       # of their type, or all would be converted
            np.searchsorted(uids, lasts.astype(uids.dtype), "right"))


def encode(rows: Rows) -> bytes:
    """A chunk's value, plain."""
    return with_trailer(rows.tobytes())


def with_trailer(rows: bytes | memoryview) -> bytes:
    """A chunk's value, plain, from its records' octets."""
    return b"".join((rows, _TRAILER.pack(zlib.crc32(rows))))


def divided(rows: Rows) -> bytes:
    """A chunk's value, divided."""
    return with_trailer(b"".join((heads_of(rows), rows.view(_PARTS)["rest"].tobytes(), b"\0")))


def is_divided(value: bytes) -> bool:
    """Whether a chunk's value is divided, by its length: a damaged one may be neither."""
    return len(value) % _SIZE in (DIVIDED, OLDER)


def is_older(value: bytes) -> bool:
    """Whether it is divided as it is only read."""
    return len(value) % _SIZE == OLDER


def between_heads(value: bytes) -> int:
    """How many octets behind a record's head the next one begins."""
    over = len(value) % _SIZE
    return HEAD if over == DIVIDED else _FIRST if over == OLDER else _SIZE


def records_in(value: bytes) -> int:
    """How many records a chunk has."""
    return len(value) // _SIZE


def extend(value: bytes | None, rows: bytes) -> bytes:
    """The value with more records at its end, plain; the old ones' checksum is carried on, not computed again. One that
    is damaged stays so."""
    if value is None:
        return rows + _TRAILER.pack(zlib.crc32(rows))
    if len(value) % _SIZE in (DIVIDED, OLDER):          # `is_divided`, a call less
        return with_trailer(records_of(value) + rows) if is_whole(value) else value + rows
    old, (check,) = value[:-4], _TRAILER.unpack(value[-4:])
    return old + rows + _TRAILER.pack(zlib.crc32(rows, check))


def is_whole(value: bytes) -> bool:
    """Whether the checksum of a chunk agrees."""
    return len(value) % _SIZE in _OVER and len(value) > _SIZE and zlib.crc32(value) == _WHOLE


def balanced(octets: bytes, at: int, value: bytes) -> bytes:
    """Octets that are to stand in this chunk's value from there on, the last four of them a balance: with the one by
    which the CRC-32 stays what it is."""
    end = len(octets) - 4
    balance = zlib.crc32(memoryview(octets)[:end]) ^ zlib.crc32(memoryview(value)[at:at + end]) ^ int.from_bytes(
        value[at + end:at + end + 4], "little")
    return octets[:end] + _TRAILER.pack(balance)


def place_of(value: bytes, uid: int) -> int | None:
    """The octet of a chunk's value at which the head of the record of that UID begins; None when there is none. Not of
    an older one."""
    size = HEAD if len(value) % _SIZE == DIVIDED else _SIZE
    at = min(len(value) // _SIZE, (uid - 1) % CHUNK + 1) * size     # UIDs ascend, and some are missing
    while at:
        at -= size
        there = int.from_bytes(value[at:at + 4], "little")
        if there <= uid:
            return at if there == uid else None
    return None


flags_at: Callable[[bytes, int], tuple[int, int, int, int, int]] = _FLAGS.unpack_from
"""The `uid`, `flags`, `zone`, `keywords` and `modseq` of the record whose head begins at that octet of a value,"""
flags_of: Callable[[Any], tuple[int, int, int, int, int]] = _FLAGS.unpack_from
"""and of a record, ten times as fast as field by field."""


def with_flags(value: bytes, at: int, flags: int, modseq: int) -> tuple[bytes, bytes]:
    """The record whose head begins at that octet of a chunk's value with other system flags and another MODSEQ; and
    what is to stand there."""
    uid, _, zone, keywords, _ = _FLAGS.unpack_from(value, at)
    first = _FLAGS.pack(uid, flags, zone, keywords, modseq)
    if len(value) % _SIZE != DIVIDED:
        end = at + _BALANCE                     # as `balanced`, with less
        said = first + value[at + _FIRST:end]
        record = said + _TRAILER.pack(zlib.crc32(said) ^ zlib.crc32(value[at:end]) ^ int.from_bytes(
            value[end:end + 4], "little"))
        return record, record
    head = balanced(first + b"\0\0\0\0", at, value)
    rest = len(value) // _SIZE * HEAD + at // HEAD * _REST
    return first + value[rest:rest + _REST] + head[_FIRST:], head


def differ(some: Rows, others: Rows) -> NDArray[np.bool_]:
    """Which of these records say something else than the one beside them."""
    return np.asarray(some.view(_SAID)["said"] != others.view(_SAID)["said"])


def decode(value: bytes) -> Rows:
    """A chunk's records, in an array that can be written to. Raises StoreError CORRUPT."""
    if not is_whole(value):
        raise StoreError(Problem.CORRUPT, detail="an index chunk does not agree with its checksum")
    return np.frombuffer(bytearray(records_of(value)), ROW)


MessageFigures = tuple[int, int, int, bytes, int]
message_of: Callable[[Any], MessageFigures] = _MESSAGE.unpack
"""A record's `size`, `serial`, `header_length`, `digest` and `head`, ten times as fast as field by field,"""
messages_of: Callable[[Any], Iterable[MessageFigures]] = _MESSAGE.iter_unpack
"""and of many."""


arrival_of: Callable[[bytes], tuple[int, int, int, int]] = _ARRIVAL.unpack
"""The UID, system flags, keywords and size of a record in its stored form,"""
arrivals_of: Callable[[bytes], Iterable[tuple[int, int, int, int]]] = _ARRIVAL.iter_unpack
"""and of many."""


def marked(rows: Rows, marks: bytes | bytearray, mark: int, without: int = 0) -> NDArray[np.uint32]:
    """The UIDs of the records that have that mark, of which there is an octet for each, and none of the flags `without`
    (bits). Only these two columns are read: all records of a large mailbox are 25 MiB."""
    chosen = np.frombuffer(marks, np.uint8) == mark
    if without:
        chosen &= rows["flags"] & np.uint16(without) == 0
    found: NDArray[np.uint32] = rows["uid"][chosen]
    return found


def take(rows: Rows, which: NDArray[Any]) -> Rows:
    """A copy of the records at these places, or where this mask is set."""
    taken: Rows = rows.view(_OCTETS)[which].view(ROW)
    return taken


def put(rows: Rows, places: NDArray[Any], values: Rows) -> None:
    """Set the records at these places."""
    rows.view(_OCTETS)[places] = values.view(_OCTETS)


def joined(*parts: Rows) -> Rows:
    """One new array of all these records."""
    return np.concatenate([part.view(_OCTETS) for part in parts]).view(ROW)


def split(rows: Rows) -> list[tuple[int, Rows]]:
    """Records by the number of their chunk."""
    if not len(rows):
        return []
    numbers, starts = np.unique((rows["uid"] - 1) // CHUNK, return_index=True)
    ends = [*starts[1:].tolist(), len(rows)]
    return [(number, rows[start:end]) for number, start, end in zip(numbers.tolist(), starts.tolist(), ends,
                                                                    strict=True)]


def writable(values: Sequence[bytes]) -> Rows:
    """The records of many chunks in one array that can be written to."""
    rows = np.empty(sum(map(_SIZE.__rfloordiv__, map(len, values))), ROW)
    lay_out(values, rows.view(np.uint8).data)
    return rows


def octets_in(values: Iterable[bytes]) -> int:
    """How many octets the records of these chunks have."""
    return sum(map(_SIZE.__rfloordiv__, map(len, values))) * _SIZE


def lay_out(values: Iterable[bytes], memory: memoryview) -> None:
    """Write the records of these chunks one after the other into memory that has room for them."""
    at = 0
    for length, some in groupby(values, len):
        octets = length // _SIZE * _SIZE
        if length % _SIZE not in (DIVIDED, OLDER):
            for value in some:
                memory[at:at + octets] = memoryview(value)[:octets]
                at += octets
            continue
        run = list(some)
        for begin in range(0, len(run), _RUN):
            few = run[begin:begin + _RUN]
            _put_together(few, memory[at:at + len(few) * octets])
            at += len(few) * octets


def _put_together(values: Sequence[bytes], memory: memoryview) -> None:
    """`lay_out`, of divided chunks of one length."""
    length, octets = len(values[0]), b"".join(values)
    count = length // _SIZE
    shape = len(values), count
    if length % _SIZE == DIVIDED:
        rows = np.frombuffer(memory, _PARTS).reshape(shape)
        rows["first"] = np.ndarray(shape, _FIRST_OCTETS, octets, 0, (length, HEAD))
        rows["balance"] = np.ndarray(shape, "<u4", octets, _FIRST, (length, HEAD))
        rows["rest"] = np.ndarray(shape, _REST_OCTETS, octets, count * HEAD, (length, _REST))
    else:
        rows, rest = np.frombuffer(memory, _OLDER).reshape(shape), _OLDER["rest"]
        rows["head"] = np.ndarray(shape, _FIRST_OCTETS, octets, 0, (length, _FIRST))
        rows["rest"] = np.ndarray(shape, rest, octets, count * _FIRST + TRAILER, (length, rest.itemsize))


def records_of(value: bytes) -> bytes:
    """The records of a chunk, in stored form."""
    if not is_divided(value):
        return value[:-TRAILER]
    octets = bytearray(len(value) // _SIZE * _SIZE)
    with memoryview(octets) as view:
        _put_together((value,), view)
    return bytes(octets)


def heads_of(rows: Rows) -> bytes:
    """The heads of these records, one after the other."""
    heads, parts = np.empty(len(rows), _HEADS), rows.view(_PARTS)
    heads["first"], heads["balance"] = parts["first"], parts["balance"]
    return heads.tobytes()


def octets_of(rows: Rows) -> memoryview:
    """The records' octets, not copied."""
    return rows.view(np.uint8).data if len(rows) else memoryview(b"")


def octets_of_chunks(values: Iterable[bytes | None]) -> bytes:
    """The records of many chunks, of those that there are, in stored form."""
    return b"".join([records_of(value) for value in values if value is not None])


def rows_of(octets: bytes) -> Rows:
    """Records from their stored form, in an array that is only read."""
    return np.frombuffer(octets, ROW)


def join(values: Iterable[bytes]) -> Rows:
    """The records of many chunks in one read-only array."""
    there = list(values)
    rows = writable(there)
    rows.flags.writeable = False
    return rows
