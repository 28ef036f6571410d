"""The table of commands says of each what the command's own module says, and only that module is loaded."""

import argparse
import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from store.opening import make_empty_store, open_store
from tools.cli import commandtree, registry
from tools.cli.invocation import Command
from tools.cli.later import Later

COMMANDS = Path(registry.__file__).parents[1] / "commands"
MODULES = sorted(".".join(path.relative_to(COMMANDS).with_suffix("").parts) for path in COMMANDS.rglob("*.py"))


class Listing:
    """Keeps what a module says of its commands."""

    def __init__(self) -> None:
        self.found: dict[str, str] = {}

    def __call__(self, name: str, command: Command, help: str, *, settings: bool = False) -> argparse.ArgumentParser:
        self.found[name] = help
        return argparse.ArgumentParser()


def test_the_table_is_what_the_modules_say() -> None:
    told = {}
    for module in MODULES:
        add = getattr(import_module(f"tools.commands.{module}"), "add", None)
        if add is not None:
            listing = Listing()
            add(listing)
            told |= {name: (module, "" if " " in name else help) for name, help in listing.found.items()}
    assert {command.name: (command.module, command.help) for command in registry.COMMANDS} == told


def test_each_group_says_what_it_is_for() -> None:
    assert set(registry.GROUPS) == {command.group for command in registry.COMMANDS} - {""}


@pytest.mark.parametrize(("words", "modules"), [
    (["quota", "show", "alice"], ["quota"]), (["quota", "report"], ["quota_report"]), (["check"], ["check"]),
    (["quota"], ["quota", "quota_warn", "quota_sharing", "quota_report"]),
    (["quota", "--help"], ["quota", "quota_warn", "quota_sharing", "quota_report"]),
    (["backup", "verify"], ["backup"]), ([], []), (["--help"], []), (["nothing"], []), (["", ""], []),
])
def test_only_what_the_words_name_is_loaded(words: list[str], modules: list[str]) -> None:
    assert registry.modules(words) == modules


# What no small command may load: each takes as long as all that `quota show` has to do.
HEAVY = {"twisted", "zope", "rich", "ldap3", "cryptography", "OpenSSL", "jwt", "zstandard", "jinja2", "pyspark",
         "pyarrow", "asyncio", "ssl", "importlib.metadata"}
LIST = """
import sys
before = set(sys.modules)
from tools.cli import program
assert program.main(sys.argv[1:]) == 0
import json
print(json.dumps(sorted(set(sys.modules) - before)), file=sys.stderr)
"""


def loaded(*words: str) -> set[str]:
    """The modules that a command loads."""
    root = Path(registry.__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", LIST, *words], capture_output=True, text=True, check=True, cwd=root,
                          env={**os.environ, "PYTHONPATH": str(root)})
    return set(json.loads(done.stderr))


def test_help_loads_no_command() -> None:
    found = loaded("--help")
    assert not found & {"numpy", *HEAVY} and not any(name.startswith("tools.commands") for name in found)


@pytest.mark.parametrize("words", [
    ["quota", "show", "--json"], ["reconstruct", "--quota"], ["mailbox", "list", "--json"]])
def test_small_commands_load_little(words: list[str], tmp_path: Path) -> None:
    make_empty_store(tmp_path / "mail")
    open_store(tmp_path / "mail").close()
    found = loaded(*words, "--root", str(tmp_path / "mail"))
    assert not found & HEAVY
    assert sum(name.startswith("tools.commands.") for name in found) <= 2           # its own, and what belongs to it
    assert not any(name.startswith(("imap", "pop3", "lmtp", "tools.front")) for name in found)


def test_what_is_loaded_later_is_there() -> None:
    later = [command for node in commandtree.tree().walk()
             if isinstance(command := node.parser.get_default("command"), Later)]
    assert len(later) > 5
    assert all(callable(command.function(place)) for command in later for place in (command.place, command.first)
               if place)
