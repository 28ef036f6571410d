"""The index of a mailbox on disk: chunks of records, 64 UIDs each, and their form as numpy arrays.

A chunk's key is the mailbox id and the number of the chunk; UID u is in chunk (u - 1) // 64. Its value has one of two
forms, and everybody who reads or writes one does it by this module. The length tells them apart. Both end with the
CRC-32 of all that comes before it.

Plain: the records in ascending order of UID, and the CRC-32. It stands at the end so that an arrival, which only
appends, changes few octets of the value and so few octets of log.

Divided: the heads of all records, the first HEAD octets of each, in which is all that a STORE changes; their check
value; the rests of all records; the CRC-32. A STORE of many messages changes the first quarter of such a value, and the
log gets no more. For the check value is the CRC-32 of the heads, exclusive or that of the rests: with it the CRC-32 up
to there is the same for all heads that belong to these rests, and so is that at the end. A chunk is divided by a STORE
of many when no message can arrive in it any more.
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
    ("spare", "<u4"),       # 0
])
Rows = NDArray[Any]         # of ROW
OWN = np.dtype([("flags", "u1"), ("modseq", "<u8")])        # what a reader has of its own of a UID: see readers
_FLAGS = struct.Struct("<IHhQQ")                # of a record: UID, flags, zone, keywords, MODSEQ
_MESSAGE = struct.Struct("<32xQQ4xI32sI4x")     # of a record: size, serial, header length, digest, head
_OCTETS = np.dtype((np.void, ROW.itemsize))     # a record as plain octets: copied many times as fast as field by field

_ARRIVAL = struct.Struct("<IH2xQ16xQ56x")         # of a record: UID, flags, keywords, size
HEAD = _FLAGS.size          # octets
_SIZE = ROW.itemsize
_REST = _SIZE - HEAD
_HEAD_OCTETS, _REST_OCTETS = np.dtype((np.void, HEAD)), np.dtype((np.void, _REST))
_PARTS = np.dtype([("head", _HEAD_OCTETS), ("rest", _REST_OCTETS)])

CHUNK = 64                  # UIDs in a chunk
MAX_UID = (1 << 32) - 1     # RFC 3501 §2.3.1.1
_KEY = struct.Struct(">II")
chunk_key: Callable[[int, int], bytes] = _KEY.pack
"""The key of a chunk of a mailbox."""
_TRAILER = struct.Struct("<I")
TRAILER = _TRAILER.size     # octets of a check value
_OVER = TRAILER, 2 * TRAILER    # octets of a chunk's value besides records: plain, divided
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
    parts = rows.view(_PARTS)
    heads, rests = parts["head"].tobytes(), parts["rest"].tobytes()
    return with_trailer(b"".join((heads, _TRAILER.pack(zlib.crc32(heads) ^ zlib.crc32(rests)), rests)))


def is_divided(value: bytes) -> bool:
    """Whether a chunk's value is divided, by its length: a damaged one may be neither."""
    return len(value) % _SIZE == 2 * TRAILER


def records_in(value: bytes) -> int:
    """How many records a chunk has."""
    return len(value) // _SIZE


def extend(value: bytes | None, rows: bytes) -> bytes:
    """The value with more records at its end, plain; the old ones' checksum is carried on, not computed again. One that
    is damaged stays so."""
    if value is None:
        return rows + _TRAILER.pack(zlib.crc32(rows))
    if len(value) % _SIZE == 2 * TRAILER:
        return with_trailer(records_of(value) + rows) if is_whole(value) else value + rows
    old, (check,) = value[:-4], _TRAILER.unpack(value[-4:])
    return old + rows + _TRAILER.pack(zlib.crc32(rows, check))


def is_whole(value: bytes) -> bool:
    """Whether the checksum of a chunk agrees."""
    return len(value) % _SIZE in _OVER and len(value) > _SIZE and zlib.crc32(value) == _WHOLE


def checked_heads(value: bytes) -> bytes:
    """The heads of a divided chunk with their check value; nothing of a plain one."""
    return value[:len(value) // _SIZE * HEAD + TRAILER] if len(value) % _SIZE == 2 * TRAILER else b""


def other_heads(heads: bytes, checked: bytes) -> bytes:
    """Other heads in the place of these `checked_heads`: with their check value."""
    return heads + _TRAILER.pack(zlib.crc32(heads) ^ zlib.crc32(memoryview(checked)[:-TRAILER]) ^ int.from_bytes(
        checked[-TRAILER:], "little"))


def place_of(value: bytes, uid: int) -> int | None:
    """The octet of a chunk's value at which the head of the record of that UID begins; None when there is none."""
    size = HEAD if len(value) % _SIZE == 2 * TRAILER else _SIZE
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


def with_flags(value: bytes, at: int, flags: int, modseq: int) -> tuple[bytes, int, bytes]:
    """The record whose head begins at that octet of a chunk's value with other system flags and another MODSEQ; where
    the check value is that changes, and it then."""
    uid, _, zone, keywords, _ = _FLAGS.unpack_from(value, at)
    head = _FLAGS.pack(uid, flags, zone, keywords, modseq)
    if len(value) % _SIZE == 2 * TRAILER:
        end = len(value) // _SIZE * HEAD
        rest = end + TRAILER + at // HEAD * _REST
        heads = b"".join((value[:at], head, value[at + HEAD:end]))
        return head + value[rest:rest + _REST], end, other_heads(heads, value[:end + TRAILER])[-TRAILER:]
    rest, end = at + HEAD, len(value) - TRAILER
    check = zlib.crc32(memoryview(value)[rest:end], zlib.crc32(head, zlib.crc32(memoryview(value)[:at])))
    return head + value[rest:rest + _REST], end, _TRAILER.pack(check)


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
    octets = bytearray(sum(map(_SIZE.__rfloordiv__, map(len, values))) * _SIZE)      # `octets_in`, a call less
    with memoryview(octets) as view:
        lay_out(values, view)
    return np.frombuffer(octets, ROW)


def octets_in(values: Iterable[bytes]) -> int:
    """How many octets the records of these chunks have."""
    return sum(map(_SIZE.__rfloordiv__, map(len, values))) * _SIZE


def lay_out(values: Iterable[bytes], memory: memoryview) -> None:
    """Write the records of these chunks one after the other into memory that has room for them."""
    at = 0
    for length, some in groupby(values, len):
        octets = length // _SIZE * _SIZE
        if length % _SIZE != 2 * TRAILER:
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
    shape = len(values), length // _SIZE
    rows = np.frombuffer(memory, _PARTS).reshape(shape)
    rows["head"] = np.ndarray(shape, _HEAD_OCTETS, octets, 0, (length, HEAD))
    rows["rest"] = np.ndarray(shape, _REST_OCTETS, octets, shape[1] * HEAD + TRAILER, (length, _REST))


def records_of(value: bytes) -> bytes:
    """The records of a chunk, in stored form."""
    if len(value) % _SIZE != 2 * TRAILER:
        return value[:-TRAILER]
    octets = bytearray(len(value) // _SIZE * _SIZE)
    with memoryview(octets) as view:
        _put_together((value,), view)
    return bytes(octets)


def heads_of(rows: Rows) -> bytes:
    """The heads of these records, one after the other."""
    octets: bytes = rows.view(_PARTS)["head"].tobytes()
    return octets


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
