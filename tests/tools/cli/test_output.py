"""Tables for pipes: those that are made without rich are what rich makes."""

import random
import sys
from types import ModuleType

import pytest

from tools.cli import output

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


def test_plain_tables_need_no_rich(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich", ModuleType("rich"))       # of which nothing can be imported
    assert printed(capsys, [{"a": "x", "b": 12}], ["a", "b"]) == "a   b\nx  12\n"
