"""Clients of a load: IMAP that keeps all it is told, and LMTP with a reply for each recipient."""

import re
import socket
from collections.abc import Iterator, Sequence

from attrs import frozen

from tools.benchmarks.temporaryserver import ADDRESS, PASSWORD

SECONDS = 60.0
_LITERAL = re.compile(rb"\{(\d+)\}\r\n\Z")


class RefusedError(Exception):
    """The server said no to something that should have worked."""


@frozen
class Message:
    """A message as a client sees it."""

    octets: bytes
    flags: frozenset[str]


class Connection:
    """Lines over loopback. A connection that ends raises ConnectionError."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((ADDRESS, port), SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self._socket.makefile("rb")

    def send(self, octets: bytes) -> None:
        """As they are."""
        self._socket.sendall(octets)

    def line(self) -> bytes:
        """The next one, with its end."""
        line = self._file.readline()
        if not line.endswith(b"\n"):
            raise ConnectionError("the server has gone")
        return line

    def read(self, size: int) -> bytes:
        """So many octets."""
        octets = self._file.read(size)
        if len(octets) < size:
            raise ConnectionError("the server has gone")
        return octets

    def close(self) -> None:
        """End it."""
        self._file.close()
        self._socket.close()


class Imap(Connection):
    """One that is logged in. Raises RefusedError when it may not."""

    def __init__(self, port: int, user: str) -> None:
        super().__init__(port)
        self.line()
        self.ok(f'LOGIN "{user}" {PASSWORD}')

    def ok(self, command: str, literal: bytes | None = None) -> tuple[list[tuple[bytes, list[bytes]]], bytes]:
        """The untagged responses with their literals, and the tagged line. Raises RefusedError."""
        self.send(b"t " + command.encode() + (b" {%d+}\r\n%b" % (len(literal), literal) if literal is not None else b"")
                  + b"\r\n")
        untagged: list[tuple[bytes, list[bytes]]] = []
        while True:
            text, literals = self.line(), []
            while found := _LITERAL.search(text):
                literals.append(self.read(int(found[1])))
                text += self.line()
            if text.startswith(b"t "):
                if not text.startswith(b"t OK"):
                    raise RefusedError(f"{command}: {text.decode().strip()}")
                return untagged, text
            untagged.append((text, literals))

    def names(self) -> list[str]:
        """All mailboxes of the user's own."""
        untagged, _ = self.ok('LIST "" "*"')
        found = [re.search(rb'LIST \((.*?)\) \S+ "?(.*?)"?\r\n', text) for text, _ in untagged]
        return [each[2].decode() for each in found if each and b"\\Noselect" not in each[1]]

    def examine(self, name: str) -> int:
        """Its UIDVALIDITY; it is selected then."""
        untagged, _ = self.ok(f'EXAMINE "{name}"')
        return next(int(found[1]) for text, _ in untagged if (found := re.search(rb"UIDVALIDITY (\d+)", text)))

    def messages(self, uids: str = "1:*") -> Iterator[tuple[int, Message]]:
        """Of the selected mailbox, with their UIDs."""
        untagged, _ = self.ok(f"UID FETCH {uids} (UID FLAGS BODY.PEEK[])")
        for text, literals in untagged:
            uid, flags = re.search(rb"UID (\d+)", text), re.search(rb"FLAGS \((.*?)\)", text)
            if literals and uid and flags:
                yield int(uid[1]), Message(literals[0], frozenset(flags[1].decode().split()) - {"\\Recent"})


class Lmtp(Connection):
    """One after LHLO."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self._reply()
        self.send(b"LHLO relay.example.org\r\n")
        self._reply()

    def deliver(self, recipients: Sequence[str], octets: bytes) -> Iterator[tuple[str, bytes]]:
        """The reply for each recipient, as it comes: 250, or what the server said when it refused earlier."""
        taken = []
        for command, recipient in ((b"MAIL FROM:<sender@example.org>", ""),
                                   *((b"RCPT TO:<%b>" % each.encode(), each) for each in recipients)):
            self.send(command + b"\r\n")
            reply = self._reply()
            if recipient and reply.startswith(b"250"):
                taken.append(recipient)
            elif recipient:
                yield recipient, reply
        if not taken:
            self.send(b"RSET\r\n")
            self._reply()
            return
        self.send(b"DATA\r\n")
        self._reply()
        self.send(octets.replace(b"\r\n.", b"\r\n..") + b".\r\n")
        for recipient in taken:
            yield recipient, self._reply()

    def _reply(self) -> bytes:
        while True:
            line = self.line()
            if line[3:4] != b"-":
                return line
