"""What holds for every command, read from the parsers themselves, so that new ones are held to it."""

import argparse
import subprocess
from pathlib import Path

import pytest

from tools.cli import manpages, program
from tools.cli.commandtree import Node, tree

TOP = tree()
COMMANDS = {node.name: node for node in TOP.walk()}

# Commands that print no data, so that there is nothing to be put into JSON.
NO_JSON = {
    "init": "says nothing", "serve": "serves", "drain": "says nothing",
    "user add": "says nothing", "user set": "says nothing", "user rename": "says nothing",
    "user remove": "says nothing",
    "directory flush": "says nothing",
    "mailbox create": "says nothing", "mailbox rename": "says nothing", "mailbox delete": "says nothing",
    "expire set": "says nothing",
    "partition add": "says nothing", "partition remove": "says nothing",
    "spark shell": "is a Python prompt",
    "token revoke": "says nothing", "access revoke": "says nothing", "access reset": "says nothing",
    "standby follow": "says what it does in its log", "standby serve": "says what it does in its log",
    "standby forget": "says one line",
    **dict.fromkeys(("sieve put", "sieve activate", "sieve rename", "sieve delete"), "says nothing"),
    "man": "prints pages", "completion": "prints a script",
}

# The last words of commands that change nothing in a store, and single commands that do not.
READING = frozenset({"list", "show", "info", "status", "test", "check", "verify", "report", "diff", "sharing", "stats",
                     "errors"})
READ_ONLY = frozenset({
    "path", "hashdir", "doctor", "dump", "user hash", "messages search", "messages fetch", "snapshot browse",
    "uidl list", "man", "completion", "sieve get", "stats", "explain message", "explain access", "explain quota",
    "explain login", "audit head", "log levels",
    "spark sql", "spark shell", "facts export", "config show", "expire rules",
    "expire last"})

# Commands that change something and have no --dry-run.
ONE_THING = "does the one thing that its arguments name, and can be undone by another"
NO_DRY_RUN = {
    "config certificate": "makes a certificate where there is none",
    "init": "makes an empty store, and nothing where there is one", "serve": "serves", "drain": "ends the server",
    "log level": "ends by itself, and can be undone", "transcript": "ends by itself",
    "logins": "shows without --clear what is forgotten with it",
    "user add": ONE_THING, "user set": ONE_THING, "user domain": ONE_THING, "user rename": ONE_THING,
    "user remove": "asks, and can be undone for store.user_delay",
    "directory flush": "forgets what is asked again", "mailbox create": ONE_THING, "mailbox rename": ONE_THING,
    "mailbox delete": "can be undone until the purge", "mailbox acl": ONE_THING,
    "mailbox metadata": ONE_THING,
    "mailbox subscribe": ONE_THING, "mailbox unsubscribe": ONE_THING,
    "deliver": "delivers one message", "uidl import": ONE_THING,
    "partition add": ONE_THING, "partition drain": "can be left off and undone",
    "partition remove": "refuses unless it is empty",
    "quota set": ONE_THING, "quota remove": ONE_THING, "scrub": "reports, unless it is told to --sweep",
    "snapshot create": "makes one more, which can be removed", "backup": "changes nothing in the store",
    "token create": "makes one, which can be revoked", "token revoke": ONE_THING,
    "access create": "makes one, which can be revoked", "access revoke": ONE_THING,
    "access reset": "the user can set up another",
    "standby create": "makes one, in an empty folder", "standby follow": "follows",
    "standby promote": "asks; what it would be standby status says", "standby forget": "asks where it matters",
    "standby copy": "makes one more, which can be removed", "standby serve": "serves",
    **dict.fromkeys(("sieve put", "sieve activate", "sieve rename", "sieve delete"), ONE_THING),
    "relink": "has --check", "batch": "has --check, and each command its own", "spark generate": "makes a new store",
}


def shown(action: argparse.Action) -> str:
    """The help of an argument, with its default filled in."""
    return argparse.HelpFormatter("onecopy")._expand_help(action) if action.help else ""


def placeholder(action: argparse.Action) -> str:
    """What stands for the value of an argument in its help; "" for one without."""
    if action.nargs == 0:
        return ""
    if isinstance(action.metavar, tuple):
        return " ".join(action.metavar)
    if action.metavar is not None:
        return action.metavar
    if action.choices is not None:
        return "{" + ",".join(map(str, action.choices)) + "}"
    return action.dest.upper()


def options(node: Node) -> set[str]:
    return {name for action in node.actions for name in action.option_strings}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_argument_has_help(name: str) -> None:
    node = COMMANDS[name]
    assert node.help and not node.help.endswith("."), "a help is no sentence"
    assert [action.dest for action in node.actions if not shown(action).strip()] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_data_can_be_had_as_json(name: str) -> None:
    assert ("--json" in options(COMMANDS[name])) != (name in NO_JSON)


@pytest.mark.parametrize("name", COMMANDS)
def test_changes_can_be_tried(name: str) -> None:
    reads = name in READ_ONLY or name.split()[-1] in READING
    assert "--dry-run" in options(COMMANDS[name]) or reads or name in NO_DRY_RUN


def test_the_tables_name_no_command_that_is_gone() -> None:
    assert (NO_JSON.keys() | NO_DRY_RUN.keys() | READ_ONLY) - COMMANDS.keys() == set()


@pytest.mark.parametrize("name", COMMANDS)
def test_wrong_use_is_said_in_one_line(name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert program.main([*name.split(), "--no-such-option", "--root", str(tmp_path / "none")]) == 2
    out, error = capsys.readouterr()
    line, = error.splitlines()
    assert out == "" and line.startswith("onecopy: ") and "Traceback" not in line


@pytest.mark.parametrize("name", [name for name, node in COMMANDS.items() if any(
    not action.option_strings and action.nargs in (None, "+") for action in node.actions)])
def test_a_missing_argument_is_named(name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert program.main([*name.split(), "--root", str(tmp_path / "none")]) == 2
    line, = capsys.readouterr().err.splitlines()
    missing = next(placeholder(action) for action in COMMANDS[name].actions
                   if not action.option_strings and action.nargs in (None, "+"))
    assert missing in line


# Man pages

@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("man")
    assert program.main(["man", "--to", str(folder)]) == 0
    return folder


def rendered(page: Path) -> str:
    """As a reader sees it, without what man does with the words at the ends of lines."""
    done = subprocess.run(["mandoc", "-T", "utf8", "-O", "width=1000", page], capture_output=True, check=True)
    bare = subprocess.run(["col", "-b"], input=done.stdout, capture_output=True, check=True).stdout
    return " ".join(bare.decode().replace("‐", "-").split())


def test_pages_are_good_roff(written: Path) -> None:
    pages = sorted(written.glob("man?/*"))
    assert len(pages) == len(TOP.below) + 2
    lint = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", *pages], capture_output=True, check=False)
    assert (lint.returncode, lint.stdout) == (0, b"")
    warned = subprocess.run(["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", written / "man1" / "onecopy.1"],
                            capture_output=True, check=True)
    assert warned.stderr == b""


def test_pages_have_every_command_option_and_help(written: Path) -> None:
    overview = rendered(written / "man1" / "onecopy.1")
    for node in COMMANDS.values():
        assert f"onecopy {node.name} " in overview
        page = rendered(written / "man1" / f"onecopy-{node.words[0]}.1")
        for action in node.actions:
            for name in action.option_strings or [placeholder(action)]:
                assert name in page, (node.name, name)
            words = " ".join(shown(action).split())
            assert words[1:] in page, (node.name, words)


def test_the_page_of_the_file_has_every_option_with_its_default(written: Path) -> None:
    from tools.cli import options as config
    page = rendered(written / "man5" / "onecopy.toml.5")
    for option in config.table().values():
        help = " ".join(option.help.split())
        assert option.variable in page and option.flag in page and help[1:] in page, option.name
        if default := option.show(option.default):
            assert f"Default: {default}." in page, option.name


def test_words_that_roff_would_take_for_its_own_are_shown(tmp_path: Path) -> None:
    words = ".it's a \\fBquote\\fR, `--a-b`", "'another' ^~", "..."
    parser = argparse.ArgumentParser("onecopy")
    below = parser.add_subparsers(metavar="COMMAND")
    for number, text in enumerate(words):
        made = below.add_parser(f"x{number}", help=text)
        made.add_argument("--option", help=text)
    nodes = tuple(Node((name,), "help", made, ()) for name, made in below.choices.items())
    for name, page in manpages.pages(Node((), "", parser, nodes), ()).items():
        (tmp_path / name).write_text(page)
    for number, text in enumerate(words):
        assert f"--option OPTION {text}" in rendered(tmp_path / f"onecopy-x{number}.1")


def test_a_flag_in_what_a_command_of_a_group_does(tmp_path: Path) -> None:
    """Its backslash is no escape of roff."""
    parser = argparse.ArgumentParser("onecopy group")
    parser.add_subparsers(metavar="COMMAND").add_parser("x", help="those with \\Deleted")
    (page,) = (page for name, page in manpages.pages(Node((), "", parser, (Node(("group",), "help", parser, ()),)),
                                                     ()).items() if name == "onecopy-group.1")
    (tmp_path / "group.1").write_text(page)
    assert "those with \\Deleted" in rendered(tmp_path / "group.1")
