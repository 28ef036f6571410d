"""Messages with UTF-8 in their headers, for clients that have not said UTF8: RFC 6856 §2.1, RFC 6858.

A surrogate is the message with those header fields exchanged that older clients cannot have, in the message's header
and in those of its parts. Text is written in encoded words (RFC 2047), parameters as RFC 2231 has them (RFC 6857), an
address that is not ASCII becomes one that is invalid and shows it. All other octets are the message's. Octets above 127
that are no UTF-8 are nobody's international mail: they are left as they are.
"""

import re
from base64 import b64encode
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Protocol
from urllib.parse import quote_from_bytes

from attrs import field, frozen

from store.message.cacherecord import CachedMessage

EXAMINED = 1 << 20          # octets of headers of one message that are looked at
CHANGED = 24 << 10          # octets of headers that are rewritten
LONGEST = 900               # octets of a parameter in the form of RFC 2231
INVALID = b"<invalid@internationalized-address.invalid>"        # RFC 6858 §2.1

_ADDRESSES = frozenset((
    b"bcc", b"cc", b"from", b"reply-to", b"resent-bcc", b"resent-cc", b"resent-from", b"resent-sender", b"resent-to",
    b"return-path", b"sender", b"to"))
_TEXTS = frozenset((b"subject", b"comments", b"content-description"))
_PARAMETERS = frozenset((b"content-type", b"content-disposition"))
_FIELD = re.compile(rb"[^\n]*(?:\n[ \t][^\n]*)*\n?")
_FOLD = re.compile(rb"\r?\n(?=[ \t])")
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"?|<[^>]*>?|[^"<(),;:]+|.', re.DOTALL)
_PARAMETER_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"?|[^";]+|;', re.DOTALL)
_QUOTED = re.compile(rb"\\(.)", re.DOTALL)
_WORD = 45                  # octets of an encoded word, before they are encoded: RFC 2047 §2 allows 75 after


class File(Protocol):
    """What can be read as a message file can."""

    @property
    def size(self) -> int:
        """Octets."""

    def read(self, offset: int, count: int) -> bytes:
        """Up to `count` octets from `offset` on; fewer only at the end."""


class NeedsUtf8(Exception):
    """The message can be had in UTF-8 mode only."""


@frozen(eq=False)
class Surrogate:
    """A message in which some spans (start, end, octets in their place; ascending) are exchanged."""

    _file: File
    _pieces: list[tuple[int, int, bytes | None]] = field(alias="pieces")    # where it begins; the file's offset or data
    size: int

    @classmethod
    def of(cls, file: File, changes: Iterable[tuple[int, int, bytes]]) -> "Surrogate":
        """The message with these changes."""
        pieces: list[tuple[int, int, bytes | None]] = []
        at = size = 0
        for start, end, new in changes:
            if start > at:
                pieces.append((size, at, None))
                size += start - at
            if new:
                pieces.append((size, 0, new))
                size += len(new)
            at = end
        pieces.append((size, at, None))
        return cls(file, pieces, size + file.size - at)

    def read(self, offset: int, count: int) -> bytes:
        """See `File`."""
        found: list[bytes] = []
        count = min(count, self.size - offset)
        at = bisect_right(self._pieces, offset, key=lambda piece: piece[0]) - 1
        while count > 0:
            begin, source, data = self._pieces[at]
            end = self._pieces[at + 1][0] if at + 1 < len(self._pieces) else self.size
            take = min(count, end - offset)
            found.append(data[offset - begin:offset - begin + take] if data is not None
                         else self._file.read(source + offset - begin, take))
            offset, count, at = offset + take, count - take, at + 1
        return b"".join(found)


def changes_of(file: File, cached: CachedMessage, shift: int, first: bytes) -> list[tuple[int, int, bytes]]:
    """What has to be exchanged in a message: nothing in nearly all of them. `first` is how the file begins; its parts
    begin `shift` octets later in it than `cached` says.

    Raises NeedsUtf8 when that would be too much, StoreError.
    """
    changes, examined, changed = [], 0, 0
    for start, end in _headers(cached, shift):
        examined += end - start
        if examined > EXAMINED:
            raise NeedsUtf8
        header = first[start:end] if end <= len(first) else file.read(start, end - start)
        if is_international(header):
            changed += len(header)
            if changed > CHANGED:
                raise NeedsUtf8
            changes.append((start, end, conventional(header)))
    return changes


def _headers(cached: CachedMessage, shift: int) -> Iterator[tuple[int, int]]:
    """Where the headers of the message and of its parts are, each octet once, in their order."""
    spans = {(0, 0)}
    for path, part in cached.parts.items():
        spans.add((part.header_start + shift if path else 0, part.body_start + shift))
        if part.message is not None:
            spans.add((part.message.header_start + shift, part.message.body_start + shift))
    at = 0
    for start, end in sorted(spans):
        if start >= at and end > start:
            yield start, end
            at = end


def is_international(header: bytes) -> bool:
    """Whether there is UTF-8 in it, and nothing else above 127."""
    if header.isascii():
        return False
    try:
        header.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def conventional(header: bytes) -> bytes:
    """A header, with what follows it up to the body, without octets above 127."""
    at, fields = 0, []
    while at < len(header):
        match = _FIELD.match(header, at)
        assert match is not None
        fields.append(match[0] if match[0].isascii() else _exchanged(match[0]))
        at = match.end()
    return b"".join(fields)


def _exchanged(octets: bytes) -> bytes:
    """A field in the form that older clients know; nothing where there is none (RFC 6858 §2.4)."""
    name, colon, value = octets.partition(b":")
    if not colon or not name.isascii():
        return b""
    end = b"\r\n" if octets.endswith(b"\r\n") else b"\n" if octets.endswith(b"\n") else b""
    value = _FOLD.sub(b"", value.removesuffix(b"\n").removesuffix(b"\r")).strip(b" \t")
    key = name.strip(b" \t").lower()
    if key in _ADDRESSES:
        written = b",\r\n ".join(map(_address, _split(value, _TOKEN, b",")))
    elif key in _TEXTS:
        written = _words(value)
    elif key in _PARAMETERS:
        kind, *parameters = _split(value, _PARAMETER_TOKEN, b";")
        if not kind.isascii():
            return b""
        written = b";\r\n ".join([kind, *filter(None, map(_parameter, parameters))])
    else:
        return b""
    return name + b": " + written + end


def _split(value: bytes, token: "re.Pattern[bytes]", separator: bytes) -> list[bytes]:
    """The items of a list; what is quoted, or in brackets or comments, belongs together."""
    items: list[bytes] = []
    item: list[bytes] = []
    depth, group = 0, False
    for match in token.finditer(value):
        one = match[0]
        if token is _TOKEN:
            depth = max(0, depth + (one == b"(") - (one == b")"))
            group = (group or one == b":") and one != b";" if not depth else group
        if one == separator and not depth and not group:
            items.append(b"".join(item).strip(b" \t"))
            item = []
        else:
            item.append(one)
    items.append(b"".join(item).strip(b" \t"))
    return items


def _address(item: bytes) -> bytes:
    """RFC 6858 §2.1."""
    if item.isascii():
        return item
    name, bracket, address = item.rpartition(b"<")
    address, closing, after = address.partition(b">")
    if not bracket or not closing or b":" in _QUOTED_STRING.sub(b"", name):
        return _words(item) + b" " + INVALID
    name = _text(name)
    if address.isascii():
        return (_words(name) if not name.isascii() else name) + b" <" + address + b">"
    return _words(b"%b <%b>" % (name, address) if name else address) + b" " + INVALID


_QUOTED_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"?', re.DOTALL)


def _text(name: bytes) -> bytes:
    """A display name without its quotes."""
    name = name.strip(b" \t")
    if len(name) > 1 and name[:1] == name[-1:] == b'"':
        return _QUOTED.sub(rb"\1", name[1:-1]) if not name.isascii() else name
    return name


def _words(text: bytes) -> bytes:
    """Encoded words (RFC 2047 §2, §5): each on a line, and none ends within a character."""
    words, at = [], 0
    while at < len(text):
        end = min(at + _WORD, len(text))
        while end < len(text) and text[end] & 0xC0 == 0x80:
            end -= 1
        words.append(b"=?utf-8?b?%b?=" % b64encode(text[at:end]))
        at = end
    return b"\r\n ".join(words)


def _parameter(item: bytes) -> bytes:
    """RFC 2231 §4; nothing for what cannot be a parameter, or is too long for a line (RFC 6858 §2.2)."""
    if item.isascii():
        return item
    name, equals, value = item.partition(b"=")
    name = name.strip(b" \t")
    if not equals or not name or not name.isascii() or b"*" in name:
        return b""
    written = quote_from_bytes(_text(value), safe="!#$&+-.^_`{|}~").encode("ascii")
    return name + b"*=utf-8''" + written if len(written) <= LONGEST else b""
