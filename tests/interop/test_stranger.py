"""A stranger with a shell account on the host: what there is to read, to write to and to talk to, for who is nobody.

The child that tries is another user from `fork` on, so that it needs nothing but what this process has loaded.
"""

import json
import os
import pwd
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import MEMORY
from tests.support.processes import wait
from tests.support.servers.server import PASSWORD, Server

USER = "nobody"
MAIL = b"From: a@example.org\r\nSubject: for alice alone\r\n\r\nhello\r\n"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A store in which much has been done. The folders on the way to it can be entered, its own is as it was made."""
    with tempfile.TemporaryDirectory(prefix="onecopy-", dir=MEMORY if MEMORY.is_dir() else None) as name:
        folder = Path(name)
        os.chmod(folder, 0o755)
        options = {"workers.imap": "1", "workers.lmtp": "1", "lmtp.socket": str(folder / "lmtp"),
                   "lmtp.socket_mode": "0660", "log.file": str(folder / "onecopy.log")}
        with Server(folder, ["alice", "bob"], options) as made:
            made.command("deliver", "alice", octets=MAIL)
            made.command("snapshot", "create")
            made.command("backup", "--to", str(folder / "backup.tar"))
            made.command("export", "alice", "--format", "maildir", "--to", str(folder / "exported"))
            yield made


def as_stranger(work: Callable[[], Any]) -> Any:
    """What `work` comes to in a process of somebody who is nobody here; it must be JSON."""
    user = pwd.getpwnam(USER)
    out, to = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.setgroups([])
            os.setgid(user.pw_gid)
            os.setuid(user.pw_uid)
            os.write(to, json.dumps(work()).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(to)
    with open(out, "rb") as stream:
        said = stream.read()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    return json.loads(said)


def within_reach(*folders: Path) -> list[str]:
    """What can be read, entered or written to."""
    found = []
    for folder in folders:
        for place, names, files in os.walk(folder):
            for path in (Path(place), *(Path(place) / name for name in (*names, *files))):
                if not path.is_symlink() and any(os.access(path, kind) for kind in (os.R_OK, os.W_OK, os.X_OK)):
                    found.append(str(path))
    return sorted(set(found))


def made(server: Server) -> list[Path]:
    folder = server.root.parent
    return [server.root, folder / "backup.tar", folder / "exported", folder / "onecopy.log"]


def test_nothing_of_the_store_can_be_read_or_written_to(server: Server) -> None:
    def look() -> list[str]:
        loose = [str(path) for path in made(server) if os.access(path, os.R_OK) or os.access(path, os.W_OK)]
        return loose + within_reach(*(path for path in made(server) if path.is_dir()))

    assert server.messages and within_reach(server.root)        # root finds it all
    assert as_stranger(look) == []


def test_nor_when_somebody_has_opened_the_folder(server: Server) -> None:
    """What is in it is closed by itself."""
    os.chmod(server.root, 0o755)
    try:
        assert as_stranger(lambda: [path for path in within_reach(server.root) if path != str(server.root)]) == []
    finally:
        os.chmod(server.root, 0o700)


def test_nobody_else_is_answered_by_the_control_sockets(server: Server) -> None:
    sockets = [str(path) for path in server.root.rglob("*") if path.is_socket()] + [server.options["lmtp.socket"]]
    assert len(sockets) > 3

    def call() -> list[str]:
        answered = []
        for path in sockets:
            for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
                try:
                    with socket.socket(socket.AF_UNIX, kind) as ours:
                        ours.connect(path)
                    answered.append(path)
                except OSError:
                    continue
        return answered

    assert call() and as_stranger(call) == []


def test_command_lines_tell_no_secret(server: Server) -> None:
    """Everybody may read /proc/PID/cmdline; passwords come from files, standard input and the store alone."""
    said = as_stranger(lambda: [Path(f"/proc/{pid}/cmdline").read_bytes().decode("latin-1")
                                for pid in wait.tree(server.pid)])
    assert len(said) >= 3 and not any(PASSWORD in line for line in said)
