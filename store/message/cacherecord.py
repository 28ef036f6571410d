"""The cache record of a message: its ENVELOPE, BODYSTRUCTURE and BODY (RFC 3501 §7.4.2) and where its parts are.

A record is made once, when the message arrives, and sliced ever after. Everything in it is about the content: offsets
count from the end of the trace header that the first delivery put in front, `trace` octets of the message file.
"""

import re
import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from store.message import headers
from store.message.headers import Address

if TYPE_CHECKING:
    from store.message.mime import Parameters, Part

VERSION = 4
# mid, trace, version, octets of envelope, structure, body, references and header fields
HEAD = struct.Struct("<32sIHIIIII")
HEAD_SIZE = HEAD.size
HEAD_ROW = np.dtype([("digest", "V32"), ("trace", "<u4"), ("version", "<u2"), ("octets", "<u4", (5,))])
_NO_EXTENSION, _NONE = b"NIL NIL NIL NIL", (None, None, None, ())
_NO_HEAD = bytes(HEAD_SIZE)
# A part: header_start, body_start, end, its parent's number, kind, octets of the four strings that follow
_PART = struct.Struct("<QQQHBBBBB")
_PART_PLACE = struct.Struct("<QQQHB")       # of it what is not in `_names`
_LEAF, _MULTIPART, _MESSAGE = range(3)
SHORT, REMEMBERED = 200, 1000       # octets of what many messages have alike, and how many of these are remembered
REFERENCES = 16 << 10       # octets of the References field that are kept: its end, where the nearest ancestors are

_AS_FROM = (b"sender", b"reply-to")     # RFC 3501 §7.4.2: where there is none it is From
_TEXTS = (b"TEXT", b"MESSAGE")          # types of which a leaf is text; one that is a message is no leaf

Path = tuple[int, ...]
Leaf = tuple[int, int, bytes, bytes]    # of a body: where it begins and ends, its transfer encoding and its charset


@frozen
class PartSpan:
    """Where a part is in the content, and what is needed to read it as text.

    The header is [header_start, body_start), the body [body_start, end). `message` is the message that a MESSAGE/RFC822
    part contains.
    """

    header_start: int
    body_start: int
    end: int
    type: bytes = b"TEXT"
    subtype: bytes = b"PLAIN"
    encoding: bytes = b"7BIT"
    charset: bytes = b""
    message: "PartSpan | None" = None


class CachedMessage:
    """What FETCH and SEARCH need to know of a message without opening its file.

    It is the octets that are stored, of which each asks for what it needs: of the messages of a large mailbox much less
    is copied than there is.
    """

    __slots__ = ("data", "digest", "ends")

    def __init__(self, digest: bytes, data: bytes, ends: tuple[int, int, int, int, int]) -> None:
        """`from_bytes` and `of` make one; `data` is its stored form, `digest` names the message file. `ends`: of the
        envelope, the structure, the body, the references and the fields, which stand in this order."""
        self.digest = digest
        self.data = data
        self.ends = ends

    @classmethod
    def of(cls, digest: bytes, trace: int, envelope: bytes, bodystructure: bytes, body: bytes, table: bytes,
           references: bytes = b"", fields: bytes = b"") -> "CachedMessage":
        """The record with these parts."""
        parts = envelope, bodystructure, body, references, fields
        head = HEAD.pack(digest, trace, VERSION, *map(len, parts))
        _, first, second, third, fourth, fifth = accumulate(map(len, parts), initial=HEAD_SIZE)
        return cls(digest, b"".join((head, *parts, table)), (first, second, third, fourth, fifth))

    @classmethod
    def from_bytes(cls, data: bytes) -> "CachedMessage":
        """The record out of its stored form. Raises ValueError when it is damaged or of another version."""
        try:
            digest, _, version, envelope, structure, body, references, fields = HEAD.unpack_from(data)
        except struct.error as error:
            raise ValueError("a cache record is cut short") from error
        if version != VERSION:
            raise ValueError(f"a cache record of version {version}")
        structure += (envelope := envelope + HEAD_SIZE)
        body += structure
        references += body
        fields += references
        if fields >= len(data):
            raise ValueError("a cache record is cut short")
        return cls(digest, data, (envelope, structure, body, references, fields))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CachedMessage) and self.data == other.data

    def __hash__(self) -> int:
        return hash(self.data)

    @property
    def trace(self) -> int:
        """Octets of the trace header in the message file."""
        return int.from_bytes(self.data[32:36], "little")

    @property
    def envelope(self) -> bytes:
        """ENVELOPE."""
        return self.data[HEAD_SIZE:self.ends[0]]

    @property
    def bodystructure(self) -> bytes:
        """BODYSTRUCTURE."""
        return self.data[self.ends[0]:self.ends[1]]

    @property
    def body(self) -> bytes:
        """BODY."""
        return self.data[self.ends[1]:self.ends[2]]

    @property
    def references(self) -> bytes:
        """The References field (RFC 5322 §3.6.4), for THREAD."""
        return self.data[self.ends[2]:self.ends[3]]

    @property
    def fields(self) -> bytes:
        """Of the header, see `fields.listed`; b"": the file must be read."""
        return self.data[self.ends[3]:self.ends[4]]

    @property
    def table(self) -> bytes:
        """The parts, see `parts`."""
        return self.data[self.ends[4]:]

    @property
    def parts(self) -> dict[Path, PartSpan]:
        """The parts by their numbers (RFC 3501 §6.4.5); () is the message itself. Decoded at each call."""
        return _decode_parts(self.table)


def are_sound(values: Iterable[bytes | None], digests: NDArray[np.void], traces: NDArray[Any]) -> NDArray[np.bool_]:
    """Of many stored records, whether each can be read and is that of the message file with that digest (V32) and
    length of the trace header: what `CachedMessage.from_bytes` finds out of one. Of a value no more than its head is
    kept while the next is asked for."""
    found: list[bytes] = []
    sizes: list[int] = []
    for value in values:
        whole = value if value is not None and len(value) > HEAD_SIZE else _NO_HEAD
        found.append(whole[:HEAD_SIZE])
        sizes.append(len(whole))
    heads = np.frombuffer(b"".join(found), HEAD_ROW)
    sound: NDArray[np.bool_] = (heads["digest"] == digests) & (heads["trace"] == traces) & (
        heads["version"] == VERSION) & (
        heads["octets"].sum(1, dtype=np.int64) + HEAD_SIZE < np.array(sizes, np.int64))
    return sound


def fits(record: CachedMessage, digest: bytes, trace: int, size: int) -> bool:
    """Whether a record that came from elsewhere is that of this message file: the message ends where its file does."""
    return (record.digest, record.trace) == (digest, trace) and len(record.table) >= _PART.size and _PART.unpack_from(
        record.table)[2] == size - trace


def render(part_tree: "Part", digest: bytes, trace: int) -> CachedMessage:
    """The record of a message with this tree."""
    table: list[bytes] = []
    _encode_part(part_tree, 0, table)
    references = (part_tree.envelope or {}).get(b"references", b"")[-REFERENCES:]
    return CachedMessage.of(digest, trace, envelope(part_tree), *structure(part_tree), b"".join(table), references,
                            part_tree.listed)


# The wire form

_NOT_PLAIN = re.compile(rb'[\x00\r\n"\\\x80-\xff]')
_NOT_QUOTABLE = re.compile(rb"[\r\n\x80-\xff]")


def string(value: bytes) -> bytes:
    """RFC 3501 §9 string: quoted, or a literal where an octet does not fit; NULs fit in neither and are left out."""
    if _NOT_PLAIN.search(value) is None:
        return b'"%b"' % value
    value = value.replace(b"\0", b"")
    if _NOT_QUOTABLE.search(value) is not None:
        return b"{%d}\r\n%b" % (len(value), value)
    return b'"%b"' % value.replace(b"\\", b"\\\\").replace(b'"', b'\\"')


def nstring(value: bytes | None) -> bytes:
    """RFC 3501 §9 nstring."""
    return b"NIL" if value is None else string(value)


def envelope(message: "Part") -> bytes:
    """The ENVELOPE of a part that is a message (RFC 3501 §7.4.2)."""
    get = (message.envelope or {}).get
    lists: list[bytes] = []
    for name in (b"from", b"sender", b"reply-to", b"to", b"cc", b"bcc"):
        shown = b"NIL"
        if value := get(name):
            shown = _short_addresses(value) if len(value) <= SHORT else _addresses(value)
        lists.append(lists[0] if shown == b"NIL" and name in _AS_FROM else shown)
    texts = []
    for name in (b"date", b"subject", b"in-reply-to", b"message-id"):
        value = get(name)
        texts.append(b"NIL" if value is None else string(value) if _NOT_PLAIN.search(value) else b'"%b"' % value)
    date, subject, *others = texts
    return b"(%b %b %b %b)" % (date, subject, b" ".join(lists), b" ".join(others))


def _addresses(value: bytes) -> bytes:
    found, end = headers.usual_addresses(value)
    if end != len(value) or _ODD.search(value) is not None:
        odd = headers.addresses(value)
        return b"(%b)" % b"".join([_address(item) for item in odd]) if odd else b"NIL"
    return b"(%b)" % b"".join([
        b'("%b" NIL "%b" "%b")' % (name, mailbox, host) if name else b'(NIL NIL "%b" "%b")' % (mailbox, host)
        for name, mailbox, host in found]) if found else b"NIL"


_ODD = re.compile(rb"[\x00\r\n\\\x80-\xff]")
_short_addresses = lru_cache(maxsize=REMEMBERED)(_addresses)


def _address(item: Address) -> bytes:
    return b"(%b %b %b %b)" % (nstring(item.name), nstring(item.route), nstring(item.mailbox), nstring(item.host))


def structure(part: "Part") -> tuple[bytes, bytes]:
    """BODYSTRUCTURE and BODY of a part; BODY is the same without extension data (RFC 3501 §7.4.2)."""
    if part.type == b"MULTIPART":
        inside = [structure(child) for child in part.children]
        subtype = string(part.subtype)
        return (b"(%b %b %b %b)" % (b"".join([long for long, _ in inside]), subtype, _params(part.params),
                                    _extension(part)),
                b"(%b %b)" % (b"".join([short for _, short in inside]), subtype))
    known = (part.type, part.subtype, part.params, part.id, part.description, part.encoding)
    is_short = part.body_start - part.header_start <= SHORT or (part.id is part.description is None and len(
        b"".join(chain(*part.params, (part.subtype, part.encoding)))) <= SHORT)
    fields = b"%b %d" % (_short_leaf(*known) if is_short else _leaf(*known), part.end - part.body_start)
    extension = _NO_EXTENSION if (part.md5, part.disposition, part.location, part.language) == _NONE else (
        b"%b %b" % (nstring(part.md5), _extension(part)))
    if part.children:                   # the message that MESSAGE/RFC822 has in it
        inner = part.children[0]
        long, short = structure(inner)
        shown = envelope(inner)
        return (b"(%b %b %b %d %b)" % (fields, shown, long, part.lines, extension),
                b"(%b %b %b %d)" % (fields, shown, short, part.lines))
    if part.type == b"TEXT":
        fields += b" %d" % part.lines
    return b"(%b %b)" % (fields, extension), b"(%b)" % fields


def _leaf(kind: bytes, subtype: bytes, params: "Parameters", id_: bytes | None, description: bytes | None,
          encoding: bytes) -> bytes:
    """What the structure of a part that is no multipart begins with."""
    if kind == b"TEXT" and not [name for name, _ in params if name.partition(b"*")[0] == b"CHARSET"]:
        params = (*params, (b"CHARSET", b"US-ASCII"))       # RFC 2046 §4.1.2
    return b"%b %b %b %b %b %b" % (string(kind), string(subtype), _params(params), nstring(id_), nstring(description),
                                   string(encoding))


_short_leaf = lru_cache(maxsize=REMEMBERED)(_leaf)


def _params(params: "Parameters") -> bytes:
    if not params:
        return b"NIL"
    return b"(%b)" % b" ".join([b"%b %b" % (string(name), string(value)) for name, value in headers.joined(params)])


def _extension(part: "Part") -> bytes:
    """body-fld-dsp, body-fld-lang and body-fld-loc."""
    if part.disposition is None and not part.language and part.location is None:
        return b"NIL NIL NIL"
    disposition = b"NIL"
    if part.disposition is not None:
        disposition = b"(%b %b)" % (string(part.disposition[0]), _params(part.disposition[1]))
    language = b"(%b)" % b" ".join([string(tag) for tag in part.language]) if part.language else b"NIL"
    return b"%b %b %b" % (disposition, language, nstring(part.location))


# The table of parts

def _encode_part(part: "Part", parent: int, table: list[bytes]) -> None:
    """Add the part and all in it, each after its parent."""
    number = len(table)
    kind_of = b"MESSAGE" if part.closed else part.type          # for SEARCH, to which its octets are text
    place = part.header_start, part.body_start, part.end, parent
    names_of = _short_names if part.body_start - part.header_start <= SHORT else _names
    names = names_of(kind_of, part.subtype, part.encoding, part.params if part.type == b"TEXT" else ())
    if not part.children:
        table.append(_PART_PLACE.pack(*place, _LEAF) + names)
        return
    table.append(_PART_PLACE.pack(*place, _MULTIPART if part.is_multipart else _MESSAGE) + names)
    for child in part.children:
        _encode_part(child, number, table)


def _names(kind: bytes, subtype: bytes, encoding: bytes, params: "Parameters") -> bytes:
    """Of a part in the table the octets of four strings, and these: type, subtype, encoding, and charset if any."""
    charset = (headers.parameter(params, b"CHARSET") or b"") if params else b""
    strings = kind[:255], subtype[:255], encoding[:255], charset[:255]
    return bytes(map(len, strings)) + b"".join(strings)


_short_names = lru_cache(maxsize=REMEMBERED)(_names)


def texts(table: bytes) -> list[Leaf]:
    """Where the bodies that are text begin and end in the content, their transfer encodings and their charsets."""
    found = []
    at, end = 0, len(table)
    while at < end:
        _, body, stop, _, kind, *sizes = _PART.unpack_from(table, at)
        at += _PART.size
        strings = at
        at += sum(sizes)
        if kind == _LEAF and table[strings:strings + sizes[0]] in _TEXTS:
            encoding = strings + sizes[0] + sizes[1]
            charset = at - sizes[3]
            found.append((body, stop, table[encoding:charset], table[charset:at]))
    return found


def _decode_parts(table: bytes) -> dict[Path, PartSpan]:
    spans: list[PartSpan] = []
    children: list[list[int]] = []
    kinds: list[int] = []
    at = 0
    while at < len(table):
        header_start, body_start, end, parent, kind, *sizes = _PART.unpack_from(table, at)
        at += _PART.size
        if spans:
            children[parent].append(len(spans))
        strings: list[bytes] = []
        for size in sizes:
            strings.append(table[at:at + size])
            at += size
        kind_of, subtype, encoding, charset = strings
        spans.append(PartSpan(header_start, body_start, end, kind_of, subtype, encoding, charset))
        children.append([])
        kinds.append(kind)
    return _number(spans, children, kinds)


def _number(spans: list[PartSpan], children: Sequence[Sequence[int]], kinds: Sequence[int]) -> dict[Path, PartSpan]:
    """Give the parts the numbers of RFC 3501 §6.4.5: a message that is no multipart has one part, its text."""
    for number in reversed(range(len(spans))):
        if kinds[number] == _MESSAGE:
            span, inner = spans[number], spans[children[number][0]]
            spans[number] = PartSpan(span.header_start, span.body_start, span.end, span.type, span.subtype,
                                     span.encoding, span.charset, inner)
    found: dict[Path, PartSpan] = {(): spans[0]}
    below: list[tuple[Path, int, bool]] = [((), 0, True)]          # of a message or multipart: its path, its number
    while below:
        path, number, is_message = below.pop()
        if kinds[number] == _MULTIPART:
            inside = [(path + (count,), child) for count, child in enumerate(children[number], 1)]
        elif is_message:
            inside = [(path + (1,), number)]
        else:
            continue
        for inner_path, child in inside:
            found[inner_path] = spans[child]
            if kinds[child] == _MESSAGE:
                below.append((inner_path, children[child][0], True))
            elif kinds[child] == _MULTIPART and child != number:
                below.append((inner_path, child, False))
    return found
