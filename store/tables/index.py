"""The index of a mailbox on disk: chunks of records, 64 UIDs each, and their form as numpy arrays.

A chunk's key is the mailbox id and the number of the chunk; UID u is in chunk (u - 1) // 64. Its value is the records
in ascending order of UID and then a trailer: a CRC-32 over all that comes before it. The trailer stands at the end so
that an arrival, which only appends, changes few octets of the value and so few octets of log.
"""

import struct
import zlib
from collections.abc import Callable, Iterable, Sequence
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

CHUNK = 64                  # UIDs in a chunk
MAX_UID = (1 << 32) - 1     # RFC 3501 §2.3.1.1
_KEY = struct.Struct(">II")
chunk_key: Callable[[int, int], bytes] = _KEY.pack
"""The key of a chunk of a mailbox."""
_TRAILER = struct.Struct("<I")
TRAILER = _TRAILER.size     # octets
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
    """A chunk's value."""
    return with_trailer(rows.tobytes())


def with_trailer(rows: bytes | memoryview) -> bytes:
    """A chunk's value, from its records' octets."""
    return b"".join((rows, _TRAILER.pack(zlib.crc32(rows))))


def extend(value: bytes | None, rows: bytes) -> bytes:
    """The value with more records at its end; the old ones' checksum is carried on, not computed again."""
    if value is None:
        return rows + _TRAILER.pack(zlib.crc32(rows))
    old, (check,) = value[:-4], _TRAILER.unpack(value[-4:])
    return old + rows + _TRAILER.pack(zlib.crc32(rows, check))


def is_whole(value: bytes) -> bool:
    """Whether the checksum of a chunk agrees."""
    return len(value) % ROW.itemsize == TRAILER < len(value) and zlib.crc32(value) == _WHOLE


def place_of(value: bytes, uid: int) -> int | None:
    """The octet of a chunk's value at which the record of that UID begins; None when there is none."""
    at = min(len(value) // ROW.itemsize, (uid - 1) % CHUNK + 1) * ROW.itemsize      # UIDs ascend, and some are missing
    while at:
        at -= ROW.itemsize
        there = int.from_bytes(value[at:at + 4], "little")
        if there <= uid:
            return at if there == uid else None
    return None


flags_at: Callable[[bytes, int], tuple[int, int, int, int, int]] = _FLAGS.unpack_from
"""The `uid`, `flags`, `zone`, `keywords` and `modseq` of the record that begins at that octet of a chunk's value,"""
flags_of: Callable[[Any], tuple[int, int, int, int, int]] = _FLAGS.unpack_from
"""and of a record, ten times as fast as field by field."""


def with_flags(value: bytes, at: int, flags: int, modseq: int) -> tuple[bytes, bytes]:
    """The record that begins at that octet of a chunk's value with other system flags and another MODSEQ, and the
    chunk's trailer then."""
    uid, _, zone, keywords, _ = _FLAGS.unpack_from(value, at)
    new = bytearray(value)
    _FLAGS.pack_into(new, at, uid, flags, zone, keywords, modseq)
    return bytes(new[at:at + ROW.itemsize]), _TRAILER.pack(zlib.crc32(memoryview(new)[:-TRAILER]))


def decode(value: bytes) -> Rows:
    """A chunk's records, in an array that can be written to. Raises StoreError CORRUPT."""
    if not is_whole(value):
        raise StoreError(Problem.CORRUPT, detail="an index chunk does not agree with its checksum")
    return np.frombuffer(bytearray(value[:-4]), ROW)


MessageFigures = tuple[int, int, int, bytes, int]
message_of: Callable[[Any], MessageFigures] = _MESSAGE.unpack
"""A record's `size`, `serial`, `header_length`, `digest` and `head`, ten times as fast as field by field,"""
messages_of: Callable[[Any], Iterable[MessageFigures]] = _MESSAGE.iter_unpack
"""and of many."""


arrival_of: Callable[[bytes], tuple[int, int, int, int]] = _ARRIVAL.unpack
"""The UID, system flags, keywords and size of a record in its stored form,"""
arrivals_of: Callable[[bytes], Iterable[tuple[int, int, int, int]]] = _ARRIVAL.iter_unpack
"""and of many."""


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
    octets = bytearray(sum(map(len, values)) - TRAILER * len(values))
    at = 0
    with memoryview(octets) as view:
        for value in values:
            end = at + len(value) - TRAILER
            view[at:end] = memoryview(value)[:-TRAILER]
            at = end
    return np.frombuffer(octets, ROW)


def octets_of(rows: Rows) -> memoryview:
    """The records' octets, not copied."""
    return rows.view(np.uint8).data if len(rows) else memoryview(b"")


def octets_of_chunks(values: Iterable[bytes | None]) -> bytes:
    """The records of many chunks, of those that there are, in stored form."""
    return b"".join([value[:-TRAILER] for value in values if value is not None])


def rows_of(octets: bytes) -> Rows:
    """Records from their stored form, in an array that is only read."""
    return np.frombuffer(octets, ROW)


def join(values: Iterable[bytes]) -> Rows:
    """The records of many chunks in one read-only array."""
    return np.frombuffer(b"".join([value[:-4] for value in values]), ROW)
