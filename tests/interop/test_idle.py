"""What a thousand LMTP connections cost that are open and say nothing."""

import resource
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.support.clients.lmtp import Lmtp
from tests.support.processes import wait
from tests.support.servers.server import Server
from tests.support.stores import messages

CONNECTIONS = 1000
EACH = 20 * 1024        # octets of memory
SIZE = 64 * 1024        # octets of a message, more than the session takes at a time
SENDER = "sender@example.org"


@pytest.fixture(autouse=True)
def _enough_files() -> Iterator[None]:
    """A connection is a file here, too."""
    before, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, max(before, 2 * CONNECTIONS)), most))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (before, most))


def memory(server: Server) -> int:
    """Octets of memory that the server's processes have now; what they share is divided among them."""
    return sum(int(Path(f"/proc/{pid}/smaps_rollup").read_text().split("\nPss:")[1].split()[0]) * 1024
               for pid in wait.tree(server.pid))


@contextmanager
def connected(server: Server, count: int) -> Iterator[list[Lmtp]]:
    """Connections that have said LHLO."""
    with ExitStack() as stack:
        yield [stack.enter_context(Lmtp(server.lmtp)) for _ in range(count)]


def test_a_thousand_idle_connections(tmp_path: Path) -> None:
    options = {"lmtp.connections_per_address": str(2 * CONNECTIONS)}        # those that have just ended may count
    message = messages.make(1, 0, SIZE)
    with Server(tmp_path, ["alice"], options) as server:
        with connected(server, 1) as (lmtp,):       # what is loaded at first use is loaded now
            lmtp.deliver(SENDER, ["alice"], message)
        before = memory(server)
        with connected(server, CONNECTIONS) as all_of_them:
            silent = (memory(server) - before) // CONNECTIONS
            for lmtp in all_of_them:
                reply, = lmtp.deliver(SENDER, ["alice"], message)
                assert reply.code == 250
            delivered = (memory(server) - before) // CONNECTIONS
            assert all(lmtp.command("NOOP").code == 250 for lmtp in all_of_them)
        print(f"{silent} octets for each connection; {delivered} after a message")
        assert silent < EACH
        assert delivered < EACH
        server.check()
