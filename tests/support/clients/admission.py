"""All three servers from their doors: what each greets with, how TLS begins and a user logs in, how each refuses."""

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from attrs import frozen

from tests.conftest import MEMORY
from tests.support.processes import wait
from tests.support.servers.certificates import showing
from tests.support.servers.server import PASSWORD, Server

TIME = 180


@contextmanager
def folder() -> Iterator[Path]:
    """For a store, in memory where that is to be had."""
    with TemporaryDirectory(prefix="onecopy-", dir=MEMORY if MEMORY.is_dir() else None) as name:
        yield Path(name)


def all_serve(server: Server) -> None:
    """Wait for the last of several processes."""
    wait.until(lambda: "serving with" in server.said() or None, "all serve", pid=server.pid, limit=TIME)


def ends_well(server: Server) -> None:
    """A stop, after which nothing is wrong."""
    assert server.stop() == 0
    said = server.log.read_text(errors="replace")
    assert "Traceback" not in said, said[said.index("Traceback"):][:3000]
    server.check()


@frozen
class Kind:
    """One of the servers. `stops`: what it says when it lets nobody in for now; `full`: when a limit is reached."""

    name: str
    greeting: bytes
    starttls: tuple[bytes, ...]         # and the last one's answer begins with `go_ahead`
    go_ahead: bytes
    noop: bytes
    noop_done: bytes
    stops: bytes
    full: bytes


IMAP = Kind("imap", b"* OK ", (b"a STARTTLS\r\n",), b"a OK ", b"n NOOP\r\n", b"n OK ", b"* BYE [UNAVAILABLE] ",
            b"* BYE [LIMIT] ")
POP3 = Kind("pop3", b"+OK ", (b"STLS\r\n",), b"+OK ", b"CAPA\r\n", b".\r\n", b"-ERR [SYS/TEMP] ", b"-ERR [SYS/TEMP] ")
LMTP = Kind("lmtp", b"220 ", (b"LHLO client.example.org\r\n", b"STARTTLS\r\n"), b"220 ", b"NOOP\r\n", b"250 ", b"421 ",
            b"421 ")
KINDS = {kind.name: kind for kind in (IMAP, POP3, LMTP)}


class Knock:
    """A connection to one of them, from `source`; `header` comes before everything else."""

    def __init__(self, server: Server, kind: Kind, *, admission: str = "port", source: str = "127.0.0.1",
                 header: bytes = b"", context: ssl.SSLContext | None = None, name: str | None = None,
                 session: ssl.SSLSession | None = None) -> None:
        port = int(server.options[f"{kind.name}.{'tls_port' if admission == 'tls' else 'port'}"])
        self.kind = kind
        self.socket = socket.create_connection(("127.0.0.1", port), TIME, (source, 0))
        self.socket.sendall(header)
        self._context = context or showing(None)
        if admission == "tls":
            self.socket = self._context.wrap_socket(self.socket, server_hostname=name, session=session)
        self.file = self.socket.makefile("rb")
        self.greeting = self.file.readline()
        if admission == "starttls":
            self.ask(*kind.starttls[:-1])
            self.socket.sendall(kind.starttls[-1])
            assert self.file.readline().startswith(kind.go_ahead)
            self.file.close()
            self.socket = self._context.wrap_socket(self.socket, server_hostname=name, session=session)
            self.file = self.socket.makefile("rb")

    def __enter__(self) -> "Knock":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        self.file.close()
        self.socket.close()

    def ask(self, *commands: bytes) -> bytes:
        """The last line of the last answer."""
        line = b""
        for command in commands:
            self.socket.sendall(command)
            while True:
                line = self.file.readline()
                if not line or self._is_last(line, command):
                    break
        return line

    def _is_last(self, line: bytes, command: bytes) -> bool:
        if self.kind is LMTP:
            return line[3:4] == b" "
        if self.kind is POP3:
            return not command.startswith(b"CAPA") or line == b".\r\n" or line.startswith(b"-ERR")
        return line.startswith((command.split()[0] + b" ", b"* BYE"))

    def log_in(self, user: str = "alice") -> bytes:
        """The answer to the password."""
        if self.kind is IMAP:
            return self.ask(b"l LOGIN %b %b\r\n" % (user.encode(), PASSWORD.encode()))
        assert self.ask(b"USER %b\r\n" % user.encode()).startswith(b"+OK")
        return self.ask(b"PASS %b\r\n" % PASSWORD.encode())

    def answers(self) -> bool:
        """Whether it still takes commands."""
        return self.ask(self.kind.noop).startswith(self.kind.noop_done)

    def rest(self) -> bytes:
        """What it says until it ends the connection."""
        try:
            return self.file.read()
        except ConnectionResetError:
            return b""
