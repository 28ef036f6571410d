"""Starts that must not work, and stops."""

import re
import shutil
import signal
import socket
from pathlib import Path

import pytest

from tests.support.clients.imap import Imap
from tests.support.clients.lmtp import Lmtp
from tests.support.processes import command, wait
from tests.support.processes.ports import free_port
from tests.support.servers.server import PASSWORD, Server
from tests.support.stores import messages

pytestmark = pytest.mark.every_file

TIME = 180
PORTS = ["imap_port", "imap_tls_port", "pop3_port", "pop3_tls_port", "lmtp_port"]


def refused(server: Server, **options: str) -> str:
    """What one more `onecopy serve` with other options says; it must end by itself."""
    environment = server.environment() | {"ONECOPY_" + name.upper(): value for name, value in options.items()}
    status, out, error = command.run(["serve"], environment, b"", TIME)
    assert (status, out) == (2, "")
    line, = error.splitlines()
    return line


def other_ports() -> dict[str, str]:
    return {name: str(free_port()) for name in PORTS}


def test_a_store_that_another_server_owns(tmp_path: Path) -> None:
    with Server(tmp_path, ["alice"]) as server:
        assert re.search(rf"\b{server.pid}\b", refused(server, **other_ports()))
        with Lmtp(server.lmtp) as lmtp:
            assert lmtp.deliver("", ["alice"], messages.make(1, 0, 2048))[0].code == 250
        assert server.stop() == 0
        server.start()                  # the store is free again
        server.kill()
        server.start()                  # and after a crash too


@pytest.mark.parametrize("name", PORTS)
def test_a_port_in_use(tmp_path: Path, name: str) -> None:
    server = Server(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert str(port) in refused(server, **{name: str(port)})
    with server:                        # nothing of the failed start is in the way
        server.check()


def test_a_stop_ends_sessions_and_loses_nothing(tmp_path: Path) -> None:
    with Server(tmp_path, ["alice"]) as server:
        imap = Imap(server.imap, "alice", PASSWORD)
        imap.select()
        lmtp = Lmtp(server.lmtp)
        assert lmtp.deliver("", ["alice"], messages.make(1, 0, 2048))[0].code == 250
        assert server.stop() == 0
        assert imap.response().text.startswith((b"* BYE", b"* 1 EXISTS"))
        assert lmtp.reply().code == 421
        imap.close()
        lmtp.close()
        assert server.staged == []
        server.check()
        server.start()
        with Imap(server.imap, "alice", PASSWORD) as again:
            assert again.select()[1] == 1


@pytest.mark.parametrize("after", [0.05, 0.3, 0.6])
def test_a_stop_in_the_middle_of_a_start(tmp_path: Path, after: float) -> None:
    server = Server(tmp_path)
    server.launch()
    server.signal(signal.SIGTERM, after)
    assert server.wait() in (0, -signal.SIGTERM)
    with server:
        server.check()


def test_as_many_connections_as_the_system_allows(tmp_path: Path) -> None:
    with Server(tmp_path) as server:
        line = next(line for line in Path(f"/proc/{wait.tree(server.pid)[-1]}/limits").read_text().splitlines()
                    if line.startswith("Max open files"))
        soft, hard = line.split()[3:5]
        assert soft == hard


def test_what_a_copy_leaves_out_is_made_again(tmp_path: Path) -> None:
    """docs/backup.md: `run/` is not saved; and many a program copies no folder that is empty."""
    kept = messages.make(1, 0, 2048)
    with Server(tmp_path, ["alice"]) as server:
        with Lmtp(server.lmtp) as lmtp:
            assert lmtp.deliver("", ["alice"], kept)[0].code == 250
        assert server.stop() == 0
        shutil.rmtree(server.root / "run")
        for folder in sorted(server.root.rglob("*/"), reverse=True):
            if not any(folder.iterdir()):
                folder.rmdir()
        assert not (server.root / "partitions" / "primary" / "staging").exists()
        server.command("config", "check")
        server.start()
        with Imap(server.imap, "alice", PASSWORD) as imap:
            assert imap.select()[1] == 1
        with Lmtp(server.lmtp) as lmtp:
            assert lmtp.deliver("", ["alice"], messages.make(1, 1, 2048))[0].code == 250
        server.check()
        assert server.stop() == 0
    server.check()
