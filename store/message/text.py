"""The text of a message as a reader sees it: charsets, encoded words (RFC 2047), transfer encodings (RFC 2045 §6).

Lenient like all that reads messages: what cannot be decoded is passed over or stays as it is. Bodies of any size are
decoded a window at a time.
"""

import codecs
import encodings
import encodings.aliases
import pkgutil
import re
from binascii import Error as BinasciiError
from binascii import a2b_base64, a2b_qp
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import lru_cache

import numpy as np

from store.message.cacherecord import PartSpan
from store.message.headers import unfold

_BARE_LF = re.compile(rb"(?<!\r)\n")
WINDOW = 64 << 10               # octets of a body that are decoded together

_ENCODED_WORD = re.compile(rb"=\?([^?\s*]++)(?:\*[^?\s]*+)?\?([bBqQ])\?([^?\s]*+)\?=")
# Codecs of Python that are no charsets of mail, or take more than linear time or bounded memory.
_NOT_CHARSETS = frozenset(("idna", "punycode", "unicode_escape", "raw_unicode_escape", "undefined", "utf_7"))
# Python remembers every name that it is asked for and does not know: it is only asked for these.
_CODECS = frozenset([*encodings.aliases.aliases, *(module.name for module in pkgutil.iter_modules(encodings.__path__))])


@lru_cache(maxsize=256)
def codec(charset: bytes) -> str | None:
    """The name of Python's codec for a charset of MIME, or None where it has none."""
    if len(charset) > 64 or not charset.isascii():
        return None
    name = encodings.normalize_encoding(charset.decode("ascii")).lower()
    if name not in _CODECS or encodings.aliases.aliases.get(name, name) in _NOT_CHARSETS:
        return None
    try:
        b"x".decode(name, "replace")                # LookupError for what does not turn octets into text
    except (LookupError, UnicodeError):
        return None
    return codecs.lookup(name).name


UTF8, COMPATIBLE, STRANGE, ENCODED = range(4)
_STATEFUL = ("hz", "iso2022")       # in which octets of ASCII may stand for something else
_ASCII = bytes(range(128))


@lru_cache(maxsize=256)
def charset_kind(charset: bytes) -> int:
    """What octets of ASCII are in the charset: themselves (COMPATIBLE; UTF8 where all are taken for UTF-8 if they are
    that), or something else (STRANGE)."""
    name = codec(charset) if charset else None
    if name in (None, "ascii", "utf-8"):
        return UTF8
    same = not name.startswith(_STATEFUL) and _ASCII.decode(name, "replace") == _ASCII.decode()
    return COMPATIBLE if same else STRANGE


def decode_text(raw: bytes, charset: bytes = b"") -> str:
    """Text in the charset; where it is missing or unknown UTF-8, and what is not UTF-8 is taken for ISO 8859-1."""
    name = codec(charset) if charset else None
    if name is not None and name != "ascii":
        return raw.decode(name, "replace")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def decode_words(value: bytes) -> str:
    """The text of an unfolded field with its encoded words decoded (RFC 2047 §6)."""
    if b"=?" not in value:
        return decode_text(value)
    return "".join([decode_text(octets, charset) for octets, charset in _without_encodings(value)])


def unconvertible(value: bytes) -> bytes | None:
    """The octets of an unfolded field without the encodings of its encoded words, if these are not all in charsets that
    are known, and valid in them (RFC 5255 §4.6); else None."""
    if value.isascii() and b"=?" not in value:
        return None
    pieces = list(_without_encodings(value))
    try:
        for octets, charset in pieces:
            octets.decode((codec(charset) or "undefined") if charset else "utf-8")
    except UnicodeError:
        return b"".join([octets for octets, _ in pieces])
    return None


def _without_encodings(value: bytes) -> Iterator[tuple[bytes, bytes]]:
    """What a field is put together of: octets, and the charset that an encoded word gives for them."""
    held: list[bytes] = []
    charset, at = b"", 0
    for match in _ENCODED_WORD.finditer(value):
        between = value[at:match.start()]
        adjacent = at > 0 and not between.strip()
        if not adjacent or match[1].lower() != charset:
            # Octets are held so that a character cut in two by adjacent words of one charset comes out whole.
            yield b"".join(held), charset
            held.clear()
        if not adjacent:
            yield between, b""
        charset = match[1].lower()
        held.append(_word_octets(match[2], match[3]))
        at = match.end()
    yield b"".join(held), charset
    yield value[at:], b""


def _word_octets(encoding: bytes, text: bytes) -> bytes:
    if encoding in b"qQ":
        return a2b_qp(text, header=True)
    return _base64(text.rstrip(b"="))


def _base64(text: bytes) -> bytes:
    """What the characters stand for; a last one that is alone stands for nothing."""
    text = text[:-1] if len(text) % 4 == 1 else text
    try:
        return a2b_base64(text + b"=" * (-len(text) % 4))
    except BinasciiError:
        return b""


_WORD = rb"=\?[^?\s*]+(?:\*[^?\s]*)?\?[bBqQ]\?[^?\s]*\?="
_RUN = re.compile(rb"%b(?:\s*%b)*" % (_WORD, _WORD))
_RUN_START = b"=?"
FEW_RUNS = 64               # octets for each beginning of a run, or they are not few


def encoded_runs(octets: bytes) -> Iterator[re.Match[bytes]]:
    """The encoded words in a header that need not be unfolded, those that `decode_words` puts together as one."""
    return _RUN.finditer(octets)


def encoded_run_set(octets: bytes) -> set[bytes]:
    """Each of them once. In many octets an array finds where one may begin: `in`, and a search, take ten times as long.
    """
    each = np.frombuffer(octets, np.uint8)
    starts = np.flatnonzero(each[1:] == _RUN_START[1])
    starts = starts[each[starts] == _RUN_START[0]]
    if len(starts) > len(octets) // FEW_RUNS:
        return set(_RUN.findall(octets))
    found: set[bytes] = set()
    end = 0
    for start in starts.tolist():
        if start >= end and (run := _RUN.match(octets, start)) is not None:
            found.add(run[0])
            end = run.end()
    return found


def header_text(header: bytes) -> str:
    """A header with its fields unfolded and its encoded words decoded."""
    if b"=?" not in header:
        with suppress(UnicodeDecodeError):          # or else line by line: each may be in another charset
            return unfold(header).decode()
    return "\n".join([decode_words(line) for line in unfold(header).split(b"\n")])


# Bodies

def body_text(read: Callable[[int, int], bytes], part: PartSpan, shift: int = 0, window: int = WINDOW) -> Iterator[str]:
    """The text of a leaf part in pieces; `read(offset, count)` reads the message, the content begins at `shift`. So
    many octets are decoded together."""
    name = codec(part.charset) if part.charset else None
    decoder: codecs.IncrementalDecoder = (
        _Lenient() if name in (None, "ascii", "utf-8") else codecs.getincrementaldecoder(name or "")("replace"))
    try:
        for octets in _decoded(_windows(read, part.body_start + shift, part.end + shift, window), part.encoding):
            yield decoder.decode(octets)
        yield decoder.decode(b"", True)
    except UnicodeError:                            # UTF-16 without a byte order mark, "replace" or not
        return


def octets_text(octets: bytes, charset: bytes) -> str:
    """The text of a body without its transfer encoding that is in memory; what `body_text` gives in pieces."""
    name = codec(charset) if charset else None
    if name in (None, "ascii", "utf-8"):
        try:
            return octets.decode("utf-8")
        except UnicodeDecodeError:
            pass                                    # as `_Lenient` has it
    return "".join(body_text(lambda at, count: octets[at:at + count], PartSpan(0, 0, len(octets), charset=charset)))


def leaf_octets(body: bytes, encoding: bytes) -> bytes:
    """A body that is in memory without its transfer encoding."""
    return b"".join(_decoded((body,), encoding))


ENCODINGS = frozenset((b"7BIT", b"8BIT", b"BINARY", b"BASE64", b"QUOTED-PRINTABLE"))      # RFC 2045 §6.1


def body_octets(read: Callable[[int, int], bytes], part: PartSpan, shift: int = 0, window: int = WINDOW
                ) -> Iterable[bytes]:
    """The octets of a part in pieces, without its transfer encoding, which must be one of `ENCODINGS`.

    Lines of text as mail has them end in CRLF, however they do in the file (RFC 3516 §4.3). What is within base64, an
    escape or a part in BINARY is no line of mail, and stays as it is (§4.2).
    """
    pieces: Iterable[bytes] = _windows(read, part.body_start + shift, part.end + shift, window)
    if part.type == b"TEXT" and part.encoding not in (b"BASE64", b"BINARY"):
        pieces = _with_crlf(pieces)
    return _decoded(pieces, part.encoding)


def _with_crlf(pieces: Iterable[bytes]) -> Iterator[bytes]:
    after_cr = False
    for piece in pieces:
        if piece:
            start = b"\r" if after_cr else b""
            after_cr = piece.endswith(b"\r")
            yield _BARE_LF.sub(b"\r\n", start + piece)[len(start):]


class _Lenient(codecs.IncrementalDecoder):
    """UTF-8, and from the first window that is not UTF-8 ISO 8859-1."""

    def __init__(self) -> None:
        super().__init__()
        self._decoder: codecs.IncrementalDecoder = codecs.getincrementaldecoder("utf-8")()

    def decode(self, data: bytes, final: bool = False) -> str:  # type: ignore[override]
        held = self._decoder.getstate()[0]
        try:
            return self._decoder.decode(data, final)
        except UnicodeDecodeError:
            self._decoder = codecs.getincrementaldecoder("latin-1")()
            return self._decoder.decode(held + data, final)


def _windows(read: Callable[[int, int], bytes], start: int, end: int, window: int) -> Iterator[bytes]:
    while start < end and (data := read(start, min(window, end - start))):
        yield data
        start += len(data)


def _decoded(pieces: Iterable[bytes], encoding: bytes) -> Iterable[bytes]:
    if encoding == b"BASE64":
        return _decode_base64(pieces)
    if encoding == b"QUOTED-PRINTABLE":
        return _decode_quoted_printable(pieces)
    return pieces


_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/="
_NOT_BASE64 = bytes(set(range(256)) - set(_ALPHABET))


def _decode_base64(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """RFC 2045 §6.8; other characters are passed over, and padding ends it."""
    held = b""
    for piece in pieces:
        held, padding, _ = (held + piece.translate(None, _NOT_BASE64)).partition(b"=")
        if padding:
            break
        whole = len(held) & ~3
        yield a2b_base64(held[:whole])
        held = held[whole:]
    yield _base64(held)


_BLANKS = 998                           # as long as a line can be (RFC 5322 §2.1.1); more are no end of one
# No escape, nor soft line break: it stands for itself, also at the end (RFC 2045 §6.7, note). What Python makes
# of one depends on what it is given at once.
_STRAY = re.compile(rb"=(?![0-9A-Fa-f]{2}|[ \t]{0,%d}\r?\n)" % _BLANKS)
_AT_LINE_END = re.compile(rb"(?<![ \t])[ \t]{1,%d}(?=\r?\n)" % _BLANKS)
_AT_END = re.compile(rb"(?<![ \t])[ \t]{1,%d}\Z" % _BLANKS)


def _decode_quoted_printable(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """RFC 2045 §6.7."""
    held = b""
    for piece in pieces:
        held += piece
        cut = _whole(held)
        yield _quoted_printable(held, cut)
        held = held[cut:]
    held = _AT_END.sub(b"", held)
    yield _quoted_printable(held, len(held))


def _whole(octets: bytes) -> int:
    """How many octets stand for themselves, whatever follows: not an escape or soft line break ("=" and the two octets
    after it) that is cut in two, nor blanks that may be at the end of a line."""
    end = len(octets.removesuffix(b"\r").rstrip(b" \t"))
    if len(octets) - end > _BLANKS + 2:
        return len(octets) - _BLANKS - 2
    escape = octets.find(b"=", max(0, end - 2))
    return end if escape < 0 else escape


def _quoted_printable(octets: bytes, cut: int) -> bytes:
    """What the octets before `cut` stand for; those behind it only follow."""
    parts, done = [], 0
    for match in _STRAY.finditer(octets):
        if match.start() >= cut:
            break
        parts.append(octets[done:match.start()])
        done = match.end()
    plain = b"=3D".join([*parts, octets[done:cut]])
    if any(blank in plain for blank in (b" \r", b"\t\r", b" \n", b"\t\n")):
        plain = _AT_LINE_END.sub(b"", plain)                        # rule 3
    return a2b_qp(plain)
