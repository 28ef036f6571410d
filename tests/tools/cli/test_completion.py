"""Real shells complete our commands."""

import subprocess
from pathlib import Path

import pytest

from tests.support.processes.program import Program
from tools.cli import completion, program
from tools.cli.completion import SHELLS

LIMIT = 60
DRIVER = """
source "$1"
shift
COMP_WORDS=("$@" "")
unset 'COMP_WORDS[$#]'
COMP_CWORD=$(($# - 1))
_onecopy
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The script of each shell, in one folder."""
    folder = tmp_path_factory.mktemp("completion")
    for shell in SHELLS:
        (folder / shell).write_text(completion.script(shell, program.tree()))
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
    (["user", "re"], ["rename", "remove", "restore"]),
    (["user", "show", "--j"], ["--json"]),
    (["user", "set", "--status", "in"], ["inactive"]),
    (["connections", "--protocol", ""], ["imap", "pop3", "lmtp", "front", "verification"]),
    (["config", "reload", "--dry"], ["--dry-run"]),
    (["user", "set", "--password-file", "ba"], ["bash"]),
    (["check", "--root", "zs"], ["zsh"]),
    (["no-such", ""], []),
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


def test_zsh_takes_the_script_and_offers_the_same(scripts: Path) -> None:
    text = f'source "{scripts / "zsh"}"\nemulate ksh\nset -- onecopy user set --status ""\n' + DRIVER.partition(
        "shift\n")[2]
    done = subprocess.run(["zsh", "-f", "-c", text], capture_output=True, text=True, timeout=LIMIT, check=True,
                          env={"PATH": "/usr/bin:/bin", "HOME": str(scripts)})
    assert set(done.stdout.split()) >= {"active", "inactive", "hold"}


def test_fish_takes_the_script_and_offers_the_same(scripts: Path) -> None:
    def offered(line: str) -> list[str]:
        done = subprocess.run(["fish", "--no-config", "-c", f"source {scripts / 'fish'}; complete -C '{line}'"],
                              capture_output=True, text=True, timeout=LIMIT, check=True,
                              env={"PATH": "/usr/bin:/bin", "HOME": str(scripts)})
        assert done.stderr == ""
        return [found.split("\t")[0] for found in done.stdout.splitlines()]

    assert offered("onecopy us") == ["user"]
    assert offered("onecopy user re") == ["remove", "rename", "restore"]
    assert offered("onecopy user set --status in") == ["inactive"]


def test_names_are_those_of_the_store(onecopy: Program) -> None:
    onecopy("mailbox", "create", "alice", "Two words")
    assert onecopy("completion", "users") == "alice\nbob\n"
    assert onecopy("completion", "mailboxes", "alice").splitlines() == ["INBOX", "Two words"]
    assert onecopy("completion", "partitions") == "primary\n"
    assert onecopy.refused("completion", "mailboxes", status=2) == "whose mailboxes? Name a user"
