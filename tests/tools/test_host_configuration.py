"""A host may have a configuration of its own, for a onecopy that has nothing to do with this one: the scripts of the
repository and its tests do not see it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.processes import wait
from tests.support.processes.ports import free_port
from tests.support.servers.server import PROGRAM

HOSTILE = '[imap]\nport = 1\nno_such_option = 2\n[nowhere]\nroot = "/nowhere"\n'
SCRIPTS = ("serve", "bench", "test")
TIME = 300


@pytest.fixture
def hostile(tmp_path: Path) -> dict[str, str]:
    """An environment; beside it lies a file in tmp_path, which is found before the one in /etc."""
    (tmp_path / "onecopy.toml").write_text(HOSTILE)
    (tmp_path / "other.toml").write_text(HOSTILE)
    return {**os.environ, "ONECOPY_CONFIG": str(tmp_path / "other.toml"), "ONECOPY_ROOT": "/nowhere/store",
            "ONECOPY_IMAP_PORT": "1", "ONECOPY_NO_SUCH_OPTION": "2", "PYTHONPATH": str(ROOT)}


def as_scripts_do(*words: str) -> list[str]:
    """The command as a script of tools/ runs it, once everything is set up."""
    return ["bash", "-euo", "pipefail", "-c", '. "$0"; exec "$@"', str(ROOT / "tools" / "setup.sh"), *words]


def test_the_configuration_does_harm(hostile: dict[str, str], tmp_path: Path) -> None:
    """So that the tests below can fail."""
    for environment in ({**hostile}, {"PATH": hostile["PATH"]}):
        done = subprocess.run([PROGRAM, "config", "show"], cwd=tmp_path, env=environment, capture_output=True,
                              timeout=TIME, check=False)
        assert done.returncode == 2 and b"no such" in done.stderr


def test_a_command(hostile: dict[str, str], tmp_path: Path) -> None:
    done = subprocess.run(as_scripts_do(str(PROGRAM), "config", "diff", "--root", str(tmp_path / "store")),
                          cwd=tmp_path, env=hostile, capture_output=True, text=True, timeout=TIME, check=False)
    assert [line.split()[0] for line in done.stdout.splitlines()[1:]] == ["root"], done.stderr


def test_the_scripts_begin_in_that_way() -> None:
    for script in SCRIPTS:
        assert '. "$(dirname "$(readlink -f "$0")")/setup.sh"\n' in (ROOT / "tools" / script).read_text()


def test_the_demo(hostile: dict[str, str], tmp_path: Path) -> None:
    words = [sys.executable, "-P", "-m", "tools.demo", "--root", str(tmp_path / "store"), "--lmtp-socket", ""]
    for name in ("imap", "imap-tls", "pop3", "pop3-tls", "lmtp"):
        words += [f"--{name}-port", str(free_port())]
    with (tmp_path / "out").open("wb") as out:
        process = subprocess.Popen(as_scripts_do(*words), cwd=tmp_path, env=hostile, stdin=subprocess.DEVNULL,
                                   stdout=out, stderr=out)
    try:
        wait.until(lambda: "onecopy is running." in (tmp_path / "out").read_text(), "it runs", pid=process.pid,
                   limit=TIME)
    finally:
        process.terminate()
        status = process.wait(180)
    assert status == 0, (tmp_path / "out").read_text()


def test_the_server_for_load_generators(hostile: dict[str, str], tmp_path: Path) -> None:
    words = [sys.executable, "-P", "-m", "tools.benchmarks.benchserver", "--state", str(tmp_path / "bench.json")]
    up = ["up", "--users", "1", "--dir", str(tmp_path)]
    try:
        subprocess.run(as_scripts_do(*words, *up), cwd=tmp_path, env=hostile, timeout=TIME, check=True)
    finally:
        subprocess.run(as_scripts_do(*words, "down"), cwd=tmp_path, env=hostile, timeout=TIME, check=True)


def test_the_tests(hostile: dict[str, str], tmp_path: Path) -> None:
    """One kind each: a command in this process, configuration that is read by a test, a server."""
    some = ("tools/commands/test_first_commands.py::test_init", "tools/server/test_sockets.py",
            "interop/test_sharing.py")
    subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", ROOT, "-c",
                    ROOT / "setup.cfg", *(f"{ROOT}/tests/{each}" for each in some)],
                   cwd=tmp_path, env=hostile, timeout=TIME, check=True)
