"""A real onecopy: its own process, on free ports of loopback, on a fresh store."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from attrs import frozen

from store.partition import filejournal
from tests.support.processes import command, wait
from tests.support.processes.environment import plain
from tests.support.processes.ports import free_port
from tests.support.stores import everyfile

PROGRAM = Path(sys.executable).with_name("onecopy")
PASSWORD = "secret"
START, STOP = 180, 180        # seconds, far more than anything takes
COMMAND = 300               # more also than a command waits for another server that says nothing
PROXY = b"PROXY UNKNOWN\r\n"        # where this host is one of a server's proxies
GREETINGS = {"imap": b"* OK", "pop3": b"+OK", "lmtp": b"220 "}


class Served(Protocol):
    """A process: what `subprocess.Popen` has of it."""

    @property
    def pid(self) -> int: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def send_signal(self, number: int, /) -> None: ...

    def terminate(self) -> None: ...

    def kill(self) -> None: ...


@frozen
class Forked:
    """One that `command` has started, in the same words."""

    _process: Any

    @property
    def pid(self) -> int:
        """It may have ended."""
        return int(self._process.pid)

    def wait(self, timeout: float | None = None) -> int:
        """Its exit status. Raises subprocess.TimeoutExpired."""
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("onecopy serve", timeout or 0)
        return int(self._process.exitcode)

    def send_signal(self, number: int) -> None:
        """If it has not ended."""
        if self._process.exitcode is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


class Server:
    """A store in `folder`/store, made unless it is there, with these users, all with the password PASSWORD; served once
    entered or started.

    `options` are those of onecopy.toml by their full names: {"store.message_limit": "2G"}. It is a process that has
    imported its program already (tests/support/processes/command.py), unless an installed `program` is named.
    """

    def __init__(self, folder: Path, users: Sequence[str] = (), options: Mapping[str, str] | None = None, *,
                 program: Path | None = None) -> None:
        self._program = program
        self.root = folder / "store"
        self.log = folder / "server.log"
        self.imap, self.pop3, self.lmtp = free_port(), free_port(), free_port()
        self.options = {
            "root": str(self.root),
            **{f"{name}.address": "127.0.0.1" for name in GREETINGS},
            "imap.port": str(self.imap), "imap.tls_port": str(free_port()),
            "pop3.port": str(self.pop3), "pop3.tls_port": str(free_port()),
            "lmtp.port": str(self.lmtp), "store.special_mailboxes": "",
            "store.cache": "8M", "store.database_locks": "20000", **(options or {})}
        self.network = ""           # where it is to be: see `command.start`
        self._process: Served | None = None
        if not self.root.exists():
            self.command("init")
        if users:
            self.add_users(users)

    def __enter__(self) -> "Server":
        self.start()
        return self

    def __exit__(self, kind: object = None, *_: object) -> None:
        if self._process is not None:
            self.kill()
        if kind is None:
            everyfile.NOWHERE.update(everyfile.nowhere_described(self.root))

    @property
    def pid(self) -> int:
        """The process that was started; it may have children."""
        assert self._process is not None, "not running"
        return self._process.pid

    @property
    def messages(self) -> list[Path]:
        """All message files, once those that were answered have their places: a thread does it for several together."""
        if self._process is not None:
            wait.until(lambda: not self.staged, "messages have their places", pid=self.pid, limit=START)
        return sorted(path for path in self.root.glob("partitions/*/messages/*/*/*") if path.is_file())

    @property
    def staged(self) -> list[Path]:
        """What is in `staging` and is no journal, nor only the second name of a message file, nor empty and made ready
        for one."""
        return sorted(path for path in self.root.glob("partitions/*/staging/*")
                      if not path.name.startswith(filejournal.PREFIX) and _is_staged(path))

    def environment(self) -> dict[str, str]:
        """The variables that give `onecopy` its options."""
        ours = {"ONECOPY_" + name.replace(".", "_").upper(): value for name, value in self.options.items()}
        return {**plain(), **ours}

    def command(self, *arguments: str, status: int = 0, octets: bytes = b"") -> str:
        """What `onecopy` prints when it gets these arguments and `octets` as its input."""
        found, out, error = command.run(arguments, self.environment(), octets, COMMAND)
        assert found == status, f"onecopy {' '.join(arguments)}: status {found}\n{out}{error}"
        return out

    def add_users(self, users: Sequence[str]) -> None:
        """More users."""
        self.command("user", "add", "--password-stdin", *users, octets=PASSWORD.encode() + b"\n")

    def check(self) -> None:
        """`onecopy check` must find nothing."""
        self.command("check")

    def launch(self) -> None:
        """Start it and do not wait."""
        assert self._process is None, "runs already"
        with self.log.open("ab") as log:
            if self._program is not None:
                self._process = subprocess.Popen([self._program, "serve"], stdin=subprocess.DEVNULL, stdout=log,
                                                 stderr=log, env=self.environment())
                return
        self._process = Forked(command.start(["serve"], self.environment(), [Path(os.devnull), self.log, self.log],
                                             ended=True, network=self.network))

    def start(self) -> None:
        """Start it; return when all three servers have greeted."""
        self.launch()
        self.answers()

    def answers(self) -> None:
        """Wait until all three servers have greeted. Raises AssertionError with the log."""
        for name, greeting in GREETINGS.items():
            port, header = getattr(self, name), PROXY if f"{name}.proxy_networks" in self.options else b""
            try:
                wait.until(lambda port=port, greeting=greeting, header=header: _greets(port, greeting, header),
                           f"{name} greets", pid=self.pid, limit=START)
            except AssertionError as error:
                self.kill()
                raise AssertionError(f"{error}\n{self.said()}") from None

    def said(self) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-6000:]

    def stop(self) -> int:
        """SIGTERM; the exit status."""
        assert self._process is not None, "not running"
        self._process.terminate()
        return self.wait()

    def signal(self, number: signal.Signals, after: float) -> None:
        """A signal some moment from now, unless it has ended until then."""
        assert self._process is not None, "not running"
        try:
            self._process.wait(after)
        except subprocess.TimeoutExpired:
            self._process.send_signal(number)

    def wait(self) -> int:
        """Its exit status, once it has ended by itself."""
        assert self._process is not None, "not running"
        status = self._process.wait(STOP)
        self._process = None
        return status

    def kill(self) -> None:
        """SIGKILL for it and its children, as a machine that loses its power does."""
        assert self._process is not None, "not running"
        others = wait.tree(self._process.pid)[1:]
        self._process.kill()
        wait.kill(others, "a worker", limit=STOP)
        self._process.wait(STOP)
        self._process = None

    def peak(self) -> int:
        """Octets of memory that its processes have had at most, each at its own worst moment."""
        total = 0
        for pid in wait.tree(self.pid):
            status = Path(f"/proc/{pid}/status").read_text()
            total += int(status.split("VmHWM:")[1].split()[0]) * 1024
        return total


def _greets(port: int, greeting: bytes, header: bytes) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), START) as connection:
            connection.sendall(header)
            return connection.recv(len(greeting), socket.MSG_WAITALL) == greeting
    except (ConnectionRefusedError, ConnectionResetError):
        return False


def _is_staged(path: Path) -> bool:
    try:
        status = path.stat()
    except FileNotFoundError:
        return False
    return status.st_nlink == 1 and status.st_size > 0
