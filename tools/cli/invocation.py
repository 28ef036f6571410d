"""The commands of `onecopy`, a module for each group. A module's `add` makes its parsers; a command is a function of an
`Invocation` that returns the exit status."""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from attrs import frozen

from store.errors import StoreError
from store.settings import Settings
from tools.cli.options import Config
from tools.exits import Failure

if TYPE_CHECKING:           # what opens no store loads none
    from store.quota.overview import Overview
    from store.store import Store


@frozen
class Invocation:
    """What was typed: the command's own arguments, and the configuration."""

    arguments: Any
    config: Config

    @contextmanager
    def store(self) -> "Iterator[Store]":
        """The store, open; beside a running server too, whose clients hear of changes. Raises Failure."""
        from tools.cli import storeaccess  # here: numpy and the store take longer to load than all of `quota show`
        with storeaccess.opened(self.config, self.arguments.program) as store:
            yield store

    @contextmanager
    def overview(self) -> "Iterator[Overview]":
        """What is known of users, mailboxes' names and quota; the store is opened only if that cannot be had otherwise.
        Raises StoreError, Failure."""
        from store.quota import overview  # here: the databases' tables are half of what `reconstruct --quota` loads
        found = None if self.config.has_outside_directory else overview.look(
            self.config.root, self.config.settings("store", Settings), self.arguments.program)
        if found is None:
            with self.store() as store:
                yield store
            return
        try:
            yield found
        finally:
            found.close()

    def confirm(self, question: str, *, final: bool = True) -> None:
        """Ask, unless --yes was given; `final`: what is done cannot be undone. Raises Failure for a no, and where
        nobody is there to answer."""
        if self.arguments.yes:
            return
        if sys.stdin is None or not (sys.stdin.isatty() and sys.stderr.isatty()):
            why = "this cannot be undone, and nobody" if final else "nobody"
            raise Failure(f"nothing was changed: {why} is there to be asked; use --yes")
        print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise Failure("nothing was changed", 1)


Command = Callable[[Invocation], int]


@frozen
class Later:
    """A command whose module is loaded when it runs, and not for its help: "module:function". `first` is called before
    that, without arguments: it raises Failure where the module could not be loaded."""

    place: str
    first: str = ""

    def __call__(self, invocation: Invocation) -> int:
        if self.first:
            self.function(self.first)()
        return int(self.function(self.place)(invocation))

    @staticmethod
    def function(place: str) -> Callable[..., Any]:
        """What is at that place."""
        module, _, name = place.partition(":")
        found: Callable[..., Any] = getattr(import_module(module), name)
        return found


class Parsers(Protocol):
    """Makes the parser of a command; it has the options of the configuration."""

    def __call__(self, name: str, command: Command, help: str, *, settings: bool = False) -> argparse.ArgumentParser:
        """A parser for `name` ("serve", "user add"). `settings`: its help lists the options of the configuration."""


def each(items: Sequence[str], work: Callable[[str], None]) -> int:
    """Do `work` for each item; the refusals are printed, and the status is 1 if there were any."""
    status = 0
    for item in items:
        try:
            work(item)
        except StoreError as error:
            print(f"onecopy: {item}: {error.public}", file=sys.stderr)
            status = 1
    return status
