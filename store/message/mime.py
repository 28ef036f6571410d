"""The MIME tree of a message (RFC 2045, 2046), found while its octets pass.

The scanner sees the message in chunks of any size, keeps a bounded part of it and never fails: what is broken becomes
a leaf of the tree. Offsets count octets of the message as it is stored; a line may end with CRLF or with a bare LF.
The CRLF before a boundary belongs to the boundary (RFC 2046 §5.1.1). Bodies are searched a chunk at a time, without a
loop over lines.
"""

import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import NamedTuple

from attrs import define, field

from store.message import headers
from store.message.fields import listed

DEPTH = 50                      # parts inside one another
PARTS = 2000                    # parts of one message
MESSAGE_HEADER = 256 << 10      # octets of the message's own header that are parsed
PART_HEADER = 32 << 10          # octets of each other header that are parsed
ALL_HEADERS = 512 << 10         # octets of all headers of a message that are parsed
BOUNDARY = 256                  # octets of a boundary; RFC 2046 §5.1.1 allows 70
SHORT, REMEMBERED = 200, 500    # octets of the header of a part, and how many of these are remembered: most are alike
WINDOW = 8 << 10                # octets that are looked at together: less than what comes at a time, so that none waits
FIRST = 2                       # windows that wait before the first look: all of most messages, until `end`

_MIME_FIELDS = frozenset((
    b"content-type", b"content-transfer-encoding", b"content-id", b"content-description", b"content-md5",
    b"content-disposition", b"content-language", b"content-location"))
ADDRESS_FIELDS = frozenset((b"from", b"sender", b"reply-to", b"to", b"cc", b"bcc"))
_MESSAGE_FIELDS = _MIME_FIELDS | ADDRESS_FIELDS | {b"date", b"subject", b"in-reply-to", b"message-id", b"references"}

_MESSAGES = (b"RFC822", b"GLOBAL")          # RFC 2046 §5.2.1; RFC 6532 §3.7, RFC 9051 §7.5.2
_TAKEN_APART = (b"MULTIPART", b"MESSAGE")
_WITH_LINES = (b"TEXT", b"MESSAGE")         # in BODYSTRUCTURE (RFC 9051 §7.5.2)
_NOWHERE = sys.maxsize
_HYPHEN = ord("-")          # as a number it is found six times as fast
_PLAIN = (b"TEXT", b"PLAIN")

Parameters = tuple[tuple[bytes, bytes], ...]
# id, description, encoding, md5, disposition, languages, location: as `Part` has them, in its order
About = tuple[bytes | None, bytes | None, bytes, bytes | None, tuple[bytes, Parameters] | None, tuple[bytes, ...],
              bytes | None]


class PartHeader(NamedTuple):
    """One header as it was read. `fields`: the unfolded values of those that matter, by their names in lower case.
    `type`: type and subtype in upper case, TEXT/PLAIN where Content-Type makes no sense, and None without that field.
    """

    fields: dict[bytes, bytes]
    type: tuple[bytes, bytes] | None
    params: Parameters
    about: About


_NO_PARAMETERS: Parameters = ()
_NO_HEADER = PartHeader({}, None, (), (None, None, b"7BIT", None, None, (), None))


def _header_of_part(header: bytes) -> PartHeader:
    """That of a part which is no message, as it stands."""
    return _short(header) if len(header) <= SHORT else _of_part(header)


def _of_part(header: bytes) -> PartHeader:
    fields = headers.select(header, _MIME_FIELDS)
    return _header_of(fields) if fields else _NO_HEADER


_short = lru_cache(maxsize=REMEMBERED)(_of_part)


def _header_of(fields: dict[bytes, bytes]) -> PartHeader:
    """That which has these fields: of a message _MESSAGE_FIELDS, those in ADDRESS_FIELDS joined."""
    get = fields.get
    declared, encoding, language = get(b"content-type"), get(b"content-transfer-encoding"), get(b"content-language")
    kind, params = None, _NO_PARAMETERS
    if declared is not None:
        kind = headers.content_type(declared) or (b"TEXT", b"PLAIN")
        params = headers.parameters(declared)
    disposition = get(b"content-disposition", b"")
    presentation = headers.token(disposition) if disposition else b""
    return PartHeader(fields, kind, params, (
        get(b"content-id"), get(b"content-description"),
        (headers.token(encoding) if encoding else b"") or b"7BIT",
        get(b"content-md5"), (presentation, headers.parameters(disposition)) if presentation else None,
        headers.languages(language) if language else (), get(b"content-location")))


@define
class Part:
    """One part of a message; the message itself is the root (RFC 2045 §2.4 to §2.6).

    The header is [header_start, body_start) and the body [body_start, end). Types, encoding and names of parameters
    are in upper case. A multipart has its parts as children; MESSAGE/RFC822 has one, the message inside. `envelope`
    holds the unfolded fields of a message's header that ENVELOPE shows, and is None for a part that is no message.
    `closed`: its body is a message or multipart that has not been taken apart, being encoded or too deep inside. Nobody
    changes one; a class that is `frozen` takes a call to set each of the 18 attributes.
    """

    header_start: int
    body_start: int
    end: int
    lines: int                                  # LFs in the body of a text or message
    type: bytes = b"TEXT"
    subtype: bytes = b"PLAIN"
    params: Parameters = ()
    id: bytes | None = None
    description: bytes | None = None
    encoding: bytes = b"7BIT"
    md5: bytes | None = None
    disposition: tuple[bytes, Parameters] | None = None
    language: tuple[bytes, ...] = ()
    location: bytes | None = None
    children: tuple["Part", ...] = ()
    envelope: Mapping[bytes, bytes] | None = None
    listed: bytes = b""                         # of the message itself, see `fields.listed`
    closed: bool = False

    @property
    def is_multipart(self) -> bool:
        """Whether the children are the parts of a multipart."""
        return self.type == b"MULTIPART"

    @property
    def is_message(self) -> bool:
        """Whether the body is a message that has been parsed (RFC 2046 §5.2.1)."""
        return self.type == b"MESSAGE" and bool(self.children)


@define(eq=False)
class _Open:
    """A part whose end may not have been seen yet."""

    header_start: int
    is_message: bool                    # it is a message: the root, or inside MESSAGE/RFC822
    default: tuple[bytes, bytes]        # type where the header names none (RFC 2046 §5.1.5)
    body_start: int = -1
    end: int = -1
    first_line: int = 0                 # LFs of the message before the body
    lines: int = 0
    type: tuple[bytes, bytes] = _PLAIN
    header: PartHeader = _NO_HEADER
    listed: bytes = b""
    closed: bool = False                # see `Part`
    children: list["_Open"] = field(factory=list)
    delimiter: bytes = b""              # LF "--" boundary, of a multipart that has not been closed
    found: int = -1                     # where in the window the delimiter comes next; -1: not looked for yet

    def part(self) -> Part:
        """The part as it turned out."""
        kind, subtype = self.type
        header = self.header
        children: tuple[Part, ...] = ()
        params = header.params
        if self.children:
            children = tuple([child.part() for child in self.children])
        # RFC 3501 §9 knows no multipart without parts. What has no boundary can only be read as text.
        elif kind == b"MULTIPART":
            kind, subtype, params = b"TEXT", b"PLAIN", ()
        elif kind == b"MESSAGE" and subtype in _MESSAGES:
            kind, subtype, self.closed = b"APPLICATION", b"OCTET-STREAM", True
        return Part(
            self.header_start, self.body_start, self.end, self.lines if kind in _WITH_LINES else 0, kind, subtype,
            params, *header.about, children,
            header.fields if self.is_message else None, self.listed, self.closed)


class Scanner:
    """Finds the parts of one message whose octets are fed in order; `window` of them are looked at together.

    `room` is how many octets of headers it may yet take: when it has taken some 64 KiB, `finish` and rendering are work
    for a thread, and so when there are many `parts`.
    """

    def __init__(self, window: int = WINDOW) -> None:
        self._octets = window
        # The message is looked at with an LF in front, so that its first line is like any other.
        self._window = b"\n"
        self._base = -1                         # offset of the window's first octet in the message
        self._at = 0                            # index in the window from which an LF matters
        self._waiting: list[bytes] = []         # chunks not looked at yet
        self._waiting_size = 0
        self._patience = FIRST * window         # so many octets of them wait
        self.ended = False                     # `end` has been called
        self._root = _Open(0, True, _PLAIN)
        self._chain = [self._root]              # the open parts, each in the one before it
        self._multiparts: list[_Open] = []      # those of them whose delimiters are looked for
        self._longest = 0                       # of their delimiters
        self._step: Callable[[bool], bool] = self._header
        self._head: list[bytes] = []            # the present header as far as it has left the window
        self._head_from = 0                     # offset of the first octet of the header that is not in _head
        self._head_room = MESSAGE_HEADER
        self.room = ALL_HEADERS
        self.parts = 1
        self._lines = 0                         # LFs of the message before _counted
        self._counted = 1                       # index in the window
        self._is_leaf = False                   # the message has no parts: what comes now is its body, to the end

    def feed(self, data: bytes) -> None:
        """Take the next octets."""
        if self._is_leaf:
            self._lines += data.count(b"\n")
            self._base += len(data)
            return
        self._waiting.append(data)
        self._waiting_size += len(data)
        if self._waiting_size >= self._patience:
            self._patience = self._octets
            self._run_waiting(final=False)

    def end(self) -> None:
        """The message is complete: look at the rest of it. Once."""
        self.ended = True
        if not self._is_leaf:
            self._run_waiting(final=True)

    def finish(self) -> Part:
        """The tree; the message is complete."""
        if not self.ended:
            self.end()
        if self._is_leaf:
            root = self._root
            root.end, root.lines = self._base, self._lines - root.first_line
            return root.part()
        end = self._base + len(self._window)
        self._count(len(self._window))
        for part in self._chain:
            self._close(part, end)
        return self._root.part()

    def _run_waiting(self, final: bool) -> None:
        data = self._waiting[0] if len(self._waiting) == 1 else b"".join(self._waiting)
        self._waiting.clear()
        self._waiting_size, window = 0, self._octets
        # In windows: searches that begin again at every part must not each run over a chunk of any size. In what has no
        # hyphen, as base64, at most one part begins; none, when what is left of the window before has none either.
        start, size = 0, len(data)
        if size > FIRST * window and self._step == self._body and _HYPHEN not in data:
            if not final and self._multiparts and _HYPHEN not in self._window and size > self._longest + 1:
                self._pass(data)
                return
            window = size
        while size - start > FIRST * window:
            self._run(data[start:start + window], final=False)
            start += window
        self._run(data[start:] if start else data, final)

    def _pass(self, data: bytes) -> None:
        """`_run`, where no delimiter begins: of a large attachment nothing is searched or joined, and no lines are
        counted. `data` is longer than a delimiter by 2 octets or more."""
        keep = len(data) - self._longest - 1            # one octet before the place, as in `_run`
        chain = self._chain
        # What has no delimiter may yet turn out to be a text.
        if chain[-1].type[0] in (b"TEXT", b"MULTIPART") or any([part.type[0] == b"MESSAGE" for part in chain]):
            self._lines += self._window.count(b"\n", self._counted) + data.count(b"\n", 0, keep)
        self._base += len(self._window) + keep
        self._window, self._at, self._counted = data[keep:], 1, 0

    def _run(self, data: bytes, final: bool) -> None:
        self._window += data
        for part in self._multiparts:
            part.found = -1
        while self._step(final):
            pass
        if self._is_leaf:
            self._lines += self._window.count(b"\n", self._counted)
            self._base += len(self._window)
            self._window, self._at, self._counted = b"", 0, 0
            return
        if final:                               # `finish` needs no more
            return
        # One octet before the place is kept: a CR there belongs to the delimiter.
        keep = max(0, min(self._at, len(self._window)) - 1)
        if self._step == self._header and self._head_from - self._base < keep:
            self._stash(keep)
        self._count(keep)
        self._window = self._window[keep:]
        self._base += keep
        self._at -= keep
        self._counted -= keep

    def _count(self, to: int) -> None:
        """Count the LFs as far as `to`."""
        if to > self._counted:
            self._lines += self._window.count(b"\n", self._counted, to)
            self._counted = to

    # Each step looks at the window from _at on, and returns whether there is more to do in it.

    def _body(self, final: bool) -> bool:
        """In a body, a preamble or an epilogue: find the next delimiter of a multipart that is open."""
        window = self._window
        if not self._multiparts:
            self._at = len(window)
            return False
        owner, at = self._next_delimiter()
        if owner is None:
            self._at = max(self._at, len(window) - self._longest)
            return False
        if not final and at + self._longest + 2 > len(window):
            self._at = at
            return False
        return self._delimiter(owner, at)

    def _next_delimiter(self) -> tuple[_Open | None, int]:
        """The first delimiter from _at on; of several in one place the longest, then the innermost."""
        window, start = self._window, self._at
        owner, place = None, _NOWHERE
        for part in self._multiparts:
            found = part.found
            if found < start:
                found = window.find(part.delimiter, start)
                if found < 0:
                    found = _NOWHERE
                part.found = found
            if found < place or (found == place and owner is not None and len(part.delimiter) >= len(owner.delimiter)):
                owner, place = part, found
        return (owner, place) if place != _NOWHERE else (None, place)

    def _delimiter(self, owner: _Open, at: int) -> bool:
        """Parts inside `owner` end before the delimiter at `at`; the next one begins, or `owner` is at its end."""
        window = self._window
        if at > self._counted:
            self._lines += window.count(b"\n", self._counted, at)
            self._counted = at
        end = self._base + (at - 1 if at and window[at - 1] == 13 else at)
        chain, multiparts = self._chain, self._multiparts
        while (part := chain[-1]) is not owner:
            chain.pop()
            part.end = end = max(end, part.body_start)      # see `_close`
            part.lines = self._lines - part.first_line
        after = at + len(owner.delimiter)
        closes = window.startswith(b"--", after)
        if closes or multiparts[-1] is not owner:
            while multiparts[-1] is not owner:
                multiparts.pop()
            if closes:
                multiparts.pop()
            self._longest = max([len(part.delimiter) for part in multiparts], default=0)
        self._at = after
        self._step = self._body if closes else self._rest_of_delimiter
        return True

    def _rest_of_delimiter(self, final: bool) -> bool:
        """After a delimiter that begins a part: the part begins with the next line."""
        at = self._window.find(b"\n", self._at)
        if at < 0:
            self._at = len(self._window)
            if not final:
                return False
            at = self._at - 1
        owner = self._chain[-1]
        digest = owner.type == (b"MULTIPART", b"DIGEST")
        self._begin(_Open(self._base + at + 1, False, (b"MESSAGE", b"RFC822") if digest else _PLAIN), at)
        return True

    def _begin(self, part: _Open, at: int) -> None:
        """A part begins after the LF at `at`, inside the innermost open part."""
        self._chain[-1].children.append(part)
        self._chain.append(part)
        self.parts += 1
        if self.parts >= PARTS:
            # The last part takes all that follows.
            self._multiparts.clear()
            self._longest = 0
        self._at = at
        self._head_from = part.header_start
        self._head_room = min(PART_HEADER, self.room)
        self._step = self._header

    def _header(self, final: bool) -> bool:
        """In a header: find the empty line that ends it, or a delimiter, or the end of the message."""
        window, start = self._window, self._at
        owner, limit = self._next_delimiter() if self._multiparts else (None, _NOWHERE)
        stop = len(window) if owner is None else limit + 1
        end = window.find(b"\n\r\n", start, stop)
        bare = window.find(b"\n\n", start, stop if end < 0 else end + 1)
        if bare >= 0:
            self._header_ends(bare + 2)
        elif end >= 0:
            self._header_ends(end + 3)
        elif owner is not None:
            self._header_ends(limit + 1)
        elif final:
            self._header_ends(len(window))
        else:
            self._at = max(start, len(window) - max(self._longest, 2))
            return False
        return not self._is_leaf

    def _stash(self, to: int) -> None:
        """Put the header as far as `to` aside, as much of it as there is room for."""
        start = self._head_from - self._base
        if self._head_room > 0:
            piece = self._window[start:min(to, start + self._head_room)]
            self._head.append(piece)
            self._head_room -= len(piece)
            self.room -= len(piece)
        self._head_from += to - start

    def _header_ends(self, at: int) -> None:
        """The header of the innermost part ends before `at`."""
        part, start = self._chain[-1], self._head_from - self._base
        if self._head or at - start > self._head_room:
            if start < at:
                self._stash(at)
            header = b"".join(self._head)
            self._head.clear()
        else:                           # it is in the window, all of it
            header = self._window[start:at]
            self._head_room -= len(header)
            self.room -= len(header)
            self._head_from += len(header)
        if part is self._root and self._head_room > 0:
            part.listed = listed(header)
        if self._head_room <= 0:
            header = header[:header.rfind(b"\n") + 1]           # the field that was cut is not shown by halves
        if at > self._counted:
            self._lines += self._window.count(b"\n", self._counted, at)
            self._counted = at
        part.body_start = self._base + at
        part.first_line = self._lines
        part.header = _header_of_part(header) if not part.is_message else _header_of(
            headers.select(header, _MESSAGE_FIELDS, ADDRESS_FIELDS))
        part.type = kind = part.header.type or part.default
        self._at = at - 1
        self._step = self._body
        if kind[0] in _TAKEN_APART:
            self._enter(part, at)
        self._is_leaf = part is self._root and not self._multiparts and len(self._chain) == 1

    def _enter(self, part: _Open, at: int) -> None:
        """Take apart the body of a message or multipart, if that can be done."""
        kind, subtype = part.type
        if kind == b"MULTIPART":
            boundary = (headers.parameter(part.header.params, b"BOUNDARY") or b"").rstrip()
            if not boundary or len(boundary) > BOUNDARY:
                return
            if self._is_full():
                part.type, part.closed = (b"APPLICATION", b"OCTET-STREAM"), True
                return
            part.delimiter = b"\n--" + boundary
            self._multiparts.append(part)
            self._longest = max(self._longest, len(part.delimiter))
        elif kind == b"MESSAGE" and subtype in _MESSAGES and not _is_encoded(part) and not self._is_full():
            self._begin(_Open(self._base + at, True, _PLAIN), at - 1)

    def _is_full(self) -> bool:
        return len(self._chain) >= DEPTH or self.parts >= PARTS

    def _close(self, part: _Open, end: int) -> int:
        """The part ends at `end`, and the LFs before it have been counted. Returns where the part around it ends.

        A line end that the header needs is not the boundary's: the part ends after it, and so do those around it.
        """
        part.end = max(end, part.body_start)
        part.lines = self._lines - part.first_line
        return part.end


def _is_encoded(part: _Open) -> bool:
    """Whether the message inside cannot be read as it stands: RFC 6532 §3.7 allows that where RFC 2046 does not."""
    return part.type[1] == b"GLOBAL" and part.header.about[2] in (b"BASE64", b"QUOTED-PRINTABLE")


def parse(read: Callable[[int, int], bytes], size: int, window: int = WINDOW) -> Part:
    """The tree of a stored message of `size` octets, of which `read(offset, count)` gives some."""
    scanner = Scanner(window)
    at = 0
    while at < size and (data := read(at, min(4 * window, size - at))):
        scanner.feed(data)
        at += len(data)
    return scanner.finish()
