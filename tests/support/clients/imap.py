"""A small IMAP client (RFC 3501): it hides nothing of what the server says, and can pass literals on as they come."""

import re
import socket
from collections.abc import Callable, Iterable
from itertools import count

from attrs import field, frozen

PIECE = 256 * 1024
_LITERAL = re.compile(rb"\{(\d+)\}\r\n\Z")
_UID = re.compile(rb"[( ]UID (\d+)")


@frozen
class Response:
    """One untagged response; in `text` each literal stands as {n}."""

    text: bytes
    literals: tuple[bytes, ...] = field(repr=False)


@frozen
class Answer:
    """What came for one command."""

    untagged: tuple[Response, ...]
    status: str                 # OK, NO, BAD
    text: str

    def find(self, pattern: bytes) -> "re.Match[bytes]":
        """The first untagged response that matches."""
        for response in self.untagged:
            if found := re.search(pattern, response.text):
                return found
        raise AssertionError(f"nothing like {pattern!r} in {self.untagged}")


class Refused(AssertionError):
    """The server said NO or BAD to something that should have worked."""


class Imap:
    """One connection, logged in when a user is given."""

    def __init__(self, port: int, user: str | None = None, password: str = "secret", *, timeout: float = 300) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self.socket.makefile("rb", PIECE)
        self._tags = count(1)
        self.greeting = self.response()
        if user is not None:
            self.ok(f'LOGIN "{user}" "{password}"')

    def __enter__(self) -> "Imap":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, data: bytes) -> None:
        """Octets, as they are."""
        self.socket.sendall(data)

    def response(self, sink: Callable[[bytes], object] | None = None) -> Response:
        """The next response, whatever it is. Raises ConnectionError when there is none."""
        text, literals = b"", []
        while True:
            line = self._file.readline()
            if not line.endswith(b"\n"):
                raise ConnectionError("the server has gone" + (f" after {line!r}" if line else ""))
            text += line
            if not (literal := _LITERAL.search(line)):
                return Response(text.rstrip(b"\r\n"), tuple(literals))
            left = int(literal[1])
            if sink is None:
                literals.append(self._exactly(left))
                continue
            while left:
                piece = self._exactly(min(left, PIECE))
                sink(piece)
                left -= len(piece)

    def _exactly(self, size: int) -> bytes:
        data = self._file.read(size)
        if len(data) < size:
            raise ConnectionError("the server has gone in the middle of a literal")
        return data

    def answer(self, tag: bytes, sink: Callable[[bytes], object] | None = None) -> Answer:
        """Everything up to the tagged response."""
        untagged = []
        while True:
            response = self.response(sink)
            if response.text.startswith(tag + b" "):
                _, status, *rest = response.text.decode().split(" ", 2)
                return Answer(tuple(untagged), status, " ".join(rest))
            untagged.append(response)

    def command(self, text: str | bytes, sink: Callable[[bytes], object] | None = None) -> Answer:
        """One command without literals."""
        tag = b"t%d" % next(self._tags)
        self.send(tag + b" " + (text.encode() if isinstance(text, str) else text) + b"\r\n")
        return self.answer(tag, sink)

    def ok(self, text: str | bytes, sink: Callable[[bytes], object] | None = None) -> Answer:
        """One command that must work."""
        answer = self.command(text, sink)
        if answer.status != "OK":
            raise Refused(f"{text!r}: {answer.status} {answer.text}")
        return answer

    def append(self, mailbox: str, message: bytes | Iterable[bytes], size: int | None = None) -> Answer:
        """APPEND with a literal that waits to be asked for."""
        tag = b"t%d" % next(self._tags)
        pieces = [message] if isinstance(message, bytes) else message
        octets = len(message) if isinstance(message, bytes) else size
        self.send(b'%b APPEND "%b" {%d}\r\n' % (tag, mailbox.encode(), octets))
        response = self.response()
        while response.text.startswith(b"* "):
            response = self.response()
        if not response.text.startswith(b"+"):
            _, status, text = response.text.decode().split(" ", 2)
            return Answer((), status, text)
        for piece in pieces:
            self.send(piece)
        self.send(b"\r\n")
        return self.answer(tag)

    def select(self, mailbox: str = "INBOX", *, examine: bool = False) -> tuple[int, int]:
        """UIDVALIDITY and number of messages."""
        answer = self.ok(f'{"EXAMINE" if examine else "SELECT"} "{mailbox}"')
        return (int(answer.find(rb"\[UIDVALIDITY (\d+)\]")[1]), int(answer.find(rb"^\* (\d+) EXISTS")[1]))

    def uids(self) -> list[int]:
        """All UIDs of the selected mailbox."""
        found = self.ok("UID SEARCH ALL").find(rb"^\* SEARCH(.*)")
        return [int(uid) for uid in found[1].split()]

    def messages(self, uids: str = "1:*") -> dict[int, bytes]:
        """The octets of some messages by UID. Raises AssertionError when one came twice."""
        found: dict[int, bytes] = {}
        for response in self.ok(f"UID FETCH {uids} (UID BODY.PEEK[])").untagged:
            if not response.literals:
                continue
            uid = _UID.search(response.text)
            assert uid, response.text
            assert int(uid[1]) not in found, f"UID {int(uid[1])} came twice in one FETCH"
            found[int(uid[1])] = response.literals[0]
        return found

    def close(self) -> None:
        """Go away without a word."""
        self._file.close()
        self.socket.close()

    def abort(self) -> None:
        """Go away with a reset, as a machine that lost its power seems to."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.close()
