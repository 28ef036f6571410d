"""Real shells complete our commands."""

import os
import select
import subprocess
from pathlib import Path

import pytest

from tests.support.processes.program import Program
from tools.cli import commandtree, shellscripts
from tools.cli.shellscripts import SHELLS

LIMIT = 180
DRIVER = """
source "$1"
shift
COMP_WORDS=("$@" "")
unset 'COMP_WORDS[$#]'
COMP_CWORD=$(($# - 1))
_shtab_onecopy
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The script of each shell, in one folder."""
    folder = tmp_path_factory.mktemp("completion")
    for shell in SHELLS:
        (folder / shell).write_text(shellscripts.script(shell, commandtree.tree()))
    return folder


def bash(scripts: Path, *words: str, names: str = "") -> list[str]:
    """What bash offers when the cursor is behind the last of these words. `names`: what is in the store."""
    fake = f"onecopy() {{ printf '%s' \"$STORE_NAMES\"; }}\n{DRIVER}"
    done = subprocess.run(["bash", "--norc", "-c", fake, "bash", scripts / "bash", "onecopy", *words],
                          capture_output=True, text=True, timeout=LIMIT, check=True, cwd=scripts,
                          env={"PATH": "/usr/bin:/bin", "STORE_NAMES": names})
    assert done.stderr == ""
    return done.stdout.split("\n")[:-1] if done.stdout != "\n" else []


@pytest.mark.parametrize(("words", "offered"), [
    (["us"], ["user"]),
    (["user", "re"], ["rename", "remove"]),
    (["user", "show", "--j"], ["--json"]),
    (["user", "set", "--status", "in"], ["inactive"]),
    (["connections", "--protocol", ""], ["imap", "pop3", "lmtp", "managesieve", "front", "http",
                                         "verification", "console"]),
    (["config", "reload", "--dry"], ["--dry-run"]),
    (["user", "set", "--password-file", "ba"], ["bash"]),
    (["check", "--root", "zs"], ["zsh"]),
])
def test_bash_offers_commands_options_choices_and_files(scripts: Path, words: list[str], offered: list[str]) -> None:
    assert bash(scripts, *words) == offered


def test_bash_offers_names_from_the_store(scripts: Path) -> None:
    names = "alice\nalbert\nbob\n"
    assert bash(scripts, "user", "show", "al", names=names) == ["alice", "albert"]
    assert bash(scripts, "user", "remove", "--yes", "alice", "b", names=names) == ["bob"]
    assert bash(scripts, "user", "set", "--status", "active", "b", names=names) == ["bob"]


def test_names_of_mailboxes_are_not_commands(scripts: Path) -> None:
    names = "Inside $(touch broken)\nIn`touch broken`\nTwo words\n"
    assert bash(scripts, "mailbox", "info", "alice", "In", names=names) == [
        "Inside\\ \\$\\(touch\\ broken\\)", "In\\`touch\\ broken\\`"]
    assert bash(scripts, "mailbox", "info", "alice", "Tw", names=names) == ["Two\\ words"]
    assert not (scripts / "broken").exists()


def zsh(script: Path, line: str) -> str:
    """What becomes of a line in a terminal at a tab. Names in the store: "alice" and, as mailbox, "Two words"."""
    main, other = os.openpty()
    child = subprocess.Popen(["zsh", "-f", "-i"], stdin=other, stdout=other, stderr=other, cwd=script.parent,
                             start_new_session=True, env={"PATH": "/usr/bin:/bin", "HOME": str(script.parent),
                                                          "TERM": "dumb"})
    os.close(other)
    try:
        commands = (
            "PS1=; unsetopt zle_bracketed_paste; zstyle ':completion:*' list-prompt ''",
            "onecopy() { [[ $2 = mailboxes && $3 = alice ]] && print 'Two words' || print alice }",
            "told() { print -r -- '<<'$BUFFER'>>'; BUFFER='' }; zle -N told; bindkey '^X' told",
            f"source {script}; print -r -- re''ady")
        os.write(main, "".join(f" {command}\r" for command in commands).encode())
        until(main, b"ready")
        os.write(main, line.encode() + b"\t\x18")
        return until(main, b">>").rpartition(b"<<")[2].removesuffix(b">>").decode()
    finally:
        os.close(main)
        child.kill()
        child.wait()


def until(terminal: int, end: bytes) -> bytes:
    """What comes from the terminal up to there."""
    said = b""
    while end not in said:
        assert select.select([terminal], [], [], LIMIT)[0], said
        said += os.read(terminal, 65536)
    return said.partition(end)[0] + end


@pytest.mark.parametrize(("line", "completed"), [
    ("onecopy us", "onecopy user "),
    ("onecopy user set --status ho", "onecopy user set --status hold "),
    ("onecopy user show al", "onecopy user show alice "),
    ("onecopy mailbox info alice Tw", "onecopy mailbox info alice Two\\ words "),
    ("onecopy check --root zs", "onecopy check --root zsh "),
])
def test_zsh_takes_the_script_and_offers_the_same(scripts: Path, line: str, completed: str) -> None:
    assert zsh(scripts / "zsh", line) == completed


def test_fish_takes_the_script_and_offers_the_same(scripts: Path) -> None:
    def offered(line: str) -> list[str]:
        known = "function onecopy; printf '%s\\n' \"Is $argv\"; end"
        done = subprocess.run(["fish", "--no-config", "-c",
                               f"{known}; source {scripts / 'fish'}; complete -C '{line}'"],
                              capture_output=True, text=True, timeout=LIMIT, check=True,
                              env={"PATH": "/usr/bin:/bin", "HOME": str(scripts)})
        assert done.stderr == ""
        return [found.split("\t")[0] for found in done.stdout.splitlines()]

    assert offered("onecopy us") == ["user"]
    assert offered("onecopy user re") == ["remove", "rename"]
    assert offered("onecopy user set --status in") == ["inactive"]
    assert offered("onecopy user show I") == ["Is completion users"]
    assert offered("onecopy mailbox info --root /mail alice I") == ["Is completion mailboxes alice --root /mail"]


def test_names_are_those_of_the_store(onecopy: Program) -> None:
    onecopy("mailbox", "create", "alice", "Two words")
    assert onecopy("completion", "users") == "alice\nbob\n"
    assert onecopy("completion", "mailboxes", "alice").splitlines() == ["INBOX", "Two words"]
    assert onecopy("completion", "partitions") == "primary\n"
    assert onecopy.refused("completion", "mailboxes", status=2) == "whose mailboxes? Name a user"
