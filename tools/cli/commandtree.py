"""The commands as data: what argparse knows of them, for man pages, completion and the test over all commands."""

import argparse
from collections.abc import Iterator

from attrs import frozen

from tools.cli import program


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


def tree() -> Node:
    """All commands, without the options of the configuration."""
    return _read(program.every_parser())


def _read(parser: argparse.ArgumentParser, words: tuple[str, ...] = (), help: str = "") -> Node:
    """What there is from that parser on."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
            below = tuple(_read(made, (*words, name), helps.get(name, "")) for name, made in action.choices.items())
            return Node(words, help, parser, below)
    return Node(words, help, parser, ())
