"""Sections of messages that are read in one piece: for FETCH of many messages' headers, or of many small messages. If
cache records have the header fields, nothing is read from files.

Whatever needs the table of parts, or is large, or cannot be read, is left to `messagesections`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from attrs import frozen

from imap.wire.fetch import Binary, Part, Section
from imap.wire.writer import literal_head, without_nul
from store.message.cacherecord import CachedMessage
from store.message.fields import LISTED, Lister, header_fields, picker
from store.message.headers import header_end
from store.partition.messagefiles import MessageFiles
from store.partition.messagereading import LARGEST, agrees
from store.tables.index import MessageFigures, Rows, messages_of, octets_of
from store.tables.privateheaders import PrivateHeaders

MANY = 16                   # sections
BEGINNING = 8 << 10         # octets in which nearly every header ends

Span = tuple[int, int]
Pieces = Sequence[bytes]                    # of an answer; octets of messages are separate pieces, not copied
_Cut = Callable[[bytes, int], bytes]        # takes a message, and where its header ends
_Render = Callable[[bytes, int], Pieces]    # takes the same; gives what to say of it
_HEADERS = (Part.HEADER, Part.HEADER_FIELDS, Part.HEADER_FIELDS_NOT)


@frozen(eq=False)
class Quick:
    """The sections of one command."""

    renders: tuple[_Render, ...]
    of_record: tuple[Callable[[bytes], bytes], ...]     # set if cache records have all of it
    takes: tuple[Lister, ...]       # the same, without label; () if only a part of it is asked for
    headers_only: bool
    to_end_of_header: bool

    @classmethod
    def of(cls, sections: Sequence[Section | Binary]) -> "Quick | None":
        """The sections as `Quick`; None if there are many, or some need more than the message's octets."""
        if len(sections) > MANY:
            return None
        renders: list[_Render] = []
        listed = headers_only = bool(sections)
        to_end_of_header = False
        for one in sections:
            if not isinstance(one, Section) or one.path or one.part is Part.MIME:
                return None
            renders.append(_render(one))
            listed = listed and one.part is Part.HEADER_FIELDS and LISTED.issuperset(map(bytes.lower, one.fields))
            headers_only = headers_only and one.part in _HEADERS
            to_end_of_header |= one.part is not Part.ALL
        of_record = tuple([_of_record(one) for one in sections if isinstance(one, Section)]) if listed else ()
        takes: tuple[Lister, ...] = ()
        if of_record and not any(one.partial for one in sections):
            takes = tuple([Lister(one.fields) for one in sections if isinstance(one, Section)])
        return cls(tuple(renders), of_record, takes, headers_only, to_end_of_header)

    def answers(self, files: MessageFiles, rows: Rows, private_headers: PrivateHeaders, *, reader: str | None
                ) -> Iterator[Pieces | None]:
        """The `answer` for each message, made when it is asked for."""
        heads = {0: b"", **private_headers.used(rows)}
        for figures in messages_of(octets_of(rows)):
            yield self.answer(files, figures, heads.get(figures[-1]), reader=reader)

    def answer(self, files: MessageFiles, figures: MessageFigures, head: bytes | None, *, reader: str | None
               ) -> Pieces | None:
        """The sections of a message that begins with this head; None: nobody knows its head. It is compared with its
        digest for this reader, unless that is None. Returns None when this is the wrong way, or when it is damaged."""
        size, serial, header_length, digest, _ = figures
        end = header_length + size - len(head or b"")
        if self.headers_only:
            end, reader = min(end, header_length + BEGINNING), None
        elif end > LARGEST:
            return None
        if head is None or end <= header_length:
            return None
        message = files.beginning(digest, serial, end)
        if message is None or reader is not None and not agrees(message, digest, reader):
            return None
        if header_length:
            message = message[header_length:]
        if head:
            message = head + message
        body = header_end(message) if self.to_end_of_header else 0
        if body is None:
            return None
        if len(self.renders) == 1:
            return self.renders[0](message, body)
        return _rendered(self.renders, message, body)

    def from_records(self, records: Iterable[CachedMessage | None]) -> Iterator[Pieces | None]:
        """The sections of each message from its cache record; None where the record is lost or does not have the
        fields."""
        for record in records:
            if record is None or not record.fields:
                yield None
            else:
                yield b" ".join([render(record.fields) for render in self.of_record]),


def _rendered(renders: Sequence[_Render], message: bytes, end: int) -> Pieces:
    """What all of them say of a message."""
    first, *others = [render(message, end) for render in renders]
    return [*first, *[piece for each in others for piece in (b" ", *each)]]


def portion(span: Span, partial: tuple[int, int] | None) -> Span:
    """The octets of BODY[...]<first.count> that exist; past the end there are none (RFC 3501 §6.4.5)."""
    start, end = span
    if partial is None:
        return span
    first = min(start + partial[0], end)
    return first, min(first + partial[1], end)


def string_head(size: int) -> bytes:
    """What stands between a label and its octets."""
    return b" " + literal_head(size) if size else b' ""'


def _of_record(one: Section) -> Callable[[bytes], bytes]:
    """What to say of the fields that a record has."""
    take = Lister(one.fields)
    said = _said(one, lambda kept, _: take(kept))
    return lambda kept: b"".join(said(kept, 0))


def _render(one: Section) -> _Render:
    cut: _Cut
    match one.part:
        case Part.HEADER_FIELDS:
            pick = picker(one.fields)
            cut = lambda message, end: pick(message[:end])          # noqa: E731
        case Part.HEADER_FIELDS_NOT:
            cut = lambda message, end: header_fields(message[:end], one.fields, True)       # noqa: E731
        case Part.HEADER:
            cut = lambda message, end: message[:end]                # noqa: E731
        case Part.TEXT:
            cut = lambda message, end: message[end:]                # noqa: E731
        case _:
            return _said(one, None)
    return _said(one, cut)


def _said(one: Section, cut: _Cut | None) -> _Render:
    """What a response says of a section. `cut` takes the section from the message; None: it is the whole message."""
    head, empty, partial = one.label.replace(b"%", b"%%") + b" {%d}\r\n", (one.label + string_head(0),), one.partial

    def said(message: bytes, end: int) -> Pieces:
        octets = message if cut is None else cut(message, end)
        if partial is not None:
            octets = octets[slice(*portion((0, len(octets)), partial))]
        return (head % len(octets), without_nul(octets)) if octets else empty

    return said
