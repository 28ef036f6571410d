"""`onecopy batch`: commands of a file, one after the other, all of them read first; by the API, too (test_api)."""

import json
from pathlib import Path

import pytest

from tests.support.processes.program import Program
from tools.cli.elsewhere import batchlines
from tools.cli.elsewhere.batchlines import Line, carry_out


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "commands"


def statuses(onecopy: Program, file: Path, *words: str, status: int = 0) -> list[tuple[int, int]]:
    rows = json.loads(onecopy("batch", str(file), "--json", *words, status=status))
    return [(row["line"], row["status"]) for row in rows]


def names(onecopy: Program, user: str = "alice") -> list[str]:
    rows = onecopy.json("mailbox", "list", user)
    assert isinstance(rows, list)
    return [row["mailbox"] for row in rows]


def test_commands_are_done_in_order(onecopy: Program, file: Path) -> None:
    file.write_text("""# a remark

onecopy mailbox create alice 'Two words' "Caf\u00e9"     # and one more
mailbox rename alice Two\\ words New
quota set alice --octets 5M
quota show alice --json
""")
    rows = json.loads(onecopy("batch", str(file), "--json"))
    assert [(row["line"], row["status"]) for row in rows] == [(3, 0), (4, 0), (5, 0), (6, 0)]
    assert rows[0]["words"] == ["mailbox", "create", "alice", "Two words", "Caf\u00e9"]
    assert json.loads(rows[3]["output"])[0]["octet_limit"] == 5 << 20
    assert onecopy.error == "onecopy: 4 of 4 commands done, 0 failed, 0 left\n"
    assert {"New", "Caf\u00e9"} <= set(names(onecopy)) and "Two words" not in names(onecopy)


@pytest.mark.parametrize(("line", "complaint"), [
    ("mailbox crate alice X", "there is no command 'mailbox crate'; did you mean create?"),
    ("mailbox create alice", "MAILBOX"), ("mailbox create alice 'X", "no closing quotation"),
    ("quota set alice --octetts 5M", "there is no option --octetts; did you mean --octets"),
    ("messages search --since x seen", "--since"), ("batch other", "batch cannot be one of several"),
    ("serve", "serve cannot be one of several"), ("frobnicate", "frobnicate")])
def test_nothing_is_done_if_one_of_them_is_none(onecopy: Program, file: Path, line: str, complaint: str) -> None:
    file.write_text(f"mailbox create alice First\n{line}\n")
    for options in ((), ("--check",), ("--keep-going",)):
        said = onecopy.refused("batch", str(file), *options, status=2)
        assert said.startswith("line 2: ") and complaint in said and said.endswith("nothing was done")
    assert "First" not in names(onecopy)


def test_the_first_that_fails_ends_it_or_not(onecopy: Program, file: Path) -> None:
    file.write_text("mailbox create alice A\nmailbox create nobody B\nmailbox create alice C\n")
    assert onecopy("batch", str(file), status=1) == ""
    assert onecopy.error.splitlines()[-2:] == [
        "onecopy: line 2 failed with status 1", "onecopy: 1 of 3 commands done, 1 failed (line 2), 1 left"]
    assert "A" in names(onecopy) and "C" not in names(onecopy)
    assert statuses(onecopy, file, "--keep-going", status=1) == [(1, 1), (2, 1), (3, 0)]        # A is there already
    assert "1 of 3 commands done, 2 failed (line 1, 2), 0 left" in onecopy.error and "C" in names(onecopy)


def test_the_whole_file_is_standard_input(onecopy: Program) -> None:
    onecopy("batch", "-", octets=b"mailbox create alice A\n")
    assert "A" in names(onecopy)
    onecopy("batch", "-", "--check", octets=b"mailbox create alice B\n")
    assert "B" not in names(onecopy) and onecopy("batch", "-") == ""


def test_each_is_in_the_audit_trail(onecopy: Program, file: Path) -> None:
    file.write_text("mailbox create alice A\nquota set alice --octets 5M\nmailbox create nobody B\n")
    onecopy("batch", str(file), status=1)
    rows = onecopy.json("audit", "show")
    assert isinstance(rows, list)
    told = [(row["what"], row["arguments"][-2:], row.get("result", "")) for row in rows][-4:]
    assert told == [("mailbox create", ["alice", "A"], ""), ("quota set", ["--octets", "5M"], ""),
                    ("mailbox create", ["nobody", "B"], ""), ("mailbox create", ["nobody", "B"], told[-1][2])]
    assert "nobody" in told[-1][2] and {row["actor"] for row in rows[-4:]} == {rows[0]["actor"]}


def test_options_of_the_configuration_are_those_of_each(onecopy: Program, file: Path) -> None:
    file.write_text("config show --json\nconfig show --json --store-purge-delay 3d\n")
    rows = json.loads(onecopy("batch", str(file), "--json", "--store-purge-delay", "2d"))
    assert ["172800" in row["output"] or "2d" in row["output"] for row in rows] == [True, False]


def test_what_is_kept_of_what_is_printed_is_bounded(capsys: pytest.CaptureFixture[str],
                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batchlines, "KEPT", 10)

    def run(words: object) -> int:
        print("x" * 1000)
        return 0

    assert carry_out([Line(1, ("a",))], run, goes_on=False, as_json=True) == 0
    assert json.loads(capsys.readouterr().out)[0]["output"] == "x" * 10


@pytest.mark.parametrize("octets", [b"\xff", b"#" * (batchlines.LONGEST + 1)])
def test_what_is_no_such_file_is_said(onecopy: Program, file: Path, octets: bytes) -> None:
    file.write_bytes(octets)
    assert str(file) in onecopy.refused("batch", str(file), status=2)
    assert "No such file" in onecopy.refused("batch", str(file) + "x")
