"""The outer layer of an archive: the octets of a tar, compressed in frames of some 512 KiB, each for itself.

Behind each frame stands its label. To zstd(1) it is a skippable frame (RFC 8878 §3.1.2), to gzip(1) a member without
octets whose extra field it is (RFC 1952 §2.3.1.1); so they, and any tar that uses them, read over it. All numbers are
little-endian:

    0   16  "onecopy frame 1\\n"
    16  8   which octet of the tar the frame begins with
    24  4   octets of the tar that it has
    28  4   octets that it takes compressed; it ends where the label's wrapping begins
    32  4   where in it the first member of the tar begins; 2^32-1: nowhere
    36  16  BLAKE2b-128 of the compressed frame
    52  4   CRC-32 of the 52 octets before

So a damaged frame costs what is in it and nothing else, and the labels tell which octets of the tar that is. An archive
that is not compressed has no labels.
"""

import gzip
import io
import struct
import zlib
from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import IO, cast

import zstandard
from attrs import define, field, frozen

NONE, GZIP, ZSTD = "none", "gzip", "zstd"
KINDS = (ZSTD, GZIP, NONE)
FRAME_OCTETS = 512 << 10           # octets of a frame, about: it ends with the member that fills it,
LARGEST_FRAME_OCTETS = 16 << 20          # or within a large one
READ_OCTETS = 1 << 20             # octets that are read at a time
LABEL_WITHIN_OCTETS = 4 * LARGEST_FRAME_OCTETS      # octets in which there must be a label
MAGIC = b"onecopy frame 1\n"
_LABEL = struct.Struct("<16sQIII16sI")
_NOWHERE = (1 << 32) - 1
_SKIPPABLE = struct.pack("<II", 0x184D2A5C, _LABEL.size)
_MEMBER = b"\x1f\x8b\x08\x04\0\0\0\0\0\xff" + struct.pack("<H2sH", _LABEL.size + 4, b"oc", _LABEL.size)
_EMPTY = b"\x03\0" + bytes(8)
_WRAPPED = {ZSTD: (_SKIPPABLE, b""), GZIP: (_MEMBER, _EMPTY)}

Read = Callable[[int], bytes]


@frozen
class Chunk:
    """Octets of the tar from `offset` on; a member begins at `first` in them (None: perhaps nowhere). `flaw`: what is
    around them in the archive is damaged."""

    offset: int
    data: bytes = field(repr=False)
    first: int | None = None
    labelled: bool = False
    flaw: bool = False


@define(eq=False)
class FrameWriter:
    """Compresses a tar in frames of `frame` octets, about. `offset` is how many of its octets have come, `packed` how
    many have been written."""

    put: Callable[[bytes], object]
    kind: str = ZSTD
    level: int = 3
    frame: int = FRAME_OCTETS
    offset: int = 0
    packed: int = 0
    _held: list[bytes] = field(factory=list)
    _octets: int = 0
    _first: int = _NOWHERE

    def begin(self, *, fresh: bool = False) -> None:
        """A member begins here; with `fresh`, in a frame of its own."""
        if self._octets >= self.frame or fresh and self._octets:
            self.flush()
        if self._first == _NOWHERE:
            self._first = self._octets

    def write(self, data: bytes) -> None:
        if self._octets + len(data) < LARGEST_FRAME_OCTETS:
            self._held.append(data)
            self._octets += len(data)
            return
        while data:
            some, data = data[:LARGEST_FRAME_OCTETS - self._octets], data[LARGEST_FRAME_OCTETS - self._octets:]
            self._held.append(some)
            self._octets += len(some)
            if self._octets >= LARGEST_FRAME_OCTETS:
                self.flush()

    def flush(self) -> None:
        data, start = b"".join(self._held), self.offset
        self._held, self._octets, self.offset = [], 0, self.offset + len(data)
        first, self._first = self._first, _NOWHERE
        if not data:
            return
        if self.kind != NONE:
            data = label(self.kind, _compressed(self.kind, data, self.level), start, len(data), first)
        self.put(data)
        self.packed += len(data)


def label(kind: str, packed: bytes, offset: int, length: int, first: int) -> bytes:
    """A compressed frame with its label behind it."""
    said = _LABEL.pack(MAGIC, offset, length, len(packed), first, _digest(packed), 0)[:-4]
    before, after = _WRAPPED[kind]
    return b"".join((packed, before, said, struct.pack("<I", zlib.crc32(said)), after))


def _compressed(kind: str, data: bytes, level: int) -> bytes:
    if kind == GZIP:
        return gzip.compress(data, min(level, 9), mtime=0)
    return zstandard.ZstdCompressor(level=level, write_checksum=True).compress(data)


def _expanded(kind: str, packed: bytes, length: int) -> bytes | None:
    """The octets of a frame whose label is right; None when they are not what it says."""
    try:
        if kind == GZIP:
            data = zlib.decompressobj(31).decompress(packed, length + 1)
        else:
            data = zstandard.ZstdDecompressor().decompress(packed, max_output_size=length)
    except (zlib.error, zstandard.ZstdError):
        return None
    return data if len(data) == length else None


def _digest(packed: bytes | bytearray | memoryview) -> bytes:
    return blake2b(packed, digest_size=16).digest()


# Reading

def chunks(read: Read) -> Iterator[Chunk]:
    """The tar, as far as it can be read. What is missing between two chunks is damaged; the last one may be cut off."""
    held = bytearray()
    while True:
        found = held.find(MAGIC)
        if found >= 0 or len(held) > LABEL_WITHIN_OCTETS:
            break
        more = read(READ_OCTETS)
        held += more
        if not more:
            break
        if len(held) >= 1024 and bytes(held[257:262]) == b"ustar":
            break                       # a tar as it is
    if found >= 0 and bytes(held[257:262]) != b"ustar":
        yield from _labelled(held, read)
        return
    rest = _Rest(held, read)
    if held[:4] == b"\x28\xb5\x2f\xfd":
        read = zstandard.ZstdDecompressor().stream_reader(cast("IO[bytes]", rest), read_across_frames=True).read
    elif held[:2] == b"\x1f\x8b":
        read = gzip.GzipFile(fileobj=rest).read
    else:
        read = rest.read
    yield from _plain(read)


class _Rest(io.RawIOBase):
    """What was read already, and then the rest."""

    def __init__(self, held: bytearray, read: Read) -> None:
        self._held = held
        self._read = read

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """Up to so many octets."""
        if self._held:
            size = len(self._held) if size < 0 else size
            data = bytes(self._held[:size])
            del self._held[:size]
            return data
        return self._read(size if size > 0 else READ_OCTETS)


def _plain(read: Read) -> Iterator[Chunk]:
    offset = 0
    while True:
        try:
            data = read(READ_OCTETS)
        except (OSError, EOFError, zlib.error, zstandard.ZstdError):
            yield Chunk(offset, b"", flaw=True)
            return
        if not data:
            return
        yield Chunk(offset, data)
        offset += len(data)


def _labelled(held: bytearray, read: Read) -> Iterator[Chunk]:
    looked = expected = 0
    more = True
    while more:
        found = held.find(MAGIC, looked)
        if found < 0 or len(held) < found + _LABEL.size + len(_EMPTY):
            looked = max(looked, found if found >= 0 else len(held) - len(MAGIC))
            data = read(READ_OCTETS)
            more = bool(data)
            held += data
            if more or found < 0:
                if len(held) > LABEL_WITHIN_OCTETS and found < 0:      # lost: what comes next is found by its own label
                    del held[:-LARGEST_FRAME_OCTETS]
                    looked = 0
                continue
        said = _parse(held, found)
        if said is None:
            looked = found + 1
            more = True
            continue
        kind, chunk = said
        expected = chunk.offset + len(chunk.data)
        if chunk.data:
            yield chunk
        else:
            expected = _LABEL.unpack_from(held, found)[1] + _LABEL.unpack_from(held, found)[2]
        del held[:found + _LABEL.size + len(_WRAPPED[kind][1])]
        looked, more = 0, True
    if held:
        yield Chunk(expected, _beginning(bytes(held)), None, True, flaw=True)


def _parse(held: bytearray, at: int) -> tuple[str, Chunk] | None:
    """The frame whose label is there, without octets if it is damaged; None when that is no label."""
    if len(held) < at + _LABEL.size:
        return None
    _, offset, length, packed, first, digest, check = _LABEL.unpack_from(held, at)
    if zlib.crc32(held[at:at + _LABEL.size - 4]) != check or length > LARGEST_FRAME_OCTETS:
        return None
    for kind, (before, after) in _WRAPPED.items():
        end = at - len(before)
        frame = bytes(held[end - packed:end]) if end >= packed else b""
        if frame and _digest(frame) == digest:
            flaw = held[end:at] != before or held[at + _LABEL.size:at + _LABEL.size + len(after)] != after
            data = _expanded(kind, frame, length)
            return kind, Chunk(offset, data or b"", None if first == _NOWHERE else first, True, flaw)
    kind = ZSTD if held[at - len(_SKIPPABLE):at - 4] == _SKIPPABLE[:4] else GZIP
    return kind, Chunk(offset, b"", None if first == _NOWHERE else first, True)


def _beginning(frame: bytes) -> bytes:
    """What can be had of a frame that is cut off."""
    data = bytearray()
    try:
        if frame[:2] == b"\x1f\x8b":
            return zlib.decompressobj(31).decompress(frame, LARGEST_FRAME_OCTETS)
        taking = zstandard.ZstdDecompressor().decompressobj()
        for at in range(0, len(frame), 4096):
            data += taking.decompress(frame[at:at + 4096])
            if len(data) > LARGEST_FRAME_OCTETS:
                break
    except (zlib.error, zstandard.ZstdError):
        pass
    return bytes(data)
