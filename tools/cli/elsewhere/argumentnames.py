"""What the arguments of commands are called where they are not typed: by the API over HTTP, and by who asks it."""

import argparse
from collections.abc import Iterator, Mapping
from typing import Any

STREAM = "-"
#: Files that a command reads once and whole, as its input: the program reads them where it is typed (`--server`) and
#: sends their octets as standard input. By command and argument: what stands in its place there, and its value. Every
#: other file that a command names is where the command is carried out.
SENT: Mapping[tuple[str, str], tuple[str, Any]] = {
    **dict.fromkeys((("expire set", "file"), ("sieve put", "file"), ("uidl import", "file"), ("user add", "file")),
                    ("file", STREAM)),
    **dict.fromkeys(((name, "password_file") for name in ("directory test", "user add", "user hash", "user set")),
                    ("password_stdin", True))}
#: What may read standard input without a `--..._stdin`.
READING_INPUT = frozenset({"deliver", "sieve check", "sieve test", *(name for name, _ in SENT)})


def reads_input(name: str, given: Mapping[str, Any]) -> bool:
    """Whether a command reads standard input, with these arguments."""
    if any(each.endswith("_stdin") for each in given) or given.get("file") == STREAM:
        return True
    return (name == "deliver" or name == "sieve put" and "file" not in given
            or name == "sieve test" and "uid" not in given
            or name == "sieve check" and not given.keys() & {"users", "all"})


def named(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str, argparse.Action]]:
    """Each argument's name, its flag ("" for one that stands by its place), and what argparse knows of it. The name is
    that of the flag; where that is taken by one that stands by its place, the one that the command itself uses."""
    placed = {action.dest for action in parser._actions if not action.option_strings}
    for action in parser._actions:
        flag = next((each for each in action.option_strings if each.startswith("--")), "")
        name = flag.lstrip("-").replace("-", "_") if flag else action.dest
        yield (action.dest if flag and name in placed else name), flag, action
