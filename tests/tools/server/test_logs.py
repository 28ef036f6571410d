"""A line for each event, whatever is in it."""

import contextlib
import io
import json
import logging
import re
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.task import Clock

from store.accounts import refusallines
from store.observing import loglines
from store.observing.loglines import tell_command
from tests.support import ROOT
from tools.server.process import logs, newestlines
from tools.server.process.loglevels import Levels
from tools.server.process.logs import JsonLine, Line
from tools.serversettings import Log


def line(message: str, *arguments: object, failed: bool = False) -> str:
    record = logging.LogRecord("imap.session", logging.INFO, __file__, 1, message, arguments,
                               sys.exc_info() if failed else None)
    record.created, record.process = 0.0, 77
    return Line().format(record)


def test_a_line() -> None:
    assert line("%s: logged in from %s", "1-2", "127.0.0.1") == (
        "1970-01-01T00:00:00Z 77 INFO imap.session: 1-2: logged in from 127.0.0.1")


def test_what_a_client_sends_cannot_make_lines_or_move_the_cursor() -> None:
    found = line("user %s", "a\r\nb\n1970 \x1b[2J\0\u2028é")
    assert found.endswith("user a\\x0d\\nb\\n1970 \\x1b[2J\\x00\\x2028é")


def test_a_traceback_is_one_line() -> None:
    try:
        raise ValueError("why\nnot")
    except ValueError:
        found = line("failed", failed=True)
    assert "\n" not in found and found.endswith("ValueError: why\\nnot")


def test_the_newest_lines_are_kept_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """For `onecopy log show`: in bounded memory, whatever is logged."""
    monkeypatch.setattr(newestlines, "newest", deque(maxlen=newestlines.LINES))
    for number in range(newestlines.LINES + 5):
        line("a line %s", number)
    line("%s", "x" * 10**6)
    everything = {"level": 0, "text": "", "most": 10**9}
    found = newestlines.tell(everything)
    assert len(newestlines.newest) == newestlines.LINES and len(found) == newestlines.MOST
    assert len(found[-1]["line"]) == newestlines.LETTERS and found[-2]["line"].endswith("a line 1004")
    assert [each["line"][-4:] for each in newestlines.tell({**everything, "text": "LINE 99", "most": 2})] == [
        " 998", " 999"]
    assert newestlines.tell({**everything, "level": logging.WARNING}) == []


def test_warnings_and_errors_are_kept_apart_so_that_others_displace_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """For `onecopy log errors`."""
    for name in ("newest", "_troubles"):
        monkeypatch.setattr(newestlines, name, deque(maxlen=newestlines.LINES))
    for number, level in enumerate((logging.WARNING, logging.ERROR, *[logging.INFO] * newestlines.LINES)):
        newestlines.keep(logging.makeLogRecord({"levelno": level, "created": 100.0 + number, "name": "x"}),
                         f"no {number}")
    kept = {"level": logging.WARNING, "text": "", "most": 10}
    assert newestlines.tell(kept) == []
    assert [each["line"] for each in newestlines.tell({**kept, "since": 0.0})] == ["no 0", "no 1"]
    assert [each["line"] for each in newestlines.tell({**kept, "since": 100.5})] == ["no 1"]
    assert [each["level"] for each in newestlines.tell({**kept, "level": logging.ERROR, "since": 0.0})] == ["ERROR"]
    for _ in range(2 * newestlines.LINES):
        newestlines.keep(logging.makeLogRecord({"levelno": logging.ERROR, "name": "x"}), "x" * 10**4)
    assert len(newestlines._troubles) == newestlines.LINES
    assert {len(line) for *_, line in newestlines._troubles} == {newestlines.LETTERS}


# JSON, and levels

@pytest.fixture
def written():
    """What is logged as JSON, with the root logger as it was afterwards."""
    lines: list[dict[str, object]] = []

    class Keeping(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(json.loads(self.format(record)))

    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    root.handlers[:] = [Keeping()]
    logs.follow(Log(format="json"))
    yield lines
    root.handlers[:] = []
    logs.follow(Log())
    root.handlers[:] = before
    root.setLevel(level)


class Gathered(list[dict[str, object]]):
    """What a server's log has, of lines that are gathered, too; `text` is that as it is written."""

    def __init__(self, form: str, clock: Clock) -> None:
        super().__init__()
        self.clock, self._out = clock, io.StringIO()
        self.output = logs.Output(self._out)
        logging.getLogger().handlers[:] = [self.output]
        logs.follow(Log(format=form))

    @property
    def text(self) -> str:
        return self._out.getvalue()

    def __getitem__(self, place: Any) -> Any:
        return self.lines[place]

    @property
    def lines(self) -> list[dict[str, object]]:
        """Once all has been written."""
        self.clock.advance(logs.GATHER)
        return [json.loads(line) for line in self.text.splitlines()]


@pytest.fixture
def gathering() -> Iterator[Callable[[str], Gathered]]:
    """What makes a log of a form."""
    root, clock = logging.getLogger(), Clock()
    before, level = root.handlers[:], root.level
    with contextlib.ExitStack() as stack:
        def make(form: str) -> Gathered:
            made = Gathered(form, clock)
            stack.enter_context(logs.gathering(clock))
            return made

        yield make
    root.handlers[:] = []
    logs.follow(Log())
    root.handlers[:] = before
    root.setLevel(level)


@pytest.fixture
def gathered(gathering: Callable[[str], Gathered]) -> Gathered:
    """As JSON."""
    return gathering("json")


HOSTILE = "a\"b\\c reason=\"x\" \r\n\u2028é"


def test_the_fields_of_lines_that_programs_read_are_fields_of_json(written: list[dict[str, object]]) -> None:
    refusallines.refused(refusallines.LOGIN, "192.0.2.1", HOSTILE, "imap", "wrong name or password", 3)
    refusallines.ended("::ffff:192.0.2.1", "alice", "pop", 7, 1, 1, {"read": 2}, HOSTILE, session="7b-12")
    first, second = written
    assert {name: first[name] for name in ("level", "module", "kind", "address", "user", "service", "times", "reason")
            } == {"level": "WARNING", "module": "refused", "kind": "login", "address": "192.0.2.1", "user": HOSTILE,
                  "service": "imap", "times": 3, "reason": "wrong name or password"}
    assert (second["seconds"], second["read"], second["reason"], second["session"]) == (7, 2, HOSTILE, "7b-12")


def test_seconds_of_slow_lines_are_numbers(written: list[dict[str, object]]) -> None:
    tell_command("7b-11", "1.500", "imap", "UID FETCH", 1.7021, {"flush": 0.25})
    line, = written
    assert {name: line[name] for name in ("kind", "session", "user", "command", "seconds", "waited_for_client",
                                       "waited_for_flush")} == {
        "kind": "command", "session": "7b-11", "user": "1.500", "command": "UID FETCH", "seconds": 1.702,
        "waited_for_client": 0.0, "waited_for_flush": 0.25}


def test_json_is_one_line_of_ascii_with_the_fields_of_text_also_of_a_traceback() -> None:
    try:
        raise ValueError("why\nnot")
    except ValueError:
        record = logging.LogRecord("imap.session", logging.ERROR, __file__, 1, "failed\r\n%s", ("é",), sys.exc_info())
    found = JsonLine().format(record)
    assert found.isascii() and "\n" not in found
    assert json.loads(found)["text"] == "failed\r\né" and "why\nnot" in json.loads(found)["traceback"]


def test_a_part_has_a_level_of_its_own_until_it_has_none(written: list[dict[str, object]]) -> None:
    def said() -> list[object]:
        written.clear()
        for name in ("imap.session", "store.net.stream", "pop3.session"):
            logging.getLogger(name).debug("debug")
            logging.getLogger(name).info("info")
        return [(line["module"], line["text"]) for line in written]

    logs.follow(Log(format="json", level="warning", levels=("imap=debug", "store.net=info")))
    assert said() == [("imap.session", "debug"), ("imap.session", "info"), ("store.net.stream", "info")]
    logs.follow(Log(format="json", level="info"))
    assert said() == [("imap.session", "info"), ("store.net.stream", "info"), ("pop3.session", "info")]


def levels_of(*names: str) -> list[str]:
    return [logging.getLevelName(logging.getLogger(name).getEffectiveLevel()) for name in names]


def test_a_level_is_changed_for_a_while_and_ends_by_itself(written: list[dict[str, object]]) -> None:
    """Whatever a reload of the configuration says meanwhile: that is what holds afterwards."""
    clock = Clock()
    levels = Levels(Log(levels=("store.net=error",)), clock)
    for part, wanted, seconds in (("imap", "debug", 60), ("store.net", "debug", 600), ("all", "warning", 30)):
        assert levels.change({"part": part, "level": wanted, "seconds": seconds})
    assert levels_of("imap.session", "store.net.stream", "pop3.session") == ["DEBUG", "DEBUG", "WARNING"]
    assert levels.tell({}) == [{"part": "all", "level": "warning", "configured": "info", "left": 30},
                               {"part": "imap", "level": "debug", "configured": None, "left": 60},
                               {"part": "store.net", "level": "debug", "configured": "error", "left": 600}]
    clock.advance(30)
    assert levels_of("imap.session", "pop3.session") == ["DEBUG", "INFO"]
    levels.follow(Log(level="error", levels=("store.net=info",)))
    assert levels_of("imap.session", "store.net.stream", "pop3.session") == ["DEBUG", "DEBUG", "ERROR"]
    clock.advance(30)
    assert levels_of("imap.session", "store.net.stream") == ["ERROR", "DEBUG"]
    assert levels.change({"part": "store.net", "level": "configured", "seconds": 1})
    assert levels_of("store.net.stream") == ["INFO"] and not clock.getDelayedCalls()


@pytest.mark.parametrize("part", ["imapp", "", "imap.", "no.such", "IMAP", "a" * 100000])
def test_a_part_that_nothing_is_logged_by_is_none(written: list[dict[str, object]], part: str) -> None:
    assert not Levels(Log(), Clock()).change({"part": part, "level": "debug", "seconds": 60})
    assert part not in logging.root.manager.loggerDict


@pytest.mark.parametrize("request_", [("imap", "loud", 60), ("imap", "debug", 0), ("imap", "debug", 1e9),
                                      ("imap", "debug", float("nan"))])
def test_what_is_no_change_of_a_level_is_refused(request_: tuple[str, str, float]) -> None:
    with pytest.raises(ValueError, match="level"):
        Levels(Log(), Clock()).change(dict(zip(("part", "level", "seconds"), request_, strict=True)))


@pytest.mark.parametrize("value", ["imap", "imap=loud", "=debug", "imap="])
def test_what_is_no_level_of_a_part_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match="part=level"):
        Log(levels=(value,))


def all_lines() -> None:
    """One of each line that has fields."""
    refusallines.refused(refusallines.LOGIN, "192.0.2.1", HOSTILE, "imap", HOSTILE, session="7b-11")
    for figures in ({"read": 1, "deleted": 1, "expunged": 1, "removed": 1}, {"messages": 1}, {"requests": 1}):
        refusallines.ended("192.0.2.1", HOSTILE, "imap", 1, 1, 1, figures, HOSTILE, session="7b-11",
                           app_password=HOSTILE)
    tell_command("7b-11", HOSTILE, "imap", HOSTILE, 1.7, {})
    loglines.tell_slow_work("views", HOSTILE, 0.1, 1.5)
    loglines.tell_delivery("1-7b-11-1", "7b-11", HOSTILE, HOSTILE, 3, 1, 2, 0, 0.5, "aa", [HOSTILE])
    loglines.tell_refused_delivery(HOSTILE, "7b-11", HOSTILE, 2, HOSTILE, HOSTILE)
    logging.getLogger("imap.session").warning("%s: %s", "7b-11", HOSTILE)
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        logging.getLogger("imap.session").exception("failed")


def test_every_field_has_one_meaning_that_is_documented(written: list[dict[str, object]]) -> None:
    """docs/logging.md has a table of all of them, and of no other."""
    all_lines()
    table = (ROOT / "docs/logging.md").read_text().partition("| field |")[2].partition("\n\n")[0]
    documented = [name for row in table.splitlines()[2:] for name in re.findall("`([a-z_]+)`", row.split("|")[1])]
    assert len(set(documented)) == len(documented)
    assert {name for line in written for name in line} == set(documented)
    kinds: dict[str, set[type]] = {}
    for line in written:
        for name, value in line.items():
            kinds.setdefault(name, set()).add(type(value))
    assert {name: found for name, found in kinds.items() if len(found) > 1} == {"seconds": {int, float}}


def test_what_a_client_says_stays_in_its_field(written: list[dict[str, object]]) -> None:
    """As text, too: nothing there ends a quote or a line."""
    long = "x" * 5000 + '" session=0-0'
    loglines.tell_delivery("1-7b-11-1", "7b-11", HOSTILE, long, 3, 6, 0, 0, 0.5, "aa", [HOSTILE] * 6)
    line, = written
    assert (line["from"], line["session"], line["recipients"], line["size"]) == (HOSTILE, "7b-11", 6, 3)
    assert str(line["message_id"]).startswith("xxx") and len(str(line["message_id"])) == refusallines.LONGEST
    assert len(str(line["to"])) <= refusallines.LONGEST and str(line["text"]).isprintable()


@pytest.mark.parametrize("way", ["written", "gathered"])
@pytest.mark.parametrize("sender", ["a@example.org", 'a"b@x', "a\\b@x", "é@example.org", "a\x7f\r\n@b", "", "%s{"])
def test_a_line_of_a_delivery_whoever_it_is_from(request: pytest.FixtureRequest, way: str, sender: str) -> None:
    written = request.getfixturevalue(way)
    loglines.tell_delivery("1-7b-11-1", "7b-11", sender, "<1@x>", 3, 1, 2, 0, 0.0126, "0012", ["x:7"])
    said = refusallines.quoted(sender)
    assert {name: value for name, value in written[0].items() if name not in ("time", "process")} == {
        "level": "INFO", "module": "delivery", "message": "1-7b-11-1", "session": "7b-11", "from": sender,
        "message_id": "<1@x>", "size": 3, "recipients": 3, "delivered": 1, "known": 2, "refused": 0, "seconds": 0.013,
        "digest": "0012", "to": "x:7", "text": f'message="1-7b-11-1" session=7b-11 from={said} message_id="<1@x>" '
        'size=3 recipients=3 delivered=1 known=2 refused=0 seconds=0.013 digest=0012 to="x:7"'}


@pytest.mark.parametrize("way", ["written", "gathered"])
@pytest.mark.parametrize("user", ["alice", 'a"b', "a\\b", "é@example.org", "a\x7f\r\n@b", "", "%s{"])
@pytest.mark.parametrize("password", ["", "my phone", 'the "old" one'])
def test_a_line_of_a_session_whoever_it_is_of(request: pytest.FixtureRequest, way: str, user: str, password: str
                                              ) -> None:
    written = request.getfixturevalue(way)
    refusallines.ended("::ffff:192.0.2.1", user, "imap", 7, 1, 5, {"read": 2, "deleted": 0}, "logout",
                       session="7b-12", app_password=password)
    by, by_text = ({"app_password": password}, f" app_password={refusallines.quoted(password)}") if password else (
        {}, "")
    assert {name: value for name, value in written[0].items() if name not in ("time", "process")} == {
        "level": "INFO", "module": "session", "address": "192.0.2.1", "user": user, "service": "imap", "seconds": 7,
        "received": 1, "sent": 5, "read": 2, "deleted": 0, "reason": "logout", "session": "7b-12", **by,
        "text": f"address=192.0.2.1 user={refusallines.quoted(user)} service=imap seconds=7 received=1 sent=5 read=2 "
        f'deleted=0 reason="logout" session=7b-12{by_text}'}


@pytest.mark.parametrize(("message", "arguments"), [
    ("%s: %s logged in", ("7b-11", "alice")), ("%(a)s", ({"a": 1},)), ("100%", ()), (7, ()), ("%s: %s", ("7b-1", "é")),
    ('"%s\\"', ("x",))])
def test_our_record_shows_what_one_of_pythons_would(message: object, arguments: tuple[object, ...]) -> None:
    """With a traceback, too."""
    try:
        raise ValueError("why\nnot")
    except ValueError:
        failed = sys.exc_info()
    for module, error in (("imap.session", None), ("store.x", None), ("imap.session", failed)):
        made = [kind(module, logging.WARNING, __file__, 7, message, arguments, error, "f")
                for kind in (logging.LogRecord, logs.Record)]
        for record in made:
            record.created = 1.0
        for form in (Line(), JsonLine(), logging.Formatter("%(levelname)s %(process)d %(message)s")):
            first, second = (form.format(record) for record in made)
            assert first == second


def test_a_file_that_was_moved_away_or_could_not_be_made_is_made_again(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    folder.mkdir()
    out = logs.FileOutput(folder / "lines")
    out.setFormatter(logging.Formatter("%(message)s"))

    def said(text: str) -> None:
        out.handle(logging.makeLogRecord({"msg": text}))

    said("1")
    (folder / "lines").rename(folder / "old")
    said("2")
    folder.rename(tmp_path / "away")
    said("lost")
    folder.mkdir()
    said("3")
    out.close()
    assert [(tmp_path / name).read_text() for name in ("away/old", "away/lines", "log/lines")] == ["1\n", "2\n", "3\n"]


def test_a_session_that_a_line_is_about_is_a_field(written: list[dict[str, object]]) -> None:
    """Nobody can put it there who only has a name that looks like one."""
    logging.getLogger("imap.session").info("%s: %s logged in from %s", "7b-11", "alice", "192.0.2.1")
    logging.getLogger("imap.session").info("%s logged in", "7b-11: alice")
    logging.getLogger("store.users.removal").info("%s: removed", "7b-11")
    assert [line.get("session") for line in written] == ["7b-11", None, None]


# Lines that are gathered

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
        gathering: Callable[[str], Gathered], form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it: order of the fields, too."""
    monkeypatch.setattr("time.time", lambda: 1_800_000_000.5)
    log = gathering(form)
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
