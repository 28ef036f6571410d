"""The commands as data: what argparse knows of them, for man pages, completion and the test over all commands."""

import argparse
from collections.abc import Iterator
from pathlib import Path

from attrs import frozen

# What is said of arguments that mean the same everywhere, where a command says nothing of its own.
HELP = {
    "--json": "print JSON, for programs",
    "--yes": "do not ask",
    "USER": "a user id or an address of the user",
    "MAILBOX": "its name, as its owner's client writes it",
    "UID": "the message's UID in the mailbox",
    "NAME": "its name",
    "OLD": "the name that it has",
    "NEW": "the name that it gets",
    "NEW-NAME": "the name that it gets, as its owner's client writes it",
}


@frozen(eq=False)
class Node:
    """A command, or a group of them; `words` is how it is called, () for the program itself."""

    words: tuple[str, ...]
    help: str
    parser: argparse.ArgumentParser
    below: tuple["Node", ...]

    @property
    def name(self) -> str:
        """As it is typed behind the program's name."""
        return " ".join(self.words)

    @property
    def actions(self) -> list[argparse.Action]:
        """Its own arguments: not --help, and not the options of the configuration, which all have."""
        return [action for action in self.parser._actions
                if not isinstance(action, argparse._SubParsersAction | argparse._HelpAction | argparse._VersionAction)
                and action.help != argparse.SUPPRESS and not action.dest.startswith("option:")
                and action.dest != "config"]

    def walk(self) -> Iterator["Node"]:
        """The commands themselves, in order; groups are not among them."""
        if not self.below:
            yield self
        for node in self.below:
            yield from node.walk()


def read(parser: argparse.ArgumentParser, words: tuple[str, ...] = (), help: str = "") -> Node:
    """What there is from that parser on."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
            below = tuple(read(made, (*words, name), helps.get(name, "")) for name, made in action.choices.items())
            return Node(words, help, parser, below)
    return Node(words, help, parser, ())


def explain(parser: argparse.ArgumentParser) -> None:
    """Give the arguments of a command the help that all of their kind have, where they have none."""
    for action in parser._actions:
        if not action.help:
            action.help = next((HELP[name] for name in (*action.option_strings, str(action.metavar)) if name in HELP),
                               None)


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


def takes_file(action: argparse.Action) -> bool:
    """Whether its value is the name of a file or folder."""
    return action.type is Path or placeholder(action) in ("FILE", "DIR", "FOLDER", "PATH", "ARCHIVE")
