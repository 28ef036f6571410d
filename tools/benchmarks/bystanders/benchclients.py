"""Connections of benchmarks to a server that `temporaryserver` has started."""

import socket
from collections.abc import Sequence

from tools.benchmarks.temporaryserver import ADDRESS, PASSWORD

SECONDS = 60.0                  # a command that takes longer is ended by closing its connection
READ_OCTETS = 1 << 16


class Client:
    """An IMAP connection that hides nothing and keeps nothing of what it is sent but the tagged line."""

    def __init__(self, port: int, user: str) -> None:
        self.socket = socket.create_connection((ADDRESS, port), SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._rest = b""
        self._until(b"*")
        self.command(b"LOGIN %s %s" % (user.encode(), PASSWORD.encode()))

    def command(self, *parts: bytes) -> bytes:
        """Its tagged line. Raises OSError when the connection ends or nothing comes."""
        for at, part in enumerate(parts):
            self.socket.sendall((b"" if at else b"x ") + part + b"\r\n")
            if at < len(parts) - 1:
                line = self._until(b"+", b"x ")
                if line.startswith(b"x "):
                    return line
        return self._until(b"x ")

    def close(self) -> None:
        """End the connection."""
        self.socket.close()

    def _until(self, *beginnings: bytes) -> bytes:
        """The next line that begins so. It is found without a look at the others: the bystander is in this process."""
        while True:
            found = [at + 1 for each in beginnings if (at := (b"\n" + self._rest).find(b"\n" + each)) >= 0]
            if found and (end := self._rest.find(b"\n", min(found) - 1)) >= 0:
                line, self._rest = self._rest[min(found) - 1:end], self._rest[end + 1:]
                return line.rstrip(b"\r")
            data = self.socket.recv(READ_OCTETS)
            if not data:
                raise ConnectionError("the server has ended the connection")
            self._rest = self._rest[self._rest.rfind(b"\n") + 1:] + data


class Relay:
    """An LMTP connection."""

    def __init__(self, port: int, recipient: str) -> None:
        self._socket = socket.create_connection((ADDRESS, port), SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._recipient = recipient.encode()
        self._answer()
        self._ask(b"LHLO relay.example.org\r\n")

    def begin(self) -> None:
        """Up to DATA."""
        self._ask(b"MAIL FROM:<a@example.org>\r\n")
        self._ask(b"RCPT TO:<%b>\r\n" % self._recipient)
        self._ask(b"DATA\r\n")

    def message(self, texts: Sequence[bytes]) -> None:
        """The octets, and the final dot. Raises ConnectionError when it is refused."""
        answer = self._ask(b"".join(texts) + b".\r\n")
        if not answer.startswith(b"250"):
            raise ConnectionError(f"refused: {answer!r}")

    def close(self) -> None:
        """End the connection."""
        self._socket.close()

    def _ask(self, line: bytes) -> bytes:
        self._socket.sendall(line)
        return self._answer()

    def _answer(self) -> bytes:
        data = b""
        while not data.endswith(b"\n") or data.splitlines()[-1][3:4] == b"-":
            more = self._socket.recv(READ_OCTETS)
            if not more:
                raise ConnectionError("the server has ended the connection")
            data += more
        return data
