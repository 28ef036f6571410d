"""Commands from octets (RFC 1939 §3, RFC 2449, RFC 2595 §4, RFC 5034), and which lines TOP shows. Pure.

Lenient in what is read where every other server is and nothing is gained by refusing (docs/clients.md): blanks between
and after arguments, zeros before a number, UTF-8 in USER and PASS without the command UTF8.
"""

import base64
import binascii
import re
from collections.abc import Callable

from attrs import frozen

from store.accounts.sasl.saslprep import saslprep
from store.values import Secret

_ARGUMENT = re.compile(rb"[\x21-\x7e]{1,40}")
_NUMBER = re.compile(rb"[0-9]{1,10}")
_NOT_TEXT = re.compile(rb"[^\x20-\x7e]")
_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")
_MECHANISM = re.compile(rb"[A-Z0-9_-]{1,20}")      # RFC 4422 §3.1
_LANGUAGES = re.compile(rb"[A-Za-z]{1,8}(?:-[A-Za-z0-9]{1,8})*|\*")       # RFC 4647 §2.1
_EIGHT_BIT = frozenset((b"USER", b"PASS"))          # RFC 6856 §2.2


class SyntaxProblem(Exception):
    """The octets are not a command as the RFC has it. The text may be shown to the client."""


@frozen
class Capa:
    """CAPA (RFC 2449 §5)"""


@frozen
class Stls:
    """STLS (RFC 2595 §4)"""


@frozen
class User:
    """USER name (RFC 1939 §7)"""

    name: str


@frozen
class Pass:
    """PASS string (RFC 1939 §7)"""

    password: Secret


@frozen
class Auth:
    """AUTH mechanism [initial-response] (RFC 5034 §4); without a mechanism it asks which there are."""

    mechanism: str
    initial: Secret | None


@frozen
class Stat:
    """STAT (RFC 1939 §5)"""


@frozen
class List:
    """LIST [msg] (RFC 1939 §5)"""

    number: int | None


@frozen
class Retr:
    """RETR msg (RFC 1939 §5)"""

    number: int


@frozen
class Dele:
    """DELE msg (RFC 1939 §5)"""

    number: int


@frozen
class Noop:
    """NOOP (RFC 1939 §5)"""


@frozen
class Rset:
    """RSET (RFC 1939 §5)"""


@frozen
class Quit:
    """QUIT (RFC 1939 §4, §6)"""


@frozen
class Top:
    """TOP msg n (RFC 1939 §7)"""

    number: int
    lines: int


@frozen
class Uidl:
    """UIDL [msg] (RFC 1939 §7)"""

    number: int | None


@frozen
class Last:
    """LAST (RFC 1460 §5)"""


@frozen
class Utf8:
    """UTF8 (RFC 6856 §2.1)"""


@frozen
class Lang:
    """LANG [language range] (RFC 6856 §3.2); without one it asks which there are."""

    range: str | None


Command = (Capa | Stls | User | Pass | Auth | Stat | List | Retr | Dele | Noop | Rset | Quit | Top | Uidl
           | Last | Utf8 | Lang)
Parser = Callable[[bytes], Command]


def keyword(line: bytes) -> tuple[bytes, bytes]:
    """The command's keyword in capitals, and what follows the space behind it.

    Raises SyntaxProblem for NUL, control and 8-bit octets anywhere in the line; names and passwords may be UTF-8.
    """
    name, _, rest = line.partition(b" ")
    verb = name.upper()
    if _NOT_TEXT.search(line) and (verb not in _EIGHT_BIT or _CONTROL.search(line)):
        raise SyntaxProblem("commands are printable ASCII")
    return verb, rest


def bare(make: Callable[[], Command]) -> Parser:
    """A parser for a command without arguments."""
    def parse(rest: bytes) -> Command:
        _words(rest, 0, 0)
        return make()
    return parse


def of_message(make: Callable[[int], Command]) -> Parser:
    """A parser for a command with a message number."""
    def parse(rest: bytes) -> Command:
        return make(int(rest) if _NUMBER.fullmatch(rest) else _number(_words(rest, 1, 1)[0]))
    return parse


def of_messages(make: Callable[[int | None], Command]) -> Parser:
    """A parser for a command with a message number, or none for all messages."""
    def parse(rest: bytes) -> Command:
        words = _words(rest, 0, 1)
        return make(_number(words[0]) if words else None)
    return parse


def parse_top(rest: bytes) -> Top:
    number, lines = _words(rest, 2, 2)
    return Top(_number(number), _number(lines))


def parse_user(rest: bytes) -> User:
    """A name may hold spaces inside: the RFC does not forbid them, and directories have them."""
    if not rest.strip(b" "):
        raise SyntaxProblem("a name is needed")
    return User(prepared(rest.strip(b" ")))


def parse_pass(rest: bytes) -> Pass:
    """RFC 1939 §7: spaces are part of the password, at its ends too."""
    if not rest:
        raise SyntaxProblem("a password is needed")
    return Pass(Secret(rest if rest.isascii() else prepared(rest).encode()))


def prepared(octets: bytes) -> str:
    """A name or a password as USER and PASS bring it: UTF-8, prepared with SASLprep as a query string (RFC 6856 §2.2,
    RFC 4013, RFC 3454 §7). Raises SyntaxProblem for what is no UTF-8, prohibited, or nothing."""
    try:
        text = octets.decode("utf-8")
        made = text if text.isascii() else saslprep(text)       # control characters have been refused before
    except ValueError:
        made = ""
    if not made:
        raise SyntaxProblem("not UTF-8, or with characters that names and passwords cannot have")
    return made


def parse_auth(rest: bytes) -> Auth:
    words = rest.split()
    if len(words) > 2:
        raise SyntaxProblem("too many arguments")
    if not words:
        return Auth("", None)
    mechanism = words[0].upper()
    if not _MECHANISM.fullmatch(mechanism):
        raise SyntaxProblem("not a mechanism's name")
    initial = None
    if len(words) == 2:
        initial = Secret(b"") if words[1] == b"=" else response(words[1])
    return Auth(mechanism.decode("ascii"), initial)


def response(line: bytes) -> Secret:
    """What a client's line in a SASL exchange says (RFC 5034 §4). Raises SyntaxProblem."""
    try:
        return Secret(base64.b64decode(line, validate=True))
    except binascii.Error:
        raise SyntaxProblem("not base64") from None


def parse_lang(rest: bytes) -> Lang:
    words = _words(rest, 0, 1)
    if words and not _LANGUAGES.fullmatch(words[0]):
        raise SyntaxProblem("not a language")
    return Lang(words[0].decode("ascii").lower() if words else None)


def _words(rest: bytes, least: int, most: int) -> list[bytes]:
    words = rest.split()
    if len(words) < least:
        raise SyntaxProblem("an argument is missing")
    if len(words) > most:
        raise SyntaxProblem("too many arguments")
    if not all(map(_ARGUMENT.fullmatch, words)):
        raise SyntaxProblem("an argument is too long")
    return words


def _number(word: bytes) -> int:
    if not _NUMBER.fullmatch(word):
        raise SyntaxProblem("not a number")
    return int(word)


class TopLines:
    """Takes a message in chunks and gives what TOP shows: the header, the empty line and `lines` lines of the body.

    A line ends at LF, with a CR before it or not: as clients count that show messages with bare LFs.
    """

    __slots__ = ("_before", "_in_header", "_lines", "done")

    _EMPTY_LINE = re.compile(rb"\n\r?\n")

    def __init__(self, lines: int) -> None:
        self._lines = lines             # of the body, still to come
        self._in_header = True
        self._before = b"\n"            # the last octets of the header so far: an empty line may begin there
        self.done = False

    def feed(self, chunk: bytes) -> bytes:
        """The beginning of `chunk` that is shown; all of it, until `done`."""
        if self.done:
            return b""
        start = 0
        if self._in_header:
            data = self._before + chunk
            end = self._EMPTY_LINE.search(data)
            if end is None:
                self._before = data[-2:]
                return chunk
            self._in_header = False
            start = end.end() - len(self._before)
        return chunk[:self._body_end(chunk, start)]

    def _body_end(self, chunk: bytes, start: int) -> int:
        count = chunk.count(b"\n", start)
        if count < self._lines:
            self._lines -= count
            return len(chunk)
        self.done = True
        for _ in range(self._lines):
            start = chunk.find(b"\n", start) + 1
        return start
