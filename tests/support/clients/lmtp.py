"""A small LMTP client (RFC 2033) that can also do everything wrong."""

import socket
from collections.abc import Callable, Iterable, Iterator, Sequence

from attrs import frozen

LINE = 8192


@frozen
class Reply:
    """One reply of the server, all its lines."""

    code: int
    lines: tuple[str, ...]

    @property
    def enhanced(self) -> str:
        """The enhanced status code (RFC 2034), or an empty text."""
        first = self.lines[0].split(" ", 1)[0]
        return first if first.count(".") == 2 else ""

    def __str__(self) -> str:
        return "\n".join(f"{self.code} {line}" for line in self.lines)


def stuffed(octets: bytes) -> bytes:
    """A message as it goes over the wire after DATA: dots doubled, the ending dot added (RFC 5321 §4.5.2)."""
    if octets.startswith(b"."):
        octets = b"." + octets
    ends = not octets or octets.endswith(b"\r\n")
    return octets.replace(b"\r\n.", b"\r\n..") + (b".\r\n" if ends else b"\r\n.\r\n")


def stuffed_stream(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The same for a message in pieces that each end with CRLF."""
    for piece in pieces:
        assert piece.endswith(b"\r\n")
        yield stuffed(piece)[:-3]
    yield b".\r\n"


class Lmtp:
    """One connection. `address` is a port on loopback or the path of a socket."""

    def __init__(self, address: int | str, *, timeout: float = 300, greet: bool = True) -> None:
        if isinstance(address, int):
            self.socket = socket.create_connection(("127.0.0.1", address), timeout)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        else:
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.settimeout(timeout)
            self.socket.connect(address)
        self._file = self.socket.makefile("rb")
        self.greeting = self.reply()
        self.extensions: dict[str, str] = {}
        if greet:
            answer = self.command("LHLO client.example.org")
            assert answer.code == 250, answer
            for line in answer.lines[1:]:
                name, _, value = line.partition(" ")
                self.extensions[name.upper()] = value

    def __enter__(self) -> "Lmtp":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, data: bytes) -> None:
        """Octets, as they are."""
        self.socket.sendall(data)

    def reply(self) -> Reply:
        """The next reply. Raises ConnectionError when there is none."""
        lines = []
        while True:
            line = self._file.readline(LINE)
            if not line.endswith(b"\n"):
                raise ConnectionError("the server has gone" + (f" after {line!r}" if line else ""))
            lines.append(line[4:].rstrip(b"\r\n").decode())
            if line[3:4] != b"-":
                return Reply(int(line[:3]), tuple(lines))

    def at_end(self) -> bool:
        """Whether the server has closed the connection, with nothing more to say."""
        try:
            return self._file.read(1) == b""
        except ConnectionError:
            return True

    def command(self, line: str | bytes) -> Reply:
        """One command and its reply."""
        self.send((line.encode() if isinstance(line, str) else line) + b"\r\n")
        return self.reply()

    def deliver(self, sender: str, recipients: Sequence[str], message: bytes | Iterable[bytes], *,
                parameters: str = "", told: Callable[[str, Reply], object] = lambda *_: None) -> list[Reply]:
        """One message: the reply for each recipient, of RCPT where that refused it, else of the message itself.

        `message` as a stream comes in pieces that end with CRLF. When MAIL or DATA is refused, all get that reply.
        `told` hears of each recipient's reply to the message at the moment it comes.
        """
        envelope = [f"MAIL FROM:<{sender}>{parameters}", *(f"RCPT TO:<{each}>" for each in recipients), "DATA", ""]
        self.send("\r\n".join(envelope).encode())                  # RFC 2920 §3.1
        mail, rcpts, data = self.reply(), [self.reply() for _ in recipients], self.reply()
        if mail.code != 250:
            return [mail] * len(rcpts)
        if data.code != 354:
            self.command("RSET")
            return [data if rcpt.code == 250 else rcpt for rcpt in rcpts]
        if isinstance(message, bytes):
            self.send(stuffed(message))
        else:
            for piece in stuffed_stream(message):
                self.send(piece)
        out = []
        for recipient, rcpt in zip(recipients, rcpts, strict=True):
            out.append(self.reply() if rcpt.code == 250 else rcpt)
            told(recipient, out[-1])
        return out

    def close(self) -> None:
        """Go away without a word."""
        self._file.close()
        self.socket.close()

    def abort(self) -> None:
        """Go away with a reset, as a machine that lost its power seems to."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.close()
