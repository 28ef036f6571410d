"""What the arguments of commands are called where they are not typed: by the API over HTTP, and by who asks it."""

import argparse
from collections.abc import Iterator

#: What always reads standard input; and what does so where its file is "-". Neither has a `--..._stdin`.
ALWAYS_READING = frozenset({"deliver", "sieve put", "sieve test"})
READING_INPUT = ALWAYS_READING | {"expire set", "uidl import"}
STREAM = "-"


def named(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str, argparse.Action]]:
    """Each argument's name, its flag ("" for one that stands by its place), and what argparse knows of it. The name is
    that of the flag; where that is taken by one that stands by its place, the one that the command itself uses."""
    placed = {action.dest for action in parser._actions if not action.option_strings}
    for action in parser._actions:
        flag = next((each for each in action.option_strings if each.startswith("--")), "")
        name = flag.lstrip("-").replace("-", "_") if flag else action.dest
        yield (action.dest if flag and name in placed else name), flag, action
