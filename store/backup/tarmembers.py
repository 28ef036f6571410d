"""The inner layer of an archive: members of a tar in the pax format (IEEE Std 1003.1, pax), written and read.

Each member is a regular file. The pax keyword `comment`, which every tar reads over, says what there is to know of it:
words of the form name=value; `digest` is the BLAKE2b-256 of its octets. Reading goes on behind damage: with frames at
the next one in which a member begins, and without frames at the next block that is a header.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import blake2b

from attrs import define, field, frozen

from store.backup.compression import BLOCK, FrameWriter, Piece

RECORD = 512
MOST = 1 << 20              # octets of a pax header, at most
_ZEROS = bytes(RECORD)
_PLAIN = 100                # octets of a name that need no pax header


_OWNER = b"0000600\0" + b"0000000\0" * 2
_TAIL = b"".join((bytes(100), b"ustar\x0000", bytes(64), b"0000000\0" * 2)).ljust(RECORD - 157, b"\0")
_REST = sum(_OWNER) + sum(_TAIL) + sum(b" " * 8)        # of the octets that are the same in every header


class Cut(Exception):
    """The octets of a member end here: the rest is damaged or missing."""


@frozen
class Lost:
    """Octets of the tar that cannot be read, from `offset` on."""

    offset: int
    octets: int


def digest_of(data: bytes) -> str:
    """As in `comment`."""
    return blake2b(data, digest_size=32).hexdigest()


# Writing

@define(eq=False)
class MemberWriter:
    """Writes a tar."""

    frames: FrameWriter
    count: int = 0
    all: "blake2b" = field(factory=lambda: blake2b(digest_size=32))     # of names, sizes and digests so far

    def add(self, name: str, size: int, data: Iterable[bytes], said: Mapping[str, str], *, mtime: int = 0,
            fresh: bool = False) -> None:
        """A member; `data` has exactly `size` octets."""
        self.frames.begin(fresh=fresh)
        self.frames.write(heading(name, size, said, mtime))
        left = size
        for piece in data:
            self.frames.write(piece)
            left -= len(piece)
        if left:
            raise ValueError(f"{name} has {size - left} octets, and should have {size}")
        self.frames.write(_ZEROS[:-size % RECORD])
        self.count += 1
        self.all.update(_line(name, size, said))

    def add_octets(self, name: str, data: bytes, *, mtime: int = 0, fresh: bool = False, **said: str) -> None:
        """A member that is in memory."""
        self.add(name, len(data), (data,), {"digest": digest_of(data), **said}, mtime=mtime, fresh=fresh)

    def end(self) -> None:
        """No more comes."""
        self.frames.write(_ZEROS * 2)
        self.frames.flush()


def _line(name: str, size: int, said: Mapping[str, str]) -> bytes:
    return f"{name}\n{size} {said.get('digest', '')}\n".encode()


def heading(name: str, size: int, said: Mapping[str, str], mtime: int) -> bytes:
    """The headers of a member."""
    raw = name.encode()
    records = [_record(b"comment", " ".join(f"{key}={value}" for key, value in said.items()).encode())]
    if len(raw) > _PLAIN or not name.isascii():
        records.append(_record(b"path", raw))
    if size >= 1 << 33:
        records.append(_record(b"size", b"%d" % size))
    more = b"".join(records)
    return b"".join((_block(b"PaxHeaders/" + raw[-40:], len(more), b"x", mtime), more, _ZEROS[:-len(more) % RECORD],
                     _block(raw[:_PLAIN], size if size < 1 << 33 else 0, b"0", mtime)))


def _record(key: bytes, value: bytes) -> bytes:
    length = len(key) + len(value) + 3
    total = length + len(b"%d" % length)
    total = length + len(b"%d" % total)
    return b"%d %b=%b\n" % (total, key, value)


def _block(name: bytes, size: int, kind: bytes, mtime: int) -> bytes:
    """A header: its checksum is the sum of its octets, with spaces where it stands itself."""
    figures = b"%011o\0%011o\0" % (size, max(0, mtime))
    total = _REST + sum(name) + sum(figures) + sum(kind)
    return b"".join((name.ljust(100, b"\0"), _OWNER, figures, b"%06o\0 " % total, kind, _TAIL))


# Reading

class _Gap(Exception):
    pass


class _End(Exception):
    pass


@define(eq=False)
class Member:
    """A member that is being read; its octets have to be taken before the next member is."""

    name: str
    size: int
    said: Mapping[str, str]
    offset: int
    before: "blake2b"               # of names, sizes and digests of all members before it
    take: Callable[[int], bytes] = field(repr=False)
    left: int = 0                   # octets that have not been taken

    def data(self) -> Iterator[bytes]:
        """Its octets. Raises Cut."""
        while self.left:
            yield self.take(min(self.left, BLOCK))

    def octets(self, most: int) -> bytes:
        """All of it, if that is no more than `most` and what its digest says. Raises Cut."""
        data = b"".join(self.data()) if self.size <= most else b""
        if not data and self.size or digest_of(data) != self.said.get("digest"):
            raise Cut
        return data


@define(eq=False)
class MemberReader:
    """Reads a tar. `ended`: its end has been seen."""

    source: Iterator[Piece]
    ended: bool = False
    _piece: Piece = field(factory=lambda: Piece(0, b""))
    _next: Piece | None = None
    _at: int = 0                    # in the piece
    _all: "blake2b" = field(factory=lambda: blake2b(digest_size=32))

    def all(self) -> Iterator[Member | Lost]:
        """Every member that can be read, at least in part, and every stretch of octets that cannot."""
        more: dict[str, str] = {}
        start = self.offset
        while True:
            try:
                block = self._take(RECORD)
                if block == _ZEROS:
                    self.ended = True
                    return
                kind, name, size = _parse_block(block)
                if kind == b"x":
                    if size > MOST:
                        raise ValueError
                    more = _parse_records(self._take(size + -size % RECORD)[:size])
                    continue
                yield from self._member(more.get("path", name), int(more.get("size", size)),
                                        _words(more.get("comment", "")), start)
            except _End:
                return
            except (_Gap, ValueError):
                yield from self._resume()
            more, start = {}, self.offset

    @property
    def offset(self) -> int:
        """Where in the tar it is."""
        return self._piece.offset + self._at

    def _member(self, name: str, size: int, said: Mapping[str, str], start: int) -> Iterator[Member]:
        before = self._all.copy()
        member = Member(name, size, said, start, before, lambda count: self._part(member, count), size)
        self._all.update(_line(name, size, said))
        yield member
        while member.left:
            taken = self._take(min(member.left, BLOCK))
            member.left -= len(taken)
        self._take(-size % RECORD)

    def _part(self, member: Member, count: int) -> bytes:
        try:
            data = self._take(count)
        except (_Gap, _End):
            raise Cut from None
        member.left -= len(data)
        return data

    def _take(self, count: int) -> bytes:
        """So many octets. Raises _Gap, _End when they are not all there; what is there stays."""
        found = self._piece.data[self._at:self._at + count]
        if len(found) < count:
            parts, have, pieces = [found], len(found), []
            last = self._piece
            while have < count:
                piece = self._coming()
                if piece is None:
                    raise _End
                if piece.offset != last.offset + len(last.data):
                    raise _Gap
                self._next = None
                pieces.append(piece)
                last = piece
                parts.append(piece.data[:count - have])
                have += len(parts[-1])
                self._piece, self._at = piece, 0
            self._at = len(parts[-1])
            found = b"".join(parts)
        else:
            self._at += count
        return found

    def _coming(self) -> Piece | None:
        if self._next is None:
            self._next = next(self.source, None)
        return self._next

    def _resume(self) -> Iterator[Lost]:
        """Go on where the next member begins."""
        start = self.offset
        while True:
            if self._piece.labelled:
                first = self._piece.first
                if first is not None and first >= self._at and self.offset > start:
                    self._at = first
                    break
            elif self._find():
                break
            piece = self._coming()
            if piece is None:
                self._at = len(self._piece.data)
                break
            self._next = None
            self._piece, self._at = piece, 0
            if piece.first is not None:
                self._at = piece.first
                break
        if self.offset > start:
            yield Lost(start, self.offset - start)

    def _find(self) -> bool:
        """Whether there is a header among the blocks of this piece, which begins there then."""
        at = self._at + -(self._piece.offset + self._at) % RECORD
        while at + RECORD <= len(self._piece.data):
            block = self._piece.data[at:at + RECORD]
            try:
                if block == _ZEROS or _parse_block(block)[0] == b"x":
                    self._at = at
                    return True
            except ValueError:
                pass
            at += RECORD
        self._at = len(self._piece.data)
        return False


def _parse_block(block: bytes) -> tuple[bytes, str, int]:
    """Type, name and size. Raises ValueError for what is no header."""
    if block[257:262] != b"ustar" or int(block[148:154], 8) != sum(block) - sum(block[148:156]) + 256:
        raise ValueError("no header")
    name = block[:100].rstrip(b"\0")
    prefix = block[345:500].rstrip(b"\0") if block[257:263] == b"ustar\0" else b""
    size = int(block[124:135].strip(b"\0 ") or b"0", 8)
    return block[156:157], (prefix + b"/" + name if prefix else name).decode(), size


def _parse_records(data: bytes) -> dict[str, str]:
    """The pax records. Raises ValueError."""
    found, at = {}, 0
    while at < len(data):
        length, _, _ = data[at:at + 20].partition(b" ")
        record = data[at:at + int(length)]
        if len(record) < 5:
            raise ValueError("a pax record is cut short")
        key, _, value = record[len(length) + 1:-1].partition(b"=")
        found[key.decode()] = value.decode()
        at += int(length)
    return found


def _words(text: str) -> dict[str, str]:
    return {key: value for key, _, value in (word.partition("=") for word in text.split(" ")) if key}
