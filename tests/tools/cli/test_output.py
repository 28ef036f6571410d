"""Tables for pipes: those that are made without rich are what rich makes."""

import io
import json
import random
import re
import sys
from collections.abc import Callable
from types import ModuleType

import pytest
from rich.cells import cell_len

from mboxlist.names import DECEIVING as DECEIVING_LETTERS
from tools.cli import output, program
from tools.exits import Failure

WORDS = (None, True, 0, 7, 604933, 1.5, "", "word", " before", "behind ", "in  between", "[b]x[/b]", ":smile:", "a\tb",
         "x" * 130, ("q", "z"), [])


def printed(capture: pytest.CaptureFixture[str], rows: list[dict[str, object]], columns: list[str]) -> str:
    output.print_table(rows, columns)
    return capture.readouterr().out


def test_plain_tables_are_those_of_rich(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = random.Random(3)
    for _ in range(60):
        columns = ["user_name", "count", "x"][:drawn.randrange(1, 4)]
        rows = [{column: drawn.choice(WORDS) for column in columns if drawn.random() < 0.9}
                for _ in range(drawn.randrange(5))]
        plain = printed(capsys, rows, columns)
        with monkeypatch.context() as patched:
            patched.setattr(output, "_print_plain", None)
            patched.setattr(output, "all", lambda found: False, raising=False)
            assert plain == printed(capsys, rows, columns)


def test_wide_letters_stand_as_wide_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, [{"a": "日本", "b": "x"}, {"a": "abcde", "b": "y"}], ["a", "b"]) == (
        "a      b\n日本   x\nabcde  y\n")


class Terminal(io.StringIO):
    """A person reads."""

    def isatty(self) -> bool:
        return True


ROWS = [{"user": "alice", "path": "/srv/mail/partitions/primary", "because": "the entry of the group staff gives it"},
        {"user": "日本語の名前", "path": "/srv/mail/partitions/second", "because": "no entry"}]


def on_terminal(monkeypatch: pytest.MonkeyPatch, columns: int, **environment: str) -> list[str]:
    """The lines that a terminal of that width gets."""
    stream = Terminal()
    monkeypatch.setattr("sys.stdout", stream)
    for name, value in {"TERM": "xterm", "COLUMNS": str(columns), **environment}.items():
        monkeypatch.setenv(name, value)
    output.print_table(ROWS, ["user", "path", "because"])
    return stream.getvalue().splitlines()


def plain(line: str) -> str:
    """Without colours and bold letters."""
    return re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip()


@pytest.mark.parametrize("columns", [30, 48, 60, 80, 120])
def test_no_line_is_wider_than_the_terminal_and_no_word_is_cut(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [plain(line) for line in on_terminal(monkeypatch, columns)]
    assert max(map(cell_len, lines)) <= columns
    if columns > 30:                    # a path is longer than that
        words = " ".join(lines).split()
        assert all(word in words for row in ROWS for value in row.values() for word in str(value).split())


def test_a_row_that_is_too_wide_has_a_line_for_each_column(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [plain(line) for line in on_terminal(monkeypatch, 48)] == [
        "user     alice", "path     /srv/mail/partitions/primary", "because  the entry of the group staff gives it", "",
        "user     日本語の名前", "path     /srv/mail/partitions/second", "because  no entry"]


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_there_are_no_colours_where_none_are_wanted(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
                                                    ) -> None:
    assert not re.search(r"\x1b\[[0-9;]*[349][0-7]", "".join(on_terminal(monkeypatch, 80, **environment)))


def test_a_pipe_gets_no_code_of_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "20")
    said = printed(capsys, ROWS, ["user", "path", "because"])
    assert "\x1b" not in said and len(said.splitlines()) == 3


def test_plain_tables_need_no_rich(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich", ModuleType("rich"))       # of which nothing can be imported
    assert printed(capsys, [{"a": "x", "b": 12}], ["a", "b"]) == "a   b\nx  12\n"


# What a name of somebody else's could do to a terminal, or to who reads it: colours, a new line, text turned round.
DECEIVING = "a\x1b[31m\r\u202eexe.doc\u2066\u200b\ufeff\x9b\U000e0041"
ESCAPED = "a\\u001b[31m\\r\\u202eexe.doc\\u2066\\u200b\\ufeff\\u009b\\udb40\\udc41"


@pytest.mark.parametrize("work", [
    lambda: print(DECEIVING), lambda: print("first", DECEIVING, file=sys.stderr),
    lambda: output.print_table([{"name": DECEIVING}], ["name"]), lambda: output.print_facts({"name": DECEIVING}),
    lambda: output.print_json({"name": DECEIVING}),
])
def test_nothing_that_deceives_is_printed(work: Callable[[], None], capsys: pytest.CaptureFixture[str]) -> None:
    with output.only_printable():
        work()
    said = "".join(capsys.readouterr())
    assert ESCAPED in said and not DECEIVING_LETTERS.search(said.replace("\n", ""))


def test_a_failure_names_what_deceives_with_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> int:
        raise Failure(f"there is no {DECEIVING}")

    assert program.guarded(fail) == 2
    assert capsys.readouterr().err == f"onecopy: there is no {ESCAPED}\n"


def test_json_means_what_it_did(capsys: pytest.CaptureFixture[str]) -> None:
    with output.only_printable():
        output.print_json([DECEIVING, "日本\u200d\n\t"])
    assert json.loads(capsys.readouterr().out) == [DECEIVING, "日本\u200d\n\t"]


def test_letters_of_the_world_stay_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    text = "Grüße 日本 \u3000 می\u200cخواهم 👩\u200d👧 עברית"
    with output.only_printable():
        output.print_facts({"name": text})
        print(text)
    assert capsys.readouterr().out == f"name  {text}\n{text}\n"
