"""The inner layer of an archive: members of a tar in the pax format (IEEE Std 1003.1, pax), written and read.

Each member is a regular file. The pax keyword `comment`, which every tar reads over, has words of the form name=value;
`digest` is the BLAKE2b-256 of its octets. Headers are those of `tarfile`. Going from one to the next is ours: `tarfile`
stops where something is damaged, and this goes on, with frames at the next one in which a member begins, without
frames at the next block that is a header.
"""

import contextlib
import io
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from hashlib import blake2b

from attrs import define, field, frozen

from store.backup.compression import READ_OCTETS, Chunk, FrameWriter

BLOCK_OCTETS = 512
PAX_OCTETS = 1 << 20        # of a pax header, at most
_COMMENT_WITHIN_OCTETS = 20     # of the records behind a pax header the comment begins
_ZEROS = bytes(BLOCK_OCTETS)


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
    frames: FrameWriter
    count: int = 0
    all: "blake2b" = field(factory=lambda: blake2b(digest_size=32))     # of names, sizes and digests so far

    def add(self, name: str, size: int, data: Iterable[bytes], said: Mapping[str, str], *, mtime: int = 0,
            fresh: bool = False) -> None:
        """A member; `data` has exactly `size` octets."""
        self.frames.begin(fresh=fresh)
        self.frames.write(heading(name, size, said, mtime))
        left = size
        for octets in data:
            self.frames.write(octets)
            left -= len(octets)
        if left:
            raise ValueError(f"{name} has {size - left} octets, and should have {size}")
        self.frames.write(_ZEROS[:-size % BLOCK_OCTETS])
        self.count += 1
        self.all.update(_line(name, size, said))

    def add_octets(self, name: str, data: bytes, *, mtime: int = 0, fresh: bool = False, **said: str) -> None:
        self.add(name, len(data), (data,), {"digest": digest_of(data), **said}, mtime=mtime, fresh=fresh)

    def end(self) -> None:
        self.frames.write(_ZEROS * 2)
        self.frames.flush()


def _line(name: str, size: int, said: Mapping[str, str]) -> bytes:
    return f"{name}\n{size} {said.get('digest', '')}\n".encode()


def heading(name: str, size: int, said: Mapping[str, str], mtime: int) -> bytes:
    return _heading(name, size, " ".join([f"{key}={value}" for key, value in said.items()]), max(0, mtime))


def _heading(name: str, size: int, comment: str, mtime: int) -> bytes:
    """The octets that `tarfile` writes (`_written`). Only what differs is filled in, in an eighth of the time."""
    if len(name) > tarfile.LENGTH_NAME or not (name + comment).isascii() or max(size, mtime) >= 1 << 33 or size < 0:
        return _written(name, size, comment, mtime)
    before, behind = _around_comment(len(comment))
    named = name.encode()
    figures = b"%011o\0%011o\0" % (size, mtime)
    return b"".join((before, comment.encode(), behind, named.ljust(tarfile.LENGTH_NAME, b"\0"), _OWNER, figures,
                     b"%06o\0 " % (_SUM + sum(named) + sum(figures)), _TAIL))


def _written(name: str, size: int, comment: str, mtime: int) -> bytes:
    member = tarfile.TarInfo(name)
    member.size, member.mode, member.mtime, member.pax_headers = size, 0o600, mtime, {"comment": comment}
    return member.tobuf(tarfile.PAX_FORMAT)


@lru_cache
def _around_comment(octets: int) -> tuple[bytes, bytes]:
    """What is before and behind a comment of so many octets, up to the header of the file itself."""
    filler = "x" * octets
    before, _, behind = _written("", 0, filler, 0).partition(f"={filler}\n".encode())
    return before + b"=", b"\n" + behind[:-BLOCK_OCTETS]


_FILE = _written("", 0, "", 0)[-BLOCK_OCTETS:]          # of it the name, size, time and checksum differ
_OWNER, _TAIL = _FILE[100:124], _FILE[156:]
_SUM = sum(_OWNER) + sum(_TAIL) + sum(b" " * 8)         # the checksum is one with spaces in its own place


# Reading

class _Gap(Exception):
    """The next octets are missing."""


class _End(Exception):
    """No more octets come."""


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
            yield self.take(min(self.left, READ_OCTETS))

    def octets(self, most: int) -> bytes:
        """All of it, if that is no more than `most` and what its digest says. Raises Cut."""
        data = b"".join(self.data()) if self.size <= most else b""
        if not data and self.size or digest_of(data) != self.said.get("digest"):
            raise Cut
        return data


@define(eq=False)
class MemberReader:
    """Reads a tar. `ended`: its end has been seen, and nothing else behind it. `flaws`: how much is damaged that takes
    nothing from a member."""

    source: Iterator[Chunk]
    ended: bool = False
    flaws: int = 0
    _chunk: Chunk = field(factory=lambda: Chunk(0, b""))
    _next: Chunk | None = None
    _at: int = 0                    # in the chunk
    _all: "blake2b" = field(factory=lambda: blake2b(digest_size=32))

    def all(self) -> Iterator[Member | Lost]:
        """Every member that can be read, at least in part, and every stretch of octets that cannot."""
        headers, start = b"", self.offset
        while True:
            try:
                block = self._take(BLOCK_OCTETS)
                if block == _ZEROS:
                    self.ended = self._is_end()
                    return
                if block[156:157] == tarfile.XHDTYPE and not headers:
                    size = int(block[124:135], 8)
                    if not 0 <= size <= PAX_OCTETS:
                        raise ValueError("no header of a size that can be")
                    headers = block + self._take(size + -size % BLOCK_OCTETS)
                    continue
                name, size, comment = _parsed(headers + block)
                yield from self._member(name, size, _words(comment), start)
            except _End:
                return
            except (_Gap, ValueError):
                yield from self._resume()
            headers, start = b"", self.offset

    @property
    def offset(self) -> int:
        return self._chunk.offset + self._at

    def _member(self, name: str, size: int, said: Mapping[str, str], start: int) -> Iterator[Member]:
        before = self._all.copy()
        member = Member(name, size, said, start, before, lambda count: self._part(member, count), size)
        self._all.update(_line(name, size, said))
        yield member
        while member.left:
            taken = self._take(min(member.left, READ_OCTETS))
            member.left -= len(taken)
        self.flaws += self._take(-size % BLOCK_OCTETS).strip(b"\0") != b""

    def _is_end(self) -> bool:
        """Whether only zeros follow the first block of them, one more block at least."""
        data = self._chunk.data[self._at:]
        octets, other = len(data), bool(data.strip(b"\0"))
        while (chunk := self._coming()) is not None:
            self._next, self._chunk, self._at = None, chunk, len(chunk.data)
            octets, other = octets + len(chunk.data), other or bool(chunk.data.strip(b"\0"))
        return octets >= BLOCK_OCTETS and not other

    def _part(self, member: Member, count: int) -> bytes:
        try:
            data = self._take(count)
        except (_Gap, _End):
            raise Cut from None
        member.left -= len(data)
        return data

    def _take(self, count: int) -> bytes:
        """So many octets. Raises _Gap, _End when they are not all there; what is there stays."""
        found = self._chunk.data[self._at:self._at + count]
        if len(found) < count:
            return self._joined(found, count)
        self._at += count
        return found

    def _joined(self, found: bytes, count: int) -> bytes:
        """What is left of this chunk, with as much of those that follow."""
        parts, have = [found], len(found)
        while have < count:
            chunk = self._coming()
            if chunk is None:
                raise _End
            if chunk.offset != self._chunk.offset + len(self._chunk.data):
                raise _Gap
            self._next, self._chunk, self._at = None, chunk, 0
            parts.append(chunk.data[:count - have])
            have += len(parts[-1])
        self._at = len(parts[-1])
        return b"".join(parts)

    def _coming(self) -> Chunk | None:
        if self._next is None:
            self._next = next(self.source, None)
            self.flaws += self._next is not None and self._next.flaw
        return self._next

    def _resume(self) -> Iterator[Lost]:
        """Go on where the next member begins."""
        start = self.offset
        while True:
            if self._chunk.labelled:
                first = self._chunk.first
                if first is not None and first >= self._at and self.offset > start:
                    self._at = first
                    break
            elif self._find():
                break
            chunk = self._coming()
            if chunk is None:
                self._at = len(self._chunk.data)
                break
            self._next, self._chunk, self._at = None, chunk, chunk.first or 0
            if chunk.first is not None:
                break
        if self.offset > start:
            yield Lost(start, self.offset - start)

    def _find(self) -> bool:
        """Whether there is a header among the blocks of this chunk, which begins there then."""
        at = self._at + -(self._chunk.offset + self._at) % BLOCK_OCTETS
        while at + BLOCK_OCTETS <= len(self._chunk.data):
            block = self._chunk.data[at:at + BLOCK_OCTETS]
            if block == _ZEROS or _is_pax_header(block):
                self._at = at
                return True
            at += BLOCK_OCTETS
        self._at = len(self._chunk.data)
        return False


def _parsed(headers: bytes) -> tuple[str, int, str]:
    """Name, size and comment of a member by its headers. Raises ValueError.

    Headers that we have written are recognised by writing them again, in a sixth of the time of `tarfile`.
    """
    start = headers.find(b" comment=", BLOCK_OCTETS, BLOCK_OCTETS + _COMMENT_WITHIN_OCTETS) + len(b" comment=")
    file = headers[-BLOCK_OCTETS:]
    with contextlib.suppress(ValueError):
        comment = headers[start:headers.find(b"\n", start)].decode("ascii")
        name, size = file[:tarfile.LENGTH_NAME].rstrip(b"\0").decode("ascii"), int(file[124:135], 8)
        if _heading(name, size, comment, int(file[136:147], 8)) == headers:
            return name, size, comment
    try:
        found = tarfile.TarFile(fileobj=io.BytesIO(headers)).next()
    except (tarfile.TarError, ArithmeticError, LookupError) as error:
        raise ValueError("no header") from error
    if found is None or found.size < 0:
        raise ValueError("no header")
    return found.name, found.size, found.pax_headers.get("comment", "")


def _is_pax_header(block: bytes) -> bool:
    try:
        return tarfile.TarInfo.frombuf(block, "utf-8", "strict").type == tarfile.XHDTYPE
    except (tarfile.TarError, ValueError):
        return False


def _words(text: str) -> dict[str, str]:
    return {key: value for key, _, value in (word.partition("=") for word in text.split(" ")) if key}
