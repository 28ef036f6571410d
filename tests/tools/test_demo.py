"""tools/serve: a store with two users, and what it says to a person."""

import re
import stat
import subprocess
import sys
from pathlib import Path

from tests.support.clients.imap import Imap
from tests.support.processes import wait
from tests.support.processes.ports import free_port
from tests.support.servers.server import COMMAND, PROGRAM
from tools import demo

PORTS = ("imap", "imap-tls", "pop3", "pop3-tls", "lmtp", "managesieve", "http")


def start(folder: Path, ports: dict[str, int]) -> "subprocess.Popen[bytes]":
    options = ["--root", str(folder / "store"), "--lmtp-socket", str(folder / "lmtp")]
    for name, port in ports.items():
        options += [f"--{name}-port", str(port)]
    with (folder / "out").open("wb") as out, (folder / "log").open("ab") as log:
        return subprocess.Popen([sys.executable, "-P", "-m", "tools.demo", *options], stdin=subprocess.DEVNULL,
                                stdout=out, stderr=log)


def said_whole(path: Path) -> str | None:
    text = path.read_text()
    return text if re.search(r"kill \d+\n", text) else None


def test_two_starts(tmp_path: Path) -> None:
    ports = {name: free_port() for name in PORTS}
    said = []
    for number in (1, 2):
        process = start(tmp_path, ports)
        try:
            text = wait.until(lambda: said_whole(tmp_path / "out"), "it says how to use it", pid=process.pid, limit=180)
            passwords = dict(re.findall(r"user +(\w+), password (\S+)", text))
            assert list(passwords) == ["alice", "bob"]
            command = re.search(r"\| \S+/onecopy (deliver .*)", text)
            assert command
            done = subprocess.run([PROGRAM, *command[1].split()], input=b"Subject: hello\n\nHello.\n",
                                  timeout=COMMAND, check=False)
            assert done.returncode == 0
            with Imap(ports["imap"], "alice", passwords["alice"]) as imap:
                assert imap.select()[1] == number
            assert f"kill {process.pid}" in text
            said.append(text.replace(str(process.pid), "PID"))
        finally:
            process.terminate()
            assert process.wait(180) == 0, (tmp_path / "log").read_text()[-4000:]
    assert said[0] == said[1]
    assert stat.S_IMODE((tmp_path / "store" / "demo-users.txt").stat().st_mode) == 0o600


def test_the_passwords_of_the_usual_place_are_beside_the_store() -> None:
    assert demo.passwords_file(demo.VAR / "store") == demo.VAR / "demo-users.txt"
    assert {name.replace(".tls_port", "-tls").removesuffix(".port") for name in demo.DEFAULTS if name.endswith("port")
            } == set(PORTS)             # the test above takes each from its own
    assert all(int(value) >= 1024 for name, value in demo.DEFAULTS.items() if name.endswith("port"))
    assert {value for name, value in demo.DEFAULTS.items() if name.endswith("address")} == {"127.0.0.1"}
