"""A command line that is printed can be pasted into a shell, whatever stands in it: what is filled in is quoted."""

import ast
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.processes.program import Program
from tools import demo
from tools.cli import registry

FIRST_WORDS = {command.name.split()[0] for command in registry.COMMANDS}
# Filled in, and nothing that could have a space in it.
PLAIN = {"VERSION", "' or '.join(item['repair'])", "item['repair']", "finding['repair']", "finding.repair",
         "arguments.action", "what", "node.name", "words[0]", "host"}


def filled_in() -> Iterator[tuple[str, str]]:
    """What is put into texts behind the name of a command, and where."""
    for path in sorted(path for top in ("store", "tools", "mboxlist", "imap", "pop3", "lmtp")
                       for path in (ROOT / top).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.JoinedStr):
                continue
            before = ""
            for part in node.values:
                if isinstance(part, ast.Constant):
                    before += str(part.value)
                    continue
                _, found, behind = before.rpartition("onecopy ")
                if found and behind.split(" ")[0] in FIRST_WORDS | {""} and not set(behind) & set(",;.()`'\n"):
                    yield str(path.relative_to(ROOT)), ast.unparse(part.value)      # type: ignore[attr-defined]
                before += "X"


def test_what_is_filled_in_is_quoted() -> None:
    found = list(filled_in())
    assert len(found) >= 4
    assert [(path, text) for path, text in found if text not in PLAIN and not text.startswith("shlex.")] == []


def test_the_line_of_the_demo_works_in_a_folder_with_a_space(tmp_path: Path) -> None:
    root = tmp_path / "my mail"
    values = {"root": root, "lmtp.socket": "", "store.default_domain": "example.org"}
    for server in ("imap", "managesieve", "pop3", "lmtp", "http"):
        values |= {f"{server}.address": ("127.0.0.1",), f"{server}.port": 1, f"{server}.tls_port": 2}
    said = demo.instructions(values, {"alice": "pass word$"}, 7)
    line = next(line for line in said.splitlines() if " deliver " in line)
    assert shlex.split(line.partition("|")[2])[1:] == ["deliver", "--root", str(root), "alice"]
    curl = next(line for line in said.splitlines() if "imap://" in line)
    assert shlex.split(curl)[1:3] == ["-u", "alice:pass word$"]


@pytest.mark.parametrize("name", ["Old Mail", "It's"])
def test_the_advice_of_explain_quota(onecopy: Program, name: str) -> None:
    onecopy("mailbox", "create", "alice", name)
    onecopy("quota", "set", f"alice/{name}", "--messages", "1")
    for status in (0, 1):
        onecopy("deliver", "alice", "--mailbox", name, octets=b"Subject: x\r\n\r\nx\r\n", status=status)
    said = onecopy("explain", "quota", "alice", status=1)
    line = next(line for line in said.splitlines() if "give it more" in line)
    typed = shlex.split(line.partition("(onecopy ")[2].rpartition(" --octets SIZE")[0])
    assert typed == ["quota", "set", f"alice/{name}"]
