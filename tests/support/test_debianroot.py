"""The systems in which packages are tried: nothing of a test is left, in them or on this machine."""

import os
from pathlib import Path

import pytest

from tests.support.processes import wait
from tests.support.servers.debianroot import UNPACKED, DebianRoot

pytestmark = [pytest.mark.long, pytest.mark.skipif(os.geteuid() != 0, reason="only root makes namespaces")]


def test_what_is_done_in_one_is_gone(tmp_path: Path) -> None:
    with DebianRoot(tmp_path, "debian-12") as debian:
        sleeping = debian.run("echo new >/etc/hostname; useradd alice; sleep 1000 </dev/null >/dev/null 2>&1 & echo $!")
        assert debian.run("readlink /proc/*/exe | grep -c sleep") == "1\n" and int(sleeping) > 1
        assert debian.run("id -un", user="alice") == "alice\n"
        assert (debian.path / "etc/hostname").read_text() == "new\n"
        first = debian.first
    wait.gone(first, "the first process", limit=180)
    assert not list(tmp_path.iterdir())
    assert not [line for line in Path("/proc/mounts").read_text().splitlines() if str(tmp_path) in line]
    assert "alice" not in (UNPACKED / "debian-12/etc/passwd").read_text()


def test_it_ends_with_who_made_it(tmp_path: Path) -> None:
    """Also when the test is killed: its end of the pipe is closed."""
    debian = DebianRoot(tmp_path, "debian-12")
    debian.__enter__()
    assert debian._first.stdin
    debian._first.stdin.close()
    wait.gone(debian.first, "the first process", limit=180)
    assert debian._first.wait(180) is not None


def test_its_network_is_its_own(tmp_path: Path) -> None:
    with DebianRoot(tmp_path, "debian-12") as debian:
        bind = "python3 -c 'import socket; socket.create_server((\"127.0.0.1\", 143))'"
        debian.run(bind)
        assert debian.run("cat /proc/net/dev").count(":") == 1         # the loopback alone
