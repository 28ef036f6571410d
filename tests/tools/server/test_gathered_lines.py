"""Lines of which there are many are gathered and written together: none is lost, cut off, or other than it would be."""

import io
import json
import logging
import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from store.accounts import refusallines
from store.observing import loglines
from tests.support.readers.gatheredlog import Gathered, gathering
from tools.server.process import logs, newestlines
from tools.serversettings import Log


@pytest.fixture
def gathered() -> Iterator[Gathered]:
    """As JSON."""
    with gathering() as make:
        yield make("json")


def routine(number: int = 1) -> None:
    """One of each of which there are many."""
    loglines.tell_delivery(f"1-7b-{number}-1", "7b-11", "a@example.org", "<1@x>", 3, 1, 0, 0, 0.5, "aa", ["x:1"])
    refusallines.ended("192.0.2.1", "alice", "imap", number, 1, 1, {"read": 1}, "logout", session="7b-11")
    refusallines.befell(logging.getLogger("imap.client"), "7b-11", f"alice logged in from 192.0.2.{number}")


def json_items(line: str) -> list[tuple[str, object]]:
    assert line.isascii()
    return list(json.loads(line).items())


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_line_that_is_gathered_is_the_one_that_it_would_be_otherwise(
        form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it: order of the fields, too."""
    monkeypatch.setattr("time.time", lambda: 1_800_000_000.5)
    with gathering() as make:
        the_same(make(form), form)


def the_same(log: Gathered, form: str) -> None:
    routine()
    log.clock.advance(logs.GATHER)
    first = log.text
    log.output.gather(None)
    routine()
    second = log.text.removeprefix(first)
    if form == "json":                  # a number may be written as 0.5 and 0.500
        assert list(map(json_items, second.splitlines())) == list(map(json_items, first.splitlines()))
    else:
        assert second == first
    assert first.count("\n") == second.count("\n") == 3
    assert [line for *_, line in list(newestlines.newest)[-6:]] == log.text.splitlines()


def test_what_is_gathered_is_written_within_a_second_and_before_any_other_line(gathered: Gathered) -> None:
    assert logs.GATHER <= 1
    routine(1)
    assert gathered.text == ""
    gathered.clock.advance(logs.GATHER)
    assert gathered.text.count("\n") == 3 and not gathered.clock.getDelayedCalls()
    routine(2)
    logging.getLogger("imap.session").warning("something")
    routine(3)
    modules = ["delivery", "session", "imap.client"]
    assert [line["module"] for line in gathered.lines] == [*modules, *modules, "imap.session", *modules]
    assert [line["seconds"] for line in gathered.lines if line["module"] == "session"] == [1, 2, 3]


def test_at_the_end_nothing_is_left(gathered: Gathered) -> None:
    routine()
    gathered.output.gather(None)
    assert gathered.text.count("\n") == 3
    routine()
    assert gathered.text.count("\n") == 6


def test_no_more_is_gathered_than_its_bound(gathered: Gathered) -> None:
    """However many there are before the event loop has its next turn."""
    for number in range(logs.MOST_GATHERED):
        routine(number)
    assert gathered.text.count("\n") >= 2 * logs.MOST_GATHERED
    assert len(gathered.lines) == 3 * logs.MOST_GATHERED


def test_levels_hold_for_what_is_gathered(gathered: Gathered) -> None:
    for level, count in (("warning", 0), ("info", 3)):
        logs.set_levels(level, {})
        routine()
        assert len(gathered.lines) == count
    logs.set_levels("info", {"session": "warning", "imap": "error"})
    routine()
    assert [line["module"] for line in gathered.lines[3:]] == ["delivery"]


def test_another_form_holds_from_the_next_line_on(gathered: Gathered) -> None:
    routine()
    logs.follow(Log(format="text"))
    routine()
    gathered.clock.advance(logs.GATHER)
    lines = gathered.text.splitlines()
    assert [json.loads(line)["module"] for line in lines[:3]] == ["delivery", "session", "imap.client"]
    assert re.fullmatch(r'\S+ \d+ INFO delivery: message="1-7b-1-1" session=7b-11 .* to="x:1"', lines[3])


def test_lines_of_other_threads_are_gathered_and_none_is_lost(gathered: Gathered) -> None:
    asked: list[tuple[object, ...]] = []
    gathered.clock.callFromThread = lambda *call: asked.append(call)      # type: ignore[attr-defined]
    threads = [threading.Thread(target=lambda: [routine() for _ in range(300)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert asked and not gathered.clock.getDelayedCalls()
    gathered.output.write_gathered()
    assert len(gathered.lines) == 3 * 4 * 300


def test_a_log_that_cannot_be_written_ends_nothing(gathered: Gathered, monkeypatch: pytest.MonkeyPatch) -> None:
    def full() -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(gathered.output, "reopen", full)
        routine()
        gathered.clock.advance(logs.GATHER)
        logging.getLogger("imap.session").warning("something")
    routine(7)
    assert [line["seconds"] for line in gathered.lines if line["module"] == "session"] == [7]


class Disk(io.RawIOBase):
    """A file on a disk with room for so many octets; it has what was written, each time."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room, self.written = room, list[bytes]()

    def writable(self) -> bool:
        return True

    def write(self, octets: Any) -> int:
        taken = bytes(octets[:self.room])
        if not taken:
            raise OSError(28, "No space left on device")
        self.room -= len(taken)
        self.written.append(taken)
        return len(taken)


def written_to(disk: Disk, gathered: Gathered) -> None:
    gathered.output.setStream(io.TextIOWrapper(io.BufferedWriter(disk), "utf-8"))


def test_processes_whose_lines_go_to_one_pipe_do_not_mix_them(gathered: Gathered) -> None:
    """The standard error of all is a pipe where a container runs them. It takes 4,096 octets at a time of one process
    without those of another in between (pipe(7))."""
    disk = Disk(1 << 30)
    written_to(disk, gathered)
    for number in range(100):
        routine(number)
    logging.getLogger("imap.session").warning("something")
    assert all(len(some) <= 4096 and some.endswith(b"\n") for some in disk.written)
    assert b"".join(disk.written).count(b"\n") == 301 and len(disk.written) < 60


@pytest.mark.parametrize("room", [0, 10, 700, 5000, 9001])
def test_a_disk_that_was_full_for_a_while_has_whole_lines(gathered: Gathered, room: int) -> None:
    """Some are missing then, but none is cut off: a half would make the next one unreadable, too."""
    disk = Disk(room)
    written_to(disk, gathered)
    for number in range(100):
        routine(number)
    gathered.clock.advance(logs.GATHER)
    logging.getLogger("imap.session").warning("lost, or late")
    disk.room = 1 << 30
    logging.getLogger("imap.session").warning("something")
    routine(7)
    gathered.clock.advance(logs.GATHER)
    lines = [json.loads(line) for line in b"".join(disk.written).splitlines()]
    assert [line["module"] for line in lines[-3:]] == ["delivery", "session", "imap.client"]
    assert "something" in [line["text"] for line in lines]
