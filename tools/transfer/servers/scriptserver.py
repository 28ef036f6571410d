"""The client's side of ManageSieve (RFC 5804), as much of it as fetching scripts needs."""

import base64
import re
import socket
import ssl
from collections.abc import Sequence
from typing import IO

from attrs import define, field

from store.sieve.scriptlimits import DEFAULT
from store.values import Secret
from tools.transfer.servers.imapconnection import TIMEOUT_SECONDS
from tools.transfer.sourcevalues import OldScript, Unreadable

PORT = 4190
LINE_OCTETS = 64 << 10      # of a line of an answer, without its literals
LITERAL_OCTETS = DEFAULT.script + (64 << 10)       # what is longer is no script that could be kept here
LINES = 10_000              # of an answer

_LITERAL = re.compile(rb"\{([0-9]{1,10})\+?\}\Z")
_VALUE = re.compile(rb'"((?:[^"\\]|\\.)*)"|\S+')
_ESCAPED = re.compile(rb"\\(.)")


def scripts(host: str, port: int, context: ssl.SSLContext | None, user: str, password: Secret, admin: str = ""
            ) -> Sequence[OldScript]:
    """The user's scripts. STARTTLS comes first, unless there is no context; with `admin` that one logs in for the user.
    Raises Unreadable."""
    try:
        with socket.create_connection((host, port), TIMEOUT_SECONDS) as way:
            session = _Session(way)
            session.answer()
            if context is not None:
                session.start_tls(host, context)
            names = "\0".join((user if admin else "", admin or user, "")).encode()
            login = base64.b64encode(names + password.reveal())
            session.run(b'AUTHENTICATE "PLAIN" "%b"' % login)
            found = [OldScript(each[0].decode("utf-8", "replace"), session.script(each[0]),
                               len(each) > 1 and each[1].upper() == b"ACTIVE")
                     for each in session.run(b"LISTSCRIPTS") if each]
            session.run(b"LOGOUT")
            return found
    except (OSError, ValueError) as error:
        raise Unreadable(f"Sieve scripts: {host}:{port}: {error}") from error


@define(eq=False)
class _Session:
    """A connection. Everything may raise Unreadable, OSError, ValueError."""

    way: socket.socket
    _reading: IO[bytes] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._reading = self.way.makefile("rb")

    def start_tls(self, host: str, context: ssl.SSLContext) -> None:
        """RFC 5804 §2.2: the server then says once more what it can do."""
        self.run(b"STARTTLS")
        self.way = context.wrap_socket(self.way, server_hostname=host)
        self._reading = self.way.makefile("rb")
        self.answer()

    def run(self, command: bytes) -> list[list[bytes]]:
        """The lines of the answer to a command, each as its values."""
        self.way.sendall(command + b"\r\n")
        return self.answer()

    def script(self, name: bytes) -> bytes:
        """RFC 5804 §2.9. A name has no control characters (§1.6), so it can be quoted."""
        found = self.run(b"GETSCRIPT " + _quoted(name))
        return found[0][0] if found and found[0] else b""

    def answer(self) -> list[list[bytes]]:
        """The lines before OK. Raises Unreadable for NO and BYE, with the server's text."""
        found = list[list[bytes]]()
        for _ in range(LINES):
            values, is_word = self._line()
            if is_word and values[0].upper() == b"OK":
                return found
            if is_word and values[0].upper() in (b"NO", b"BYE"):
                text = b" ".join(values[1:]).decode("utf-8", "replace")
                raise Unreadable("Sieve scripts: the server says " + "".join(
                    letter if letter.isprintable() else "?" for letter in text[:300]))
            found.append(values)
        raise Unreadable("Sieve scripts: the server answers with more than can be held")

    def _line(self) -> tuple[list[bytes], bool]:
        """The values of a line, and whether the first is a word and no string."""
        values, is_word = list[bytes](), False
        while True:
            line = self._reading.readline(LINE_OCTETS)
            if not line.endswith(b"\n"):
                raise Unreadable("Sieve scripts: the connection has ended" if len(line) < LINE_OCTETS
                                 else "Sieve scripts: an answer of the server is too long")
            line = line.rstrip(b"\r\n")
            literal = _LITERAL.search(line)
            for found in _VALUE.finditer(line, 0, literal.start() if literal else len(line)):
                is_word = is_word or not values and found[1] is None
                values.append(found[0] if found[1] is None else _ESCAPED.sub(rb"\1", found[1]))
            if literal is None:
                return values, is_word
            values.append(self._literal(int(literal[1])))

    def _literal(self, size: int) -> bytes:
        if size > LITERAL_OCTETS:
            raise Unreadable(f"Sieve scripts: one has {size} octets, which is too many")
        octets = self._reading.read(size)
        if len(octets) < size:
            raise Unreadable("Sieve scripts: the connection has ended within one")
        return octets


def _quoted(name: bytes) -> bytes:
    if re.search(rb"[\x00\r\n]", name):
        raise Unreadable("Sieve scripts: a name has control characters")
    return b'"' + re.sub(rb'(["\\])', rb"\\\1", name) + b'"'
