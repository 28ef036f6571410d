"""What two thousand IMAP connections cost that are logged in, have selected a mailbox, and wait in IDLE."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.support.clients.imap import Imap
from tests.support.clients.lmtp import Lmtp
from tests.support.processes import wait
from tests.support.processes.files import open_files
from tests.support.servers.server import Server
from tests.support.stores import messages

CONNECTIONS = 2000
EACH = 16 * 1024        # octets of memory
USERS = 50
FEW = 5                 # messages in each mailbox


@pytest.fixture(autouse=True)
def _enough_files() -> Iterator[None]:
    with open_files(2 * CONNECTIONS + 500):
        yield


def memory(server: Server) -> int:
    """Octets of memory that the server's processes have now; what they share is divided among them."""
    return sum(int(Path(f"/proc/{pid}/smaps_rollup").read_text().split("\nPss:")[1].split()[0]) * 1024
               for pid in wait.tree(server.pid))


class Idle:
    """A connection in IDLE; of the answers only the ends are looked at, since there are many connections."""

    def __init__(self, port: int, user: str) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), 180)
        self._until(b"\r\n")
        self._say(b"a LOGIN %b secret\r\n" % user.encode(), b"\r\na OK", b"a OK")
        self._say(b"b SELECT INBOX\r\n", b"\r\nb OK")
        self._say(b"c IDLE\r\n", b"+ ")

    def _say(self, command: bytes, *wanted: bytes) -> None:
        self.socket.sendall(command)
        self._until(*wanted)

    def _until(self, *wanted: bytes) -> bytes:
        got = b""
        while not (got.endswith(b"\r\n") and any(got.startswith(one) or one in got for one in wanted)):
            more = self.socket.recv(4096)
            assert more, got
            got += more
        return got

    def hear(self, wanted: bytes) -> None:
        """Until the server says this."""
        self._until(wanted)

    def done(self) -> None:
        """End the IDLE."""
        self._say(b"DONE\r\n", b"c OK", b"\r\nc OK")


@contextmanager
def idling(server: Server, count: int) -> Iterator[list[Idle]]:
    """Connections of all users in turn."""
    with ExitStack() as stack:
        made = [Idle(server.imap, f"user{at % USERS}") for at in range(count)]
        for one in made:
            stack.callback(one.socket.close)
        yield made


def test_two_thousand_idle_connections(tmp_path: Path) -> None:
    options = {"imap.connections_per_address": str(2 * CONNECTIONS)}
    users = [f"user{at}" for at in range(USERS)]
    with Server(tmp_path, users, options) as server:
        with Lmtp(server.lmtp) as lmtp:
            for at in range(FEW):
                assert all(reply.code == 250 for reply in lmtp.deliver(
                    "sender@example.org", users, messages.make(1, at, 2000)))
        with idling(server, USERS):                 # what is loaded at first use is loaded now
            pass
        before = memory(server)
        with idling(server, CONNECTIONS) as all_of_them:
            each = (memory(server) - before) // CONNECTIONS
            with Lmtp(server.lmtp) as lmtp:
                assert all(reply.code == 250 for reply in lmtp.deliver(
                    "sender@example.org", users, messages.make(1, FEW, 2000)))
            for one in all_of_them:
                one.hear(b"* %d EXISTS\r\n" % (FEW + 1))
            told = (memory(server) - before) // CONNECTIONS
            for one in all_of_them:
                one.done()
        print(f"{each} octets for each connection in IDLE; {told} after an arrival in every mailbox")
        assert each < EACH
        assert told < EACH
        with Imap(server.imap, "user0") as imap:
            assert imap.select()[1] == FEW + 1
        server.check()
