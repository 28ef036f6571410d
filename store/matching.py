"""Whether one message has in its header or body what a SEARCH key asks for: RFC 3501 §6.4.4."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from store import headers
from store.cache import CachedMessage
from store.collation import casemap
from store.mailbox import Mailbox
from store.searchkeys import Among, And, Body, Header, Key, Not, Or, Text
from store.text import body_text, decode_words, header_text

if TYPE_CHECKING:
    from store.messagefiles import MessageFile
    from store.store import Store

HEADER = 1 << 20            # octets of one header that are searched


class Message:
    """One message while it is looked at; its file is opened when a key needs it."""

    def __init__(self, store: "Store", mailbox: Mailbox, at: int, cached: CachedMessage) -> None:
        self._store = store
        self._mailbox = mailbox
        self._row = mailbox.rows[at]
        self._file: MessageFile | None = None
        self._header: bytes | None = None
        self._before = cached.trace - int(self._row["skip"])
        self.parts = cached.parts

    def _open(self) -> "MessageFile":
        if self._file is None:
            self._file = self._store.open_message(self._mailbox.entry, self._row)
        return self._file

    @property
    def shift(self) -> int:
        """How far its content is from its beginning: after header fields of its own, and the trace header."""
        return self._before + len(self._open().head)

    def read(self, offset: int, count: int) -> bytes:
        """Some octets of the message."""
        return self._open().read(offset, count)

    def header(self) -> bytes:
        """The header, as far as it is searched."""
        if self._header is None:
            self._header = self.read(0, min(self.parts[()].body_start + self.shift, HEADER))
        return self._header

    def texts(self) -> Iterator[Iterable[str]]:
        """All text of the body: headers of parts and messages in it, and bodies that are text, each in pieces."""
        own = (self.parts[()].header_start, self.parts[()].body_start)
        seen = {own}
        for path, part in self.parts.items():
            for span in (part, part.message):
                if span is not None and (place := (span.header_start, span.body_start)) not in seen:
                    seen.add(place)
                    octets = min(span.body_start - span.header_start, HEADER)
                    yield (header_text(self.read(span.header_start + self.shift, octets)),)
            if path and part.message is None and part.type in (b"TEXT", b"MESSAGE"):
                yield body_text(self.read, part, self.shift)

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()


def matches(key: Key, at: int, message: Message) -> bool:
    """Whether the message in that place of the mailbox has it; texts of keys are folded. Raises StoreError."""
    match key:
        case Among(mask):
            return bool(mask[at])
        case And(keys):
            return all(matches(inner, at, message) for inner in keys)
        case Or(first, second):
            return matches(first, at, message) or matches(second, at, message)
        case Not(inner):
            return not matches(inner, at, message)
        case Header(name, text):
            values = headers.every(message.header(), name.encode("utf-8", "replace"))
            return any(text in casemap(decode_words(value)) for value in values)
        case Body(text):
            return _is_in(text, message.texts())
        case Text(text):
            return text in casemap(header_text(message.header())) or _is_in(text, message.texts())
    raise TypeError(key)


def _is_in(wanted: str, texts: Iterable[Iterable[str]]) -> bool:
    """Whether one of the texts has `wanted` in it, without putting the pieces of a text together."""
    if not wanted:
        return True
    for pieces in texts:
        tail = ""
        for piece in pieces:
            tail += casemap(piece)
            if wanted in tail:
                return True
            tail = tail[max(0, len(tail) - len(wanted) + 1):]
    return False
