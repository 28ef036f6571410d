"""A start as root: the ports are bound, and then all processes are a user who may do less."""

import os
import pwd
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import MEMORY
from tests.support.clients.admission import IMAP, LMTP, Knock
from tests.support.processes import otheruser, wait
from tests.support.processes.otheruser import USER
from tests.support.servers.server import PROGRAM, Server
from tools.exits import Failure
from tools.server.process import privileges
from tools.serversettings import Workers
from tools.storeowner import Owner

TIME, LIMIT = 180, 600          # seconds for one process, and for all of it

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="onecopy-", dir=MEMORY if MEMORY.is_dir() else None) as name:
        os.chmod(name, 0o755)
        yield Path(name)


def identities(pid: int) -> dict[str, str]:
    return dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line)


def root_binds_and_somebody_else_serves(folder: Path) -> None:
    owner = folder / "owned"
    owner.mkdir()
    socket = owner / "lmtp"
    user = pwd.getpwnam(USER)
    server = Server(folder, [], {"workers.user": USER, "workers.all": "1", "lmtp.socket": str(socket),
                                 "log.file": str(owner / "log")})
    server.command("user", "add", "--password-stdin", "alice", octets=b"secret\n")
    for path in (folder, owner, *server.root.rglob("*"), server.root):
        if path != folder:
            os.chown(path, user.pw_uid, user.pw_gid, follow_symlinks=False)
    with server:
        pids = wait.tree(server.pid)
        assert len(pids) == 3
        for pid in pids:
            said = identities(pid)
            assert said["Uid"].split() == [str(user.pw_uid)] * 4
            assert said["Gid"].split() == [str(user.pw_gid)] * 4
            assert "0" not in said["Groups"].split()
            assert int(said["CapEff"], 16) == int(said["CapPrm"], 16) == 0
            assert said["Umask"].strip() == "0077"
        assert socket.stat().st_uid == user.pw_uid
        assert (owner / "log").stat().st_uid == user.pw_uid
        with Knock(server, IMAP) as client:
            assert client.log_in().startswith(b"l OK")
        with Knock(server, LMTP) as client:
            client.ask(b"LHLO client.example.org\r\n", b"MAIL FROM:<>\r\n", b"RCPT TO:<alice>\r\n", b"DATA\r\n")
            assert client.ask(b"Subject: one\r\n\r\ntext\r\n.\r\n").startswith(b"250")
        assert server.stop() == 0
    assert not socket.exists()


def who_is_not_root_becomes_nobody_else(folder: Path) -> None:
    server = Server(folder, [], {"workers.user": "daemon"})
    done = subprocess.run([PROGRAM, "serve"], capture_output=True, timeout=TIME, check=False, user=USER,
                          env=server.environment())
    assert done.returncode == 2
    assert done.stderr.decode() == "onecopy: [workers] user: only root can become daemon\n"


def test_somebody_else(folder: Path) -> None:
    cases = root_binds_and_somebody_else_serves, who_is_not_root_becomes_nobody_else
    otheruser.each(f"{Path(__file__).resolve()}::test_somebody_else", cases, folder, 0o755, LIMIT)


@pytest.mark.parametrize(("workers", "said"), [
    (Workers(user="no-such-user"), "no-such-user"),
    (Workers(user=USER, group="no-such-group"), "no-such-group"),
])
def test_who_cannot_be_become(workers: Workers, said: str) -> None:
    with pytest.raises(Failure, match=r"^\[workers\] .*" + said):
        privileges.wanted(workers, Path("/"))


def test_a_group_alone_is_nobody() -> None:
    assert privileges.wanted(Workers(), Path("/")) is None
    with pytest.raises(Failure, match="group is given without user"):
        privileges.wanted(Workers(group="nogroup"), Path("/"))


def test_nothing_of_root_is_left() -> None:
    """In a process of its own, since there is no way back."""
    user = pwd.getpwnam(USER)
    child = os.fork()
    if child == 0:
        try:
            privileges.give_up(Owner.named(USER), [])
            said = identities(os.getpid())
            good = (said["Uid"].split() == [str(user.pw_uid)] * 4 and said["Gid"].split() == [str(user.pw_gid)] * 4
                    and "0" not in said["Groups"].split()
                    and all(int(said[name], 16) == 0 for name in ("CapPrm", "CapEff", "CapAmb")))
            try:
                os.setuid(0)
            except PermissionError:
                os._exit(0 if good else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
