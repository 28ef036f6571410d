"""A real RabbitMQ, the Debian package, unpacked: a process of its own with a folder of its own, on free ports of
loopback.

Erlang is started without its port mapper (epmd), so nothing is left when the process has ended. What is in durable
queues is there again after the next start.
"""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import pika

from tests.support.processes import wait
from tests.support.processes.ports import free_port

UNPACKED = Path(sys.prefix) / "unpacked/rabbitmq/usr/lib"
USER, PASSWORD = "onecopy", "a broker's"
START, STOP = 300, 300       # seconds, far more than they take
LOG_SHOWN = 6000

_CONFIG = """\
listeners.tcp.1 = 127.0.0.1:{port}
listeners.ssl.1 = 127.0.0.1:{tls_port}
ssl_options.certfile = {certificate}
ssl_options.keyfile = {certificate}
ssl_options.verify = verify_none
log.console = true
log.console.level = warning
log.file = false
default_user = {user}
default_pass = {password}
"""


class RabbitMQ:
    """Runs from entry to exit. `certificate`: a file with key and certificate."""

    def __init__(self, folder: Path, certificate: Path) -> None:
        self.port, self.tls_port, self._own = free_port(), free_port(), free_port()
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        for name in ("mnesia", "log"):
            (folder / name).mkdir()
        (folder / "plugins").write_text("[].\n")
        (folder / "rabbitmq.conf").write_text(_CONFIG.format(
            port=self.port, tls_port=self.tls_port, certificate=certificate, user=USER, password=PASSWORD))

    def __enter__(self) -> "RabbitMQ":
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
                 ) -> None:
        if self._process is not None:
            self.kill()

    @property
    def pid(self) -> int:
        """Of the process that was started."""
        assert self._process is not None, "not running"
        return self._process.pid

    def start(self) -> None:
        """Return when it takes connections. Raises AssertionError with the end of its log."""
        if not UNPACKED.is_dir():
            raise AssertionError("RabbitMQ is not unpacked: tools/test does that")
        with (self._folder / "said").open("ab") as log:
            self._process = subprocess.Popen(self._words(), env=self._environment(), stdin=subprocess.DEVNULL,
                                             stdout=log, stderr=log, cwd=self._folder)
        try:
            wait.until(self._answers, "RabbitMQ answers", pid=self.pid, limit=START, step=0.1)
        except BaseException:
            self.kill()
            print((self._folder / "said").read_text(errors="replace")[-LOG_SHOWN:])
            raise

    def kill(self) -> None:
        """SIGKILL for it and what it has started, as when the machine loses its power."""
        assert self._process is not None, "not running"
        others = wait.tree(self._process.pid)[1:]
        self._process.kill()
        self._process.wait(STOP)
        self._process = None
        wait.kill(others, "a process of RabbitMQ", limit=STOP)

    def hold(self) -> None:
        """It does nothing more, and its connections stay open."""
        os.kill(self.pid, signal.SIGSTOP)

    def channel(self) -> Any:
        """A channel of a connection of its own, which ends with it."""
        return pika.BlockingConnection(pika.ConnectionParameters(
            "127.0.0.1", self.port, credentials=pika.PlainCredentials(USER, PASSWORD))).channel()

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), START) as connection:
                connection.sendall(b"AMQP\0\0\x09\x01")             # AMQP 0-9-1 §2.2.4
                return connection.recv(1) == b"\x01"                # a method: Start
        except OSError:
            return False

    def _words(self) -> Sequence[str | Path]:
        erlang, port = UNPACKED / "erlang", str(self._own)
        return [_one(erlang, "erts-*") / "bin/erlexec", "+S", "1:1", "+sbwt", "none", "+sbwtdcpu", "none",
                "+sbwtdio", "none", "-noinput", "-boot", erlang / "bin/start_clean", "-sname", "rabbit@localhost",
                "-start_epmd", "false", "-erl_epmd_port", port, "-setcookie", "onecopy",
                "-kernel", "inet_dist_use_interface", "{127,0,0,1}", "-kernel", "inet_dist_listen_min", port,
                "-kernel", "inet_dist_listen_max", port, "-s", "rabbit", "boot"]

    def _environment(self) -> dict[str, str]:
        erlang, home = UNPACKED / "erlang", _one(UNPACKED / "rabbitmq/lib", "rabbitmq_server-*")
        folder = self._folder
        return {"PATH": os.environ["PATH"], "HOME": str(folder), "LANG": "C.UTF-8",
                "ROOTDIR": str(erlang), "BINDIR": str(_one(erlang, "erts-*") / "bin"), "EMU": "beam",
                "PROGNAME": "erl", "ERL_LIBS": str(home / "plugins"), "RABBITMQ_HOME": str(home),
                "RABBITMQ_PLUGINS_DIR": str(home / "plugins"), "RABBITMQ_NODENAME": "rabbit@localhost",
                "RABBITMQ_DIST_PORT": str(self._own), "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq"),
                "RABBITMQ_ADVANCED_CONFIG_FILE": str(folder / "advanced"),
                "RABBITMQ_CONF_ENV_FILE": str(folder / "none"),
                "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
                "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"), "RABBITMQ_LOG_BASE": str(folder / "log"),
                "RABBITMQ_LOGS": "-", "RABBITMQ_PID_FILE": str(folder / "pid")}


def _one(folder: Path, pattern: str) -> Path:
    """The only thing there of that name, which has a version in it."""
    found, = folder.glob(pattern)
    return found
