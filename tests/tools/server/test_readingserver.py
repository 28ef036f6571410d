"""What serves mail from a standby, as far as no clients are needed to see it."""

import time
from pathlib import Path
from threading import Event

import pytest

from store.errors import StoreError
from store.partition.marks import STANDBY
from tools.cli import options
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
