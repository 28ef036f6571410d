"""Which machine a file is on that a command names with `onecopy --server`: docs/http.md says it of each."""

import argparse
import io
import re
import sys
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import ROOT
from tools.cli import program
from tools.cli.elsewhere import remote
from tools.cli.elsewhere.argumentnames import READING_INPUT, SENT, named
from tools.exits import Failure
from tools.http.api.operationparsers import operations

PAGE = (ROOT / "docs/http.md").read_text("utf-8")
NAMED = re.compile("ARCHIVE|DIR|FILE|FOLDER|PATH|REPORT")      # what an argument is called that names a file


def told(side: str) -> dict[str, set[str]]:
    """The page's table: arguments, as they are typed, and the commands that have them."""
    rows = PAGE.partition(f"| on {side} | |\n")[2].partition("\n\n")[0].splitlines()[1:]
    found = dict[str, set[str]]()
    for row in rows:
        which, whose = (cell.strip().replace("`", "") for cell in row.strip("|").split("|"))
        for argument in which.split(", "):
            found.setdefault(argument, set()).update(whose.split(", "))
    return found


def parsers(parser: argparse.ArgumentParser, name: str = "") -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Those of all commands."""
    below = [each.choices for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
    if not below:
        yield name, parser
    for word, made in (item for choices in below for item in choices.items()):
        yield from parsers(made, f"{name} {word}".strip())


def test_the_page_says_of_each_file_which_machine_it_is_on() -> None:
    here, there = dict[str, set[str]](), dict[str, set[str]]()
    offered = {each.name: each.arguments for each in operations().values()}
    for command, parser in parsers(program.every_parser()):
        for name, flag, action in named(parser):
            if name in offered.get(command, ()) and action.nargs != 0 and (
                    action.type is Path or NAMED.search(str(action.metavar))):
                (here if (command, name) in SENT else there).setdefault(flag or str(action.metavar), set()).add(command)
    mine, theirs = told("your machine"), told("the server")
    assert {name: mine[name] for name in here} == here
    assert theirs == there


def test_what_reads_standard_input_can_be_given_some() -> None:
    assert {each.name for each in operations().values() if each.reads_stdin} >= READING_INPUT


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"typed")))


def sent(*words: str) -> tuple[dict[str, object], bytes]:
    """What the server is given, and what it is to read."""
    name, given, _ = remote._given(words)
    octets = b64decode(remote._sent(name, given))
    return given, octets


@pytest.mark.parametrize(("words", "given"), [
    ("sieve put alice main FILE", {"user": "alice", "name": "main", "file": "-"}),
    ("expire set --user alice FILE", {"user": "alice", "file": "-"}),
    ("uidl import alice FILE", {"user": "alice", "file": "-"}),
    ("user add --users FILE", {"file": "-"}),
    ("user set alice --password-file FILE", {"user": "alice", "password_stdin": True}),
    ("directory test alice --password-file FILE", {"user": "alice", "password_stdin": True})])
def test_what_is_read_as_input_is_of_this_machine(tmp_path: Path, typed: None, words: str, given: dict[str, object]
                                                  ) -> None:
    (tmp_path / "it").write_bytes(b"\xff of here")
    assert sent(*words.replace("FILE", str(tmp_path / "it")).split()) == (given, b"\xff of here")
    with pytest.raises(Failure, match="No such file"):
        sent(*words.replace("FILE", str(tmp_path / "none")).split())


@pytest.mark.parametrize(("words", "octets"), [
    ("sieve put alice main", b"typed"), ("sieve put alice main -", b"typed"), ("sieve check", b"typed"),
    ("sieve check alice", b""), ("sieve check --all", b""), ("sieve test alice", b"typed"),
    ("sieve test alice --uid 1", b""), ("deliver alice", b"typed"), ("user add alice --password-stdin", b"typed"),
    ("user add --users -", b"typed"), ("expire set --user alice -", b"typed"), ("user show alice", b"")])
def test_standard_input_is_read_where_there_is_something_to_read(typed: None, words: str, octets: bytes) -> None:
    """Nobody waits for it who did not mean it."""
    assert sent(*words.split())[1] == octets


def test_only_one_can_be_sent(tmp_path: Path, typed: None) -> None:
    file = str(tmp_path / "it")
    Path(file).write_text("x")
    for words in (("--users", file, "--password-file", file), ("--users", file, "--password-stdin"),
                  ("--users", "-", "--password-file", file)):
        with pytest.raises(Failure, match="only one file"):
            sent("user", "add", *words)
