"""FETCH BINARY and BINARY.SIZE: a part of a message without its transfer encoding (RFC 3516 §4.2, §4.3).

How long a part is once it is decoded shows only when it has been: so it is decoded once to measure it, and, unless it
is short, once more to send it. Neither takes memory for more than a window of it.
"""

from collections.abc import Callable, Iterable, Iterator

from attrs import frozen

from imap.session import Session
from imap.wire.fetch import Binary
from imap.wire.writer import literal_head
from store.errors import StoreError
from store.message.cacherecord import CachedMessage, PartSpan
from store.message.text import ENCODINGS, WINDOW, body_octets
from store.partition.messagefiles import MessageFile

SHORT = 256 << 10           # octets, decoded, that are kept from the first time

Pieces = Callable[[], Iterable[bytes]]


class UnknownEncoding(Exception):
    """The part has a transfer encoding that nobody here knows."""


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


def pieces_of(one: Binary, file: MessageFile, cached: CachedMessage | None, header_length: int) -> Pieces | None:
    """What makes the decoded octets of the part; None if the message has no such part. Raises UnknownEncoding.

    The message itself has no encoding: the header says what that of its body is.
    """
    if not one.path:
        return lambda: _windows(file)
    part: PartSpan | None = cached.parts.get(one.path) if cached is not None else None
    if cached is None or part is None:
        return None
    if part.encoding not in ENCODINGS:
        raise UnknownEncoding
    # As in `store.message.sections`: where the trace header, or one of the message's own, belongs to what is read.
    shift = len(file.head) + cached.trace - header_length
    return lambda: body_octets(file.read, part, shift, WINDOW)


def _windows(file: MessageFile) -> Iterator[bytes]:
    for at in range(0, file.size, WINDOW):
        yield file.read(at, min(WINDOW, file.size - at))


async def send(session: Session, head: bytes, one: Binary, pieces: Pieces | None) -> None:
    """The item, after `head`, which is what is due before it."""
    if pieces is None:
        session.stream.write(head + (b" 0" if one.size else b" NIL"))
        return
    first, count = one.partial if one.partial is not None else (0, None)
    measured = await _measure(session, pieces, first, count)
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
        for piece in measured.kept if measured.kept is not None else pieces():
            session.stream.write(piece[max(0, first - at):max(0, end - at)])
            at += len(piece)
            if at >= end:
                return
            await session.stream.drain(session.settings.command_time)
    except StoreError as error:
        raise HalfSent(error) from error


async def _measure(session: Session, pieces: Pieces, first: int, count: int | None) -> _Measured:
    size, has_nul = 0, False
    kept: list[bytes] | None = []
    for piece in pieces():
        end = len(piece) if count is None else max(0, first + count - size)
        has_nul = has_nul or piece.find(b"\0", max(0, first - size), end) >= 0
        size += len(piece)
        if kept is not None:
            kept.append(piece)
            kept = kept if size <= SHORT else None
        await session.stream.breathe()
    return _Measured(size, has_nul, kept)
