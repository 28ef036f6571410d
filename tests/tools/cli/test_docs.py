"""Every command that the documentation shows is one: it can be typed as it is shown, and has the options that are said
of it."""

import re
import shlex
from collections.abc import Iterator
from itertools import dropwhile, takewhile
from pathlib import Path

import pytest

from tests.support import ROOT
from tools.cli import options, program, registry
from tools.cli.commandtree import tree
from tools.cli.elsewhere import remote
from tools.exits import Failure

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BEHIND = re.compile(r"\s+(?:\||>|<|&&|;|&>|2>)\s.*")       # another program's part of the line


def blocks(text: str) -> Iterator[tuple[int, str]]:
    """The commands in indented blocks, without prompts, comments and what a shell does with them."""
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        match = re.match(r" {4,}(?:\$ )?(onecopy .*)", line)
        if match is None:
            continue
        typed, at = match[1], number
        while typed.endswith("\\") and at < len(lines):
            typed, at = typed[:-1] + " " + lines[at].strip(), at + 1
        yield number, typed


def words(typed: str) -> list[str]:
    """As a shell would divide it. What is optional is left out, and ... after a word stands for more of them."""
    typed = re.sub(r"(\S)\s{3,}[^\s].*", r"\1", typed)                  # an explanation in a column of its own
    quoted = re.findall(r"'[^']*'|\"[^\"]*\"", typed)
    bare = re.sub(r"'[^']*'|\"[^\"]*\"", "QUOTED", typed)
    bare = BEHIND.sub("", re.sub(r"\[[^\]]*\](?:\.\.\.)?", "", bare)).replace("...", "").replace("$(", "(")
    parts = shlex.split(bare.replace("(", "").replace(")", ""), comments=True)
    given = iter(quoted)
    return [re.sub("QUOTED", lambda _: next(given)[1:-1], part) for part in parts][1:]


def shown() -> list[tuple[str, list[str]]]:
    """All of them, with where they stand."""
    return [(f"{page.relative_to(ROOT)}:{number}", words(typed)) for page in PAGES
            for number, typed in blocks(page.read_text(encoding="utf-8"))]


def test_what_is_shown_can_be_typed(capsys: pytest.CaptureFixture[str]) -> None:
    wrong, every = [], [(where, remote.parser().parse_args(typed).command if typed[:1] == ["--server"] else typed)
                        for where, typed in shown()]
    made = program._grown([word for _, typed in every for word in typed] + ["run"], registry.every_module())
    for where, typed in every:
        if typed[:1] == ["expire"] and not {*typed[1:2]} & {*registry.members("expire")}:
            typed = ["expire", "run", *typed[1:]]
        try:
            made.top.parse_args(typed)
        except SystemExit as end:
            if end.code:
                wrong.append(f"{where}: onecopy {' '.join(typed)}: {capsys.readouterr().err.strip()}")
    assert not wrong, "\n".join(wrong)
    assert len(every) > 80


def test_what_is_named_is_there() -> None:
    """Commands and options in running text."""
    made = program._grown((), registry.every_module())
    parsers = {parser.prog.removeprefix("onecopy "): parser for parser in made.parsers}
    groups = {name.partition(" ")[0] for name in parsers}
    settings = {"--config", "--help-all", *(option.flag for section in ("", *options.SECTIONS)
                              for option in options.section(section).values())}
    wrong = []
    for page in PAGES:
        for code in re.findall(r"`onecopy ([a-z][^`]*)`", page.read_text(encoding="utf-8").replace("\n", " ")):
            typed = re.findall(r"[^\s'\"]+", re.sub(r"'[^']*'|\"[^\"]*\"", "QUOTED", code))
            name = next((name for name in (" ".join(typed[:2]), typed[0]) if name in parsers), None)
            if name is None and typed[0] == "expire":
                name = "expire run"
            if name is None:
                if typed[0] not in groups and "|" not in typed[0]:
                    wrong.append(f"{page.name}: there is no `onecopy {code}`")
                continue
            known = settings | set(parsers[name]._option_string_actions)
            wrong += [f"{page.name}: `onecopy {code}` has no {word}" for word in typed
                      if re.fullmatch(r"--[a-z][a-z-]*", word) and word not in known]
    assert not wrong, "\n".join(wrong)


FILES = (".db", ".idx", ".ldif", ".md", ".sh")
SIEVE_ITEMS = {"imap.user"}             # of the test `environment` (RFC 6785 section 4.1)


def test_every_option_that_is_named_is_one() -> None:
    """In the form section.key; quotas have no section of their own, and a page once said so."""
    named = [(page.name, name) for page in PAGES
             for name in re.findall(r"`([a-z]+\.[a-z_0-9]+)`", page.read_text(encoding="utf-8"))
             if name.partition(".")[0] in {*options.SECTIONS, "quota"} and not name.endswith(FILES)]
    assert len(named) > 300
    assert [each for each in named if each[1] not in {*options.table(), *SIEVE_ITEMS}] == []


SECTION = re.compile(rf"\[({'|'.join(options.SECTIONS)})\]")


def configurations(text: str) -> Iterator[str]:
    """What is shown of onecopy.toml: blocks, indented or fenced, that begin with one of our sections."""
    for block in re.findall(r"(?:^(?: {4,}.*)?\n)+", text + "\n", re.MULTILINE):
        lines = [line.strip() for line in block.splitlines()]
        shown = takewhile(lambda line: not line.startswith(("onecopy ", "ONECOPY_")),
                          dropwhile(lambda line: not SECTION.match(line), lines))
        yield from filter(None, ["\n".join(shown)])
    yield from re.findall(r"^```toml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def test_every_configuration_that_is_shown_loads(tmp_path: Path) -> None:
    wrong, seen = [], 0
    for page in PAGES:
        for number, shown in enumerate(configurations(page.read_text(encoding="utf-8"))):
            file = tmp_path / f"{page.stem}-{number}.toml"
            file.write_text(shown)
            seen += 1
            try:
                options.load({}, {}, file)
            except (Failure, ValueError) as error:
                wrong.append(f"{page.relative_to(ROOT)}: {error}\n{shown}")
    assert wrong == []
    assert seen > 15


# The reference

REFERENCE = ROOT / "docs" / "reference"


def test_the_reference_is_what_the_program_says(tmp_path: Path) -> None:
    """So every option of the configuration and of every command stands in a page. Write it again with
    `onecopy man --markdown docs/reference`."""
    assert program.main(["man", "--markdown", str(tmp_path)]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(path.name for path in REFERENCE.iterdir())
    for path in tmp_path.iterdir():
        assert (REFERENCE / path.name).read_text(encoding="utf-8") == path.read_text(encoding="utf-8"), (
            f"docs/reference/{path.name}: onecopy man --markdown docs/reference")


def test_every_option_stands_in_a_page() -> None:
    """Read from the pages themselves, without what has written them."""
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert [name for name in options.table() if f"`{name}`" not in text] == []
    for node in tree().walk():
        assert f"\n## onecopy {node.name}\n" in text
        part = text.partition(f"\n## onecopy {node.name}\n")[2].partition("\n## ")[0]
        assert [word for action in node.actions for word in action.option_strings if f"`{word}`" not in part] == []
