"""Whatever takes longer than two seconds says how far it is: found by going over the registry, so that a new command
either shows it or says here why it is soon done."""

import io
import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

import pytest

from tests.support import ROOT
from tests.support.processes.program import Program
from tools.cli import progressbar
from tools.cli.commandtree import tree
from tools.cli.later import Later

COMMANDS = {node.name: node.parser.get_default("command") for node in tree().walk()}

ONE = "looks up, or changes, what its arguments name"
FEW = "of these there are few"
ASKS = "asks the processes of the server, which answer at once"
#: Commands that show no progress, each with the reason why it is soon done.
SOON = {
    "init": "makes 4,096 folders", "serve": "says how far it is in its log", "standby follow": "says it in its log",
    "standby serve": "says it in its log",
    **dict.fromkeys((
        "user show", "user set", "user scram", "user domain", "user remove", "user hash",
        "user undelete", "mailbox create", "mailbox info", "mailbox rename", "mailbox delete", "mailbox acl",
        "mailbox metadata", "mailbox subscribe", "mailbox unsubscribe", "mailbox undelete", "undelete", "deliver",
        "path", "hashdir", "quota set", "quota remove", "uidl import", "uidl list", "sieve list", "sieve show",
        "sieve get", "sieve put", "sieve activate", "sieve rename", "sieve delete", "sieve test", "partition add",
        "expire set", "snapshot browse", "explain access", "explain quota", "access create", "access revoke",
        "access reset", "token create", "token revoke", "directory flush", "config certificate", "audit head"), ONE),
    **dict.fromkeys(("partition list", "snapshot list", "snapshot remove", "expire rules", "expire last", "token list",
                     "access list", "audit remove", "outbox list", "outbox show", "outbox retry", "outbox discard",
                     "standby status", "standby forget"), FEW),
    **dict.fromkeys(("connections", "logins", "status", "stats", "log show", "log errors", "log level", "log levels",
                     "transcript", "config reload", "sieve stats"), ASKS),
    "config show": "reads one file", "config diff": "reads one file", "man": "prints pages",
    "completion": "prints a script",
}
OURS = ("tools.commands", "tools.cli.elsewhere", "tools.cli.progressbar")
SHOWING = (progressbar.bar, progressbar.changing_bar, progressbar.counted)


def functions_of(function: object) -> Iterator[object]:
    """The functions of tools that it names, or that are loaded when it calls them."""
    if isinstance(function, partial):
        yield function.func
    if isinstance(function, Later) and function.place.startswith("tools.spark"):       # not loaded for this
        if re.search(r"^from .* import .*\b(progress|changing_bar|counted)\b|export_to", (ROOT / (
                function.place.partition(":")[0].replace(".", "/") + ".py")).read_text(), re.MULTILINE):
            yield from unwrapped(progressbar.bar)
    if isinstance(function, FunctionType):
        names = {*names_in(function.__code__)} - {"add"}        # which makes the parsers of a module
        for found in (function.__globals__.get(name) for name in names):
            inside = [getattr(found, name, None) for name in names] if isinstance(found, ModuleType) else [found]
            yield from unwrapped(*inside)


def unwrapped(*functions: object) -> list[object]:
    """Without their decorators."""
    return [getattr(each, "__wrapped__", each) for each in functions]


def names_in(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from names_in(constant)


def shows(command: object) -> bool:
    """Whether the functions of a command come to one that shows how far it is."""
    showing = unwrapped(*SHOWING)
    seen, due = {id(command)}, [command]
    while due:
        function = due.pop()
        if function in showing:
            return True
        for each in functions_of(function):
            if id(each) not in seen and (isinstance(each, Later | partial) or str(
                    getattr(each, "__module__", "")).startswith(OURS)):
                seen.add(id(each))
                due.append(each)
    return False


@pytest.mark.parametrize("name", COMMANDS)
def test_it_shows_how_far_it_is_or_is_soon_done(name: str) -> None:
    assert shows(COMMANDS[name]) != (name in SOON)


def test_the_table_names_no_command_that_is_gone() -> None:
    assert SOON.keys() <= COMMANDS.keys()


# What is shown

class Terminal(io.StringIO):
    """A person watches."""

    def isatty(self) -> bool:
        return True


def watched(monkeypatch: pytest.MonkeyPatch, pace: float = 0.0) -> Callable[[], str]:
    """From now on somebody watches: what the terminal has been sent as standard error."""
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setattr(progressbar, "PACE", pace)
    monkeypatch.setenv("TERM", "xterm")
    return stream.getvalue


@pytest.mark.parametrize(("typed", "what"), [
    ("dump users", "users"), ("user list", "users"), ("mailbox list", "mailboxes"), ("check", "primary: message files"),
    ("quota show", "quota roots"), ("audit verify", "lines"), ("quota sharing", "records")])
def test_long_commands_have_a_bar(typed: str, what: str, onecopy: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    onecopy("deliver", "alice", octets=b"Subject: x\r\n\r\nx\r\n")
    shown = watched(monkeypatch)
    onecopy(*typed.split())
    assert what in shown()


def test_a_batch_says_which_command_of_how_many_it_is_at(onecopy: Program, tmp_path: Path,
                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "commands").write_text("mailbox create alice A\n\nmailbox create alice B\n")
    shown = watched(monkeypatch)
    onecopy("batch", str(tmp_path / "commands"))
    assert "2 of 2, line 3: mailbox create alice B" in shown()


def test_what_a_batch_catches_has_no_lines_of_progress(onecopy: Program, tmp_path: Path,
                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(progressbar.PROGRESS, "1")
    monkeypatch.setattr(progressbar, "PACE", 0.0)
    monkeypatch.setattr(progressbar, "TICK", 0.0)
    (tmp_path / "commands").write_text("user list\nmailbox list\n")
    rows = json.loads(onecopy("batch", str(tmp_path / "commands"), "--json"))
    assert [row["errors"] for row in rows] == ["", ""]
    assert f"{progressbar.RS}2 2 commands" in onecopy.error


def test_nobody_who_reads_lines_sees_a_bar_among_them(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = watched(monkeypatch)
    monkeypatch.setattr("sys.stdout", Terminal())
    assert list(progressbar.counted(range(3), "rows", printing=True)) == [0, 1, 2]
    assert shown() == ""


def test_what_is_soon_done_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = watched(monkeypatch, pace=60.0)
    assert list(progressbar.counted("ab", "letters")) == ["a", "b"]
    assert shown() == ""
