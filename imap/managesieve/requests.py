"""Commands as they are written (RFC 5804 §1.2, §4): a word, then strings and numbers; a string may be a literal."""

import re
from collections.abc import Awaitable, Callable

from attrs import field, frozen

_TOKEN = re.compile(rb' *+(?:"((?:[^"\\\r\n\0]++|\\["\\])*)"|\{([0-9]{1,10})(\+?)\}\Z|([^ "{}()]++))')
_ESCAPE = re.compile(rb"\\(.)")
MOST = 4                        # arguments of a command


class Misread(Exception):
    """The line is no command; `farewell`: nobody knows where the next one begins."""

    def __init__(self, text: str, *, farewell: bool = False) -> None:
        self.farewell = farewell
        super().__init__(text)


class TooLarge(Exception):
    """A literal has more octets than is allowed; they have been read, and dropped."""


@frozen
class Request:
    """A command: its name in upper case; its strings (bytes) and numbers (int) are not printed, being passwords too."""

    name: str
    arguments: tuple[bytes | int, ...] = field(default=(), repr=False)


async def read(line: bytes, more: Callable[[int], Awaitable[bytes]], next_line: Callable[[], Awaitable[bytes]]
               ) -> Request:
    """The command that begins with that line. `more(octets)` reads a literal and raises TooLarge when it is too large;
    `next_line` what follows it. Raises Misread, TooLarge."""
    found: list[bytes | int] = []
    too_large = False
    while True:
        literal = _take(line, found)
        if literal is None:
            break
        if len(found) > MOST:           # or a command without an end would have no limit
            raise Misread("Too many arguments", farewell=True)
        try:
            found.append(await more(literal))
        except TooLarge:
            too_large = True
            found.append(b"")
        line = await next_line()
    if too_large:
        raise TooLarge
    if not found or not isinstance(found[0], _Word):
        raise Misread("A command is expected")
    if len(found) > MOST + 1:
        raise Misread("Too many arguments")
    if any(isinstance(one, _Word) for one in found[1:]):
        raise Misread("Arguments are strings or numbers")
    return Request(found[0].decode("ascii", "replace").upper(), tuple(found[1:]))


class _Word(bytes):
    """An atom."""


def _take(line: bytes, found: list[bytes | int]) -> int | None:
    """The tokens of a line; the octets of the literal that it ends with, if it does. Raises Misread."""
    at = 0
    while at < len(line):
        match = _TOKEN.match(line, at)
        if match is None:
            if not line[at:].strip(b" "):
                break
            raise Misread("The command cannot be understood")
        at = match.end()
        if match[2] is not None:
            if not match[3]:            # RFC 5804 §4: a client's literal has a plus, and does not wait
                raise Misread("A literal of a client is written {octets+}", farewell=True)
            return int(match[2])
        if match[1] is not None:
            found.append(_ESCAPE.sub(rb"\1", match[1]))
        else:
            found.append(int(match[4]) if match[4].isdigit() and len(match[4]) <= 10 and found else _Word(match[4]))
    return None


def string(request: Request, at: int) -> bytes:
    """An argument that must be a string. Raises Misread."""
    value = request.arguments[at] if at < len(request.arguments) else None
    if not isinstance(value, bytes):
        raise Misread(f"{request.name} takes a string")
    return value


def text(request: Request, at: int) -> str:
    """An argument that must be a string in UTF-8. Raises Misread."""
    try:
        return string(request, at).decode()
    except UnicodeDecodeError:
        raise Misread("Strings are in UTF-8") from None


def number(request: Request, at: int) -> int:
    """An argument that must be a number of 32 bits. Raises Misread."""
    value = request.arguments[at] if at < len(request.arguments) else None
    if not isinstance(value, int) or value >= 1 << 32:
        raise Misread(f"{request.name} takes a number")
    return value
