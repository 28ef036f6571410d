"""Who mistypes a command, an option or a setting is told what may have been meant, in one line; options of the
configuration may stand before the command; and no help is longer than a person reads."""

from pathlib import Path

import pytest

from tests.support.processes.program import Program
from tools.cli import options, program
from tools.cli.commandtree import tree

LONGEST_HELP = 80           # lines, at 80 columns


@pytest.mark.parametrize(("typed", "meant"), [
    ("chekc", "check"), ("usr add x", "user"), ("user ad x", "add"), ("add x", "user add or partition add"),
    ("check --jsno", "--json"), ("serve --imap-prot 3", "--imap-port"), ("serve --imapport 3", "--imap-port"),
    ("--rot X check", "--root"), ("user --rot X list", "--root"), ("quota shwo", "show"),
    ("user set x --status inactiv", "inactive or active"), ("config show imap.prot", "imap.port"),
    ("config show ldap.uris", ""), ("mailbox subscrib x", "subscribe or unsubscribe"), ("xyzzy", ""),
])
def test_what_may_have_been_meant(typed: str, meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(typed.split()) == 2
    out, error = capsys.readouterr()
    line, = error.splitlines()
    assert out == "" and line.startswith("onecopy: ")
    assert f"; did you mean {meant}" in line if meant else "did you mean" not in line


@pytest.mark.parametrize(("text", "environment", "meant"), [
    ("[imap]\nprot = 1\n", "", "imap.port"), ("[imaps]\nport = 1\n", "", "imap"),
    ("[store]\ndefaultdomain = 'x'\n", "", "store.default_domain"), ("", "ONECOPY_IMAP_PROT", "ONECOPY_IMAP_PORT")])
def test_settings(text: str, environment: str, meant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                  capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "onecopy.toml").write_text(text)
    if environment:
        monkeypatch.setenv(environment, "1")
    assert program.main(["config", "show", "--config", str(tmp_path / "onecopy.toml")]) == 2
    line, = capsys.readouterr().err.splitlines()
    assert f"did you mean {meant}" in line


@pytest.mark.parametrize("typed", [
    "--root {root} user list", "user --root {root} list", "--root={root} user list", "user list --root {root}",
    "--root {root} --store-default-domain example.com user list",
    "--store-default-domain=x.org user --root {root} list"
])
def test_options_may_stand_before_it(onecopy: Program, typed: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(typed.format(root=onecopy.root).split()) == 0
    assert "alice" in capsys.readouterr().out


def test_words_behind_two_dashes_stay_there(onecopy: Program) -> None:
    onecopy("mailbox", "create", "alice", "Work")
    assert program.main(["--root", str(onecopy.root), "mailbox", "acl", "alice", "Work", "--", "bob", "+l"]) == 0


def test_a_value_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["user", "list", "--root"]) == 2
    assert "--root: expected one argument" in capsys.readouterr().err


def test_names_of_earlier_versions_work(onecopy: Program) -> None:
    onecopy("user", "remove", "alice", "--yes")
    onecopy("user", "restore", "alice")
    assert onecopy.json("user", "show", "alice")["status"] == "active"      # type: ignore[call-overload,index]
    assert "restore" not in {node.words[-1] for node in tree().walk() if node.words[0] == "user"}


@pytest.mark.parametrize("name", [node.name for node in tree().walk()] + [""])
def test_help_is_short(name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert program.main([*name.split(), "--help"]) == 0
    assert capsys.readouterr().out.count("\n") <= LONGEST_HELP + (70 if not name else 0)


@pytest.mark.parametrize("name", ["serve", "config show", "config check"])
def test_all_options_are_in_the_long_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main([*name.split(), "--help-all"]) == 0
    said = capsys.readouterr().out
    assert all(f"{option.flag} " in said for option in options.table().values())
    assert program.main([*name.split(), "--help"]) == 0
    short = capsys.readouterr().out
    assert "--help-all" in short and all(section in short for section in options.SECTIONS)


def test_one_option_or_section_is_shown(onecopy: Program) -> None:
    assert onecopy.json("config", "show", "imap.port") == {
        "imap.port": {"value": "143", "origin": "default"}}
    found = onecopy.json("config", "show", "log", "imap.port")
    assert set(found) == {"imap.port"} | set(options.section("log"))            # type: ignore[call-overload]


def test_what_a_server_would_not_hear_is_refused(onecopy: Program) -> None:
    """An option that is typed behind `config reload` is in no source that the server reads."""
    for words in (("--log-level", "debug"), ("--dry-run", "--log-level", "debug")):
        assert "--log-level reaches no server" in onecopy.refused("config", "reload", *words, status=2)
