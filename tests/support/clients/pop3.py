"""A small POP3 client (RFC 1939) that can pass a message of any size on as it comes."""

import socket
from collections.abc import Callable

PIECE = 256 * 1024


class Pop3:
    """One connection, logged in when a user is given."""

    def __init__(self, port: int, user: str | None = None, password: str = "secret", *, timeout: float = 300) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout)
        self._file = self.socket.makefile("rb", PIECE)
        self.greeting = self.line()
        if user is not None:
            self.ok(f"USER {user}")
            self.ok(f"PASS {password}")

    def __enter__(self) -> "Pop3":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, data: bytes) -> None:
        """Octets, as they are."""
        self.socket.sendall(data)

    def line(self) -> str:
        """The next line. Raises ConnectionError when there is none."""
        line = self._file.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("the server has gone" + (f" after {line!r}" if line else ""))
        return line[:-2].decode()

    def command(self, text: str) -> str:
        """One command and the first line of its answer."""
        self.send(text.encode() + b"\r\n")
        return self.line()

    def ok(self, text: str) -> str:
        """One command that must work."""
        answer = self.command(text)
        assert answer.startswith("+OK"), f"{text}: {answer}"
        return answer

    def lines(self, text: str) -> list[str]:
        """A command with an answer of many lines."""
        self.ok(text)
        out = []
        while (line := self.line()) != ".":
            out.append(line.removeprefix("."))
        return out

    def retrieve(self, number: int, sink: Callable[[bytes], object]) -> None:
        """RETR: the octets of the message go to `sink`, dots taken away."""
        self.ok(f"RETR {number}")
        held, started = b"\r\n", False         # as if a line had ended before: the first one may begin with a dot too
        while True:
            more = self._file.read1(PIECE)
            if not more:
                raise ConnectionError("the server has gone in the middle of a message")
            held += more
            end = held.find(b"\r\n.\r\n")
            keep = end + 2 if end >= 0 else max(held.rfind(b"\r\n"), 0)     # a line's dot is judged with its CRLF
            piece = held[:keep].replace(b"\r\n.", b"\r\n")
            held = held[keep:]
            if piece:
                sink(piece if started else piece[2:])
                started = True
            if end >= 0:
                assert held == b".\r\n", f"{held[3:40]!r} after the end"
                return

    def message(self, number: int) -> bytes:
        """RETR of one that fits into memory."""
        pieces: list[bytes] = []
        self.retrieve(number, pieces.append)
        return b"".join(pieces)

    def close(self) -> None:
        """Go away without a word."""
        self._file.close()
        self.socket.close()
