"""What a test does with a relay, of whatever make."""

import os
import shutil
import smtplib
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.conftest import MEMORY
from tests.support import ROOT
from tests.support.processes import wait
from tests.support.processes.ports import free_port

DOMAIN = "example.org"
CLIENT = "client.example.org"
START, STOP = 180, 180        # seconds
ROOM = 1 << 30


def shipped(name: str, replacements: Mapping[str, str]) -> str:
    """A file of the configuration that we ship, with the parts replaced that a site replaces, too."""
    text = (ROOT / "docs/relays" / name).read_text()
    for old, new in replacements.items():
        assert text.count(old) == 1, f"{name} has not {old!r} once"
        text = text.replace(old, new)
    return text


def memory() -> Path | None:
    """A file system in memory, if there is a large one: relays sync more than they compute."""
    return MEMORY if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM else None


class Relay(ABC):
    """It listens on `port` of loopback; `pid` is its first process. Started on entry, stopped and gone on exit."""

    name: str
    pid: int

    def __init__(self) -> None:
        self.port = free_port()
        self.folder = Path(tempfile.mkdtemp(prefix=f"onecopy-{self.name.lower()}-", dir=memory()))
        self.folder.chmod(0o755)        # its daemons must be able to enter

    @abstractmethod
    def log(self) -> str:
        """What it has logged so far."""

    @abstractmethod
    def flush(self) -> None:
        """Try all that was put off again, now."""

    @abstractmethod
    def queued(self) -> list[str]:
        """What it still has to deliver, by whatever name it gives to that."""

    def started(self) -> None:
        """Wait until it answers."""
        self.until(self._answers, "it answers", START)

    def _answers(self) -> bool:
        try:
            with smtplib.SMTP("127.0.0.1", self.port, timeout=START) as smtp:
                return smtp.noop()[0] == 250
        except (ConnectionRefusedError, smtplib.SMTPServerDisconnected):
            return False

    def smtp(self) -> smtplib.SMTP:
        """A connection that has said EHLO."""
        smtp = smtplib.SMTP("127.0.0.1", self.port, local_hostname=CLIENT, timeout=180)
        smtp.ehlo()
        return smtp

    def empty(self, limit: float) -> None:
        """Wait until everything has been handed on. Raises AssertionError with the log when for `limit` seconds nothing
        leaves the queue."""
        with self._showing_log():
            wait.emptied(self.queued, f"{self.name}: its queue is empty", pid=self.pid, limit=limit, step=0.05)

    def until(self, ready: Callable[[], bool], what: str, limit: float) -> None:
        """Wait until it has come so far. Raises AssertionError with the log."""
        with self._showing_log():
            wait.until(ready, f"{self.name}: {what}", pid=self.pid, limit=limit, step=0.05)

    @contextmanager
    def _showing_log(self) -> Iterator[None]:
        try:
            yield
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log()[-8000:]}") from None

    def send(self, sender: str, recipients: Sequence[str], message: bytes) -> None:
        """One message over a connection of its own."""
        with self.smtp() as smtp:
            smtp.sendmail(sender, recipients, message, mail_options=["BODY=8BITMIME"])
