"""Events in a file of lines: whole lines, even on a full disk, and in no other file."""

import errno
import os
from collections.abc import Callable
from typing import Any

import pytest

from mboxlist import privatefiles
from tests.support.servers.outboxreceivers import begin, post, run
from tools.outbox.jsonfile import append
from tools.outbox.outboxsettings import Settings
from tools.outbox.ownthread import OwnThread


def test_a_file_on_a_full_disk_has_whole_lines(store, clock, tmp_path, monkeypatch):
    path = tmp_path / "events"
    async def at_once(_thread: OwnThread, work: Callable[[], Any]) -> Any:
        return work()

    monkeypatch.setattr(OwnThread, "run", at_once)
    clock.callFromThread = None             # type: ignore[attr-defined]
    full, sync = [False], os.fsync

    def fail(handle: int) -> None:
        if full[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(handle)

    monkeypatch.setattr("tools.outbox.jsonfile.os.fsync", fail)
    made = begin(store, clock, a=Settings(f"file:{path}", retry=1.0, retry_longest=1.0))
    post(store, 1, 2)
    full[0] = True
    run(clock, 3)
    assert (path.read_bytes(), made.status()[0]["state"]) == (b"", "down")
    full[0] = False
    run(clock, 3)
    assert [line.count(b"MessageNew") for line in path.read_bytes().splitlines()] == [1, 1]
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_line_that_was_cut_off_gets_its_end(tmp_path):
    path = tmp_path / "events"
    privatefiles.write(path, b'{"id": 1}\n{"id"')
    append(path, b'{"id": 2}\n')
    assert path.read_bytes() == b'{"id": 1}\n{"id"\n{"id": 2}\n'


def test_no_link_is_followed(tmp_path):
    (tmp_path / "victim").write_text("kept\n")
    (tmp_path / "events").symlink_to(tmp_path / "victim")
    with pytest.raises(OSError, match="symbolic link|Too many levels"):
        append(tmp_path / "events", b"x\n")
    assert (tmp_path / "victim").read_text() == "kept\n"
