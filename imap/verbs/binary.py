"""FETCH BINARY and BINARY.SIZE: a part of a message without its transfer encoding (RFC 3516 §4.2, §4.3).

The length of a decoded part is known only after decoding. So a part is decoded once to measure it, and once more to
send it, unless it is short. Both take memory for one window of it only.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

from attrs import define, field, frozen

from imap.session import Session
from imap.wire.fetch import Binary
from imap.wire.writer import literal_head
from store.errors import StoreError
from store.message.cacherecord import PartSpan, Path
from store.message.text import ENCODINGS, WINDOW, body_octets
from store.partition.messagereading import MessageFile

SHORT = 256 << 10           # a part of so many decoded octets is kept from the first time

Read = Callable[[int, int], bytes]
Pieces = Callable[[Read], Iterable[bytes]]


class UnknownEncoding(Exception):
    """The part has a transfer encoding that this server does not know."""


class HalfSent(Exception):
    """Octets that have been announced cannot be read."""

    def __init__(self, reason: StoreError) -> None:
        super().__init__(str(reason))
        self.reason = reason


@frozen
class _Measured:
    size: int
    has_nul: bool                       # in what is asked for
    kept: list[bytes] | None            # all of it, if it is short


@define(eq=False)
class Decoding:
    """A part, decoded as far as somebody has asked for portions of it. Whoever asks for one portion after the other, in
    one command or in several, has each octet decoded once. It keeps one window of the part."""

    key: tuple[bytes, int, tuple[int, ...]]     # the message file, what of it comes first, and the part
    file: MessageFile                           # open as long as somebody reads
    pieces: Iterator[bytes] = field(init=False)
    piece: bytes = b""
    at: int = 0                                 # where `piece` begins in what is decoded

    def read(self, offset: int, count: int) -> bytes:
        """See `MessageFile.read`."""
        return self.file.read(offset, count)


async def send_portion(session: Session, head: bytes, one: Binary, pieces: Pieces, file: MessageFile,
                       digest: bytes) -> None:
    """A short portion of a part (BINARY[...]<first.count>)."""
    assert one.partial is not None
    first, count = one.partial
    key = digest, len(file.head), one.path
    decoding = session.decoding
    if not isinstance(decoding, Decoding) or decoding.key != key or first < decoding.at:
        decoding = Decoding(key, file)
        decoding.pieces = iter(pieces(decoding.read))
    decoding.file, session.decoding = file, None        # if this fails, the next one begins again
    found: list[bytes] = []
    while True:
        found.append(decoding.piece[max(0, first - decoding.at):max(0, first + count - decoding.at)])
        end = decoding.at + len(decoding.piece)
        if end >= first + count or (piece := next(decoding.pieces, None)) is None:
            break
        decoding.piece, decoding.at = piece, end
        await session.stream.breathe()
    session.decoding = decoding
    octets = b"".join(found)
    session.stream.write(head + ((b" ~" if b"\0" in octets else b" ") + literal_head(len(octets)) + octets if octets
                                 else b' ""'))


def pieces_of(one: Binary, file: MessageFile, parts: Mapping[Path, PartSpan], trace: int, header_length: int
              ) -> Pieces | None:
    """A function that gives the decoded octets of the part, from a reader of the message, which has these parts and a
    trace header of that length; None if it has no such part. Raises UnknownEncoding.

    The message itself has no encoding: its header says what the encoding of its body is.
    """
    if not one.path:
        size = file.size
        return lambda read: _windows(read, size)
    part = parts.get(one.path)
    if part is None:
        return None
    if part.encoding not in ENCODINGS:
        raise UnknownEncoding
    # As in `store.message.sections`: where the trace header, or one of the message's own, belongs to what is read.
    shift = len(file.head) + trace - header_length
    return lambda read: body_octets(read, part, shift, WINDOW)


def _windows(read: Read, size: int) -> Iterator[bytes]:
    for at in range(0, size, WINDOW):
        yield read(at, min(WINDOW, size - at))


async def send(session: Session, head: bytes, one: Binary, pieces: Pieces | None, file: MessageFile, digest: bytes
               ) -> None:
    """Send the item after `head`, which must come before it."""
    if pieces is None:
        session.stream.write(head + (b" 0" if one.size else b" NIL"))
        return
    first, count = one.partial if one.partial is not None else (0, None)
    if count is not None and count <= SHORT:
        await send_portion(session, head, one, pieces, file, digest)
        return
    measured = await _measure(session, pieces, file, first, count)
    if one.size:
        session.stream.write(b"%b %d" % (head, measured.size))
        return
    first = min(first, measured.size)
    end = measured.size if count is None else min(first + count, measured.size)
    if first == end:
        session.stream.write(head + b' ""')
        return
    session.stream.write(head + (b" ~" if measured.has_nul else b" ") + literal_head(end - first))
    at = 0
    try:
        for piece in measured.kept if measured.kept is not None else pieces(file.read):
            session.stream.write(piece[max(0, first - at):max(0, end - at)])
            at += len(piece)
            if at >= end:
                return
            await session.stream.drain(session.settings.command_time)
    except StoreError as error:
        raise HalfSent(error) from error


async def _measure(session: Session, pieces: Pieces, file: MessageFile, first: int, count: int | None) -> _Measured:
    size, has_nul = 0, False
    kept: list[bytes] | None = []
    for piece in pieces(file.read):
        end = len(piece) if count is None else max(0, first + count - size)
        has_nul = has_nul or piece.find(b"\0", max(0, first - size), end) >= 0
        size += len(piece)
        if kept is not None:
            kept.append(piece)
            kept = kept if size <= SHORT else None
        await session.stream.breathe()
    return _Measured(size, has_nul, kept)
