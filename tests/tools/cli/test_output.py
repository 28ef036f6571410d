"""Tables for pipes: those that are made without rich are what rich makes."""

import json
import random
import sys
from collections.abc import Callable
from types import ModuleType

import pytest

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
