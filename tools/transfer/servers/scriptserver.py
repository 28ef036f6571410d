"""The client's side of ManageSieve (RFC 5804), as much of it as fetching scripts needs."""

import base64
import re
import socket
import ssl
from collections.abc import Sequence
from contextlib import closing, suppress
from typing import IO

from attrs import define, field

from store.values import Secret
from tools.transfer.servers.pacedreading import TIMEOUT_SECONDS, Pace, reading
from tools.transfer.sourcevalues import OldScript, OutOfTime, Unreadable, UserTime

LINE_OCTETS = 64 << 10      # of a line of an answer, without its literals
LINES = 10_000              # of an answer
HELD_OCTETS = 32 << 20      # of all that it says, so of all scripts,
OF_VALUE = 64               # where each value counts for so many more

_LITERAL = re.compile(rb"\{([0-9]{1,10})\+?\}\Z")
_VALUE = re.compile(rb'"((?:[^"\\]|\\.)*)"|\S+')
_ESCAPED = re.compile(rb"\\(.)")


def scripts(host: str, port: int, context: ssl.SSLContext | None, user: str, password: Secret, admin: str,
            time: UserTime) -> Sequence[OldScript]:
    """The user's scripts, which may take so long. STARTTLS comes first, unless there is no context; with `admin` that
    one logs in for the user. Raises Unreadable."""
    try:
        way = socket.create_connection((host, port), min(TIMEOUT_SECONDS, time.left()))
        with closing(_Session(way, Pace(time))) as session:
            session.answer()
            if context is not None:
                session.start_tls(host, context)
            names = "\0".join((user if admin else "", admin or user, "")).encode()
            login = base64.b64encode(names + password.reveal())
            session.run(b'AUTHENTICATE "PLAIN" "%b"' % login)
            found = [session.script(each[0], active=len(each) > 1 and each[1].upper() == b"ACTIVE")
                     for each in session.run(b"LISTSCRIPTS") if each]
            with suppress(OSError, Unreadable):         # all of them are here
                session.run(b"LOGOUT")
            return found
    except OutOfTime:
        raise
    except Unreadable as problem:
        raise Unreadable(f"Sieve scripts: {problem}") from problem
    except (OSError, ValueError) as error:
        raise Unreadable(f"Sieve scripts: {host}:{port}: {error}") from error


class _Refused(Unreadable):
    """NO; the text is the server's."""


@define(eq=False)
class _Session:
    """A connection. Everything may raise Unreadable, OSError, ValueError."""

    way: socket.socket
    pace: Pace
    _reading: IO[bytes] = field(init=False)
    _room: int = field(factory=lambda: HELD_OCTETS, init=False)

    def __attrs_post_init__(self) -> None:
        self._reading = reading(self.way, self.pace)

    def close(self) -> None:
        """Nobody asks any more."""
        self._reading.close()
        self.way.close()

    def start_tls(self, host: str, context: ssl.SSLContext) -> None:
        """RFC 5804 §2.2: the server then says once more what it can do."""
        self.run(b"STARTTLS")
        self.way = context.wrap_socket(self.way, server_hostname=host)
        self._reading = reading(self.way, self.pace)
        self.answer()

    def run(self, command: bytes) -> list[list[bytes]]:
        """The lines of the answer to a command, each as its values."""
        self.way.sendall(command + b"\r\n")
        return self.answer()

    def script(self, name: bytes, *, active: bool) -> OldScript:
        """The script of that name (RFC 5804 §2.9), or why it is not given."""
        shown, text, problem = name.decode("utf-8", "replace"), b"", ""
        try:
            found = self.run(b"GETSCRIPT " + _quoted(name))
            if found and found[0]:
                text = found[0][0]
            else:
                problem = "the server gives no text"
        except _Refused as refusal:
            problem = str(refusal)
        return OldScript(shown, text, active, problem)

    def answer(self) -> list[list[bytes]]:
        """The lines before OK. Raises Unreadable for NO and BYE, with the server's text."""
        found = list[list[bytes]]()
        for _ in range(LINES):
            values, is_word = self._line()
            if is_word and values[0].upper() == b"OK":
                return found
            if is_word and values[0].upper() in (b"NO", b"BYE"):
                text = b" ".join(values[1:]).decode("utf-8", "replace")
                kind = _Refused if values[0].upper() == b"NO" else Unreadable
                raise kind("the server says " + "".join(
                    letter if letter.isprintable() else "?" for letter in text[:300]))
            found.append(values)
        raise _too_much()

    def _line(self) -> tuple[list[bytes], bool]:
        """The values of a line, and whether the first is a word and no string."""
        values, is_word = list[bytes](), False
        while True:
            line = self._reading.readline(LINE_OCTETS)
            if not line.endswith(b"\n"):
                raise Unreadable("the connection has ended" if len(line) < LINE_OCTETS
                                 else "an answer of the server is too long")
            line = line.rstrip(b"\r\n")
            literal = _LITERAL.search(line)
            for found in _VALUE.finditer(line, 0, literal.start() if literal else len(line)):
                is_word = is_word or not values and found[1] is None
                self._take(len(found[0]))
                values.append(found[0] if found[1] is None else _ESCAPED.sub(rb"\1", found[1]))
            if literal is None:
                return values, is_word
            values.append(self._literal(int(literal[1])))

    def _literal(self, size: int) -> bytes:
        self._take(size)
        octets = self._reading.read(size)
        if len(octets) < size:
            raise Unreadable("the connection has ended within one")
        return octets

    def _take(self, octets: int) -> None:
        """A value of so many octets is to be held."""
        self._room -= octets + OF_VALUE
        if self._room < 0:
            raise _too_much()


def _too_much() -> Unreadable:
    return Unreadable("the server answers with more than can be held")


def _quoted(name: bytes) -> bytes:
    """A name has no control characters (RFC 5804 §1.6)."""
    if re.search(rb"[\x00\r\n]", name):
        raise _Refused("its name has control characters")
    return b'"' + re.sub(rb'(["\\])', rb"\\\1", name) + b'"'
