"""A line for each event, whatever is in it."""

import json
import logging
import sys
from collections import deque

import pytest

from store.accounts import refusallines
from store.net.threads import tell_slow_command
from tools.server.process import logs, newestlines
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
    monkeypatch.setattr(newestlines, "_newest", deque(maxlen=newestlines.LINES))
    for number in range(newestlines.LINES + 5):
        line("a line %s", number)
    line("%s", "x" * 10**6)
    everything = {"level": 0, "text": "", "most": 10**9}
    found = newestlines.tell(everything)
    assert len(newestlines._newest) == newestlines.LINES and len(found) == newestlines.MOST
    assert len(found[-1]["line"]) == newestlines.LETTERS and found[-2]["line"].endswith("a line 1004")
    assert [each["line"][-4:] for each in newestlines.tell({**everything, "text": "LINE 99", "most": 2})] == [
        " 998", " 999"]
    assert newestlines.tell({**everything, "level": logging.WARNING}) == []


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


HOSTILE = "a\"b\\c reason=\"x\" \r\n\u2028é"


def test_the_fields_of_lines_that_programs_read_are_fields_of_json(written: list[dict[str, object]]) -> None:
    refusallines.refused(refusallines.LOGIN, "192.0.2.1", HOSTILE, "imap", "wrong name or password", 3)
    refusallines.ended("::ffff:192.0.2.1", "alice", "pop", {"seconds": 7, "read": 2}, HOSTILE)
    first, second = written
    assert {name: first[name] for name in ("level", "module", "kind", "address", "user", "service", "times", "reason")
            } == {"level": "WARNING", "module": "refused", "kind": "login", "address": "192.0.2.1", "user": HOSTILE,
                  "service": "imap", "times": 3, "reason": "wrong name or password"}
    assert (second["seconds"], second["read"], second["reason"]) == (7, 2, HOSTILE)


def test_seconds_of_slow_lines_are_numbers(written: list[dict[str, object]]) -> None:
    tell_slow_command("7b-11", "1.500", "imap", "UID FETCH", 1.7021, 0.0)
    line, = written
    assert {name: line[name] for name in ("kind", "session", "user", "command", "seconds", "waited_for_client")} == {
        "kind": "command", "session": "7b-11", "user": "1.500", "command": "UID FETCH", "seconds": 1.702,
        "waited_for_client": 0.0}


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


@pytest.mark.parametrize("value", ["imap", "imap=loud", "=debug", "imap="])
def test_what_is_no_level_of_a_part_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match="part=level"):
        Log(levels=(value,))
