"""A line for each event, whatever is in it."""

import json
import logging
import re
import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import pytest
from twisted.internet.task import Clock

from store.accounts import refusallines
from store.observing import loglines
from store.observing.loglines import tell_command
from tests.support import ROOT
from tests.support.readers.gatheredlog import Gathered, gathering
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


@pytest.fixture
def gathered() -> Iterator[Gathered]:
    """As JSON."""
    with gathering() as make:
        yield make("json")


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
