"""What serves mail from a standby, as far as no clients are needed to see it."""

import os
import time
from collections.abc import Callable, Collection
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from store.accounts.throttle.slowdown import Place, Scale, SlowDown
from store.errors import StoreError
from store.partition.marks import STANDBY, AsOf
from tools.cli import options
from tools.server import readingserver
from tools.server.process.workerconfig import READY
from tools.server.readingserver import ReadingServer


class FewLooks(Event):
    """An event that is set after some looks at it."""

    looks = 3

    def is_set(self) -> bool:
        self.looks -= 1
        return self.looks < 0

    def wait(self, timeout: float | None = None) -> bool:
        return False


def test_it_ends_when_there_is_no_standby_any_more(tmp_path: Path) -> None:
    """A promotion was quicker than its start: the store's own server needs these ports."""
    config = options.load({"root": str(tmp_path)}, {}, None)
    with pytest.raises(StoreError, match="no standby"):
        ReadingServer(config, [], FewLooks(), Event()).run()


def test_the_server_of_the_next_copy_begins_with_what_a_reload_has_taken_over(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.server.supervisor.logs.follow", lambda settings: None)
    file = tmp_path / "onecopy.toml"
    file.write_text("[log]\nlevel = \"info\"\n[imap]\nport = 1143\n")
    (tmp_path / STANDBY).touch()
    config, again, stop = options.load({"root": str(tmp_path)}, {}, file), Event(), FewLooks()
    file.write_text("[log]\nlevel = \"warning\"\n[imap]\nport = 2143\n")
    again.set()
    server = ReadingServer(config, [], stop, again)
    server._retry = time.monotonic() + 1000         # it makes no copy
    server.run()
    assert server.config.values["log.level"] == "warning"
    assert server.config.values["imap.port"] == 1143
    file.write_text("[log]\nlevel = 3\n")
    again.set()
    stop.looks = 1
    server.run()
    assert server.config.values["log.level"] == "warning"


def test_a_guesser_begins_not_anew_with_each_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one server has counted of failed logins, the next one counts on; each has the descriptor of that memory."""
    served, begun = list[Any](), list[tuple[Callable[[], int], Collection[int]]]()

    def start(work: Callable[[], int], keep: Collection[int]) -> SimpleNamespace:
        begun.append((work, keep))
        read, write = os.pipe()
        os.write(write, READY)
        os.close(write)
        return SimpleNamespace(stdout=open(read, "rb"), poll=lambda: None, send_signal=lambda number: None)

    monkeypatch.setattr(readingserver.Child, "start", start)
    monkeypatch.setattr(readingserver, "end_with", lambda parent, number: None)
    monkeypatch.setattr(readingserver, "Supervisor", lambda *_, logins, **__: SimpleNamespace(
        run=lambda: served.append(logins)))
    server = ReadingServer(options.load({"root": str(tmp_path)}, {}, None), [], Event(), Event())
    for number in (1, 2):
        monkeypatch.setattr(readingserver.readingcopies, "newest", lambda root, number=number: (
            tmp_path / str(number), AsOf("mail.example.org", time.time())))
        for _ in range(2):
            server._look_at_server()
    for work, keep in begun:
        work()
        assert served[-1].handle in keep
    first, second = (SlowDown(Scale(), memory) for memory in served)
    for _ in range(5):
        waits = first.take(Place("192.0.2.1", "192.0.2.0/24"), "alice").wait
    assert waits > 0
    assert second.take(Place("192.0.2.1", "192.0.2.0/24"), "alice").wait > 0
