"""The commands of `onecopy`, a module for each group. A module's `add` makes its parsers; a command is a function of an
`Invocation` that returns the exit status."""

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from attrs import frozen

from store.errors import StoreError
from store.settings import Settings
from tools import storeowner
from tools.cli.later import Later
from tools.cli.options import Config
from tools.exits import NO_ROOM, Failure, in_full

if TYPE_CHECKING:           # what opens no store loads none
    from store.operations.operationrecord import Begun
    from store.quota.overview import Overview
    from store.store import Store

T = TypeVar("T")
AGAIN = "_ONECOPY_AGAIN"    # in the environment of a command that the server does again

_opened = Later("tools.cli.storeaccess:opened")     # numpy and the store take longer to load than all of `quota show`
_begun = Later("store.operations.operationrecord:begun")
_Begun = Later("store.operations.operationrecord:Begun")
_is_waiting = Later("store.operations.operationrecord:is_waiting")
_finishing = Later("store.finishing.cutoperations:Finishing")             # loads all that it can finish
_look = Later("store.quota.overview:look")          # the databases' tables are half of what `reconstruct --quota` loads


@frozen
class Invocation:
    """What was typed: the command's own arguments, the configuration, and the words themselves."""

    arguments: Any
    config: Config
    words: tuple[str, ...] = ()

    @contextmanager
    def repeatable(self, kind: str, holds: Sequence[str] | None = None, *, waits: bool = True) -> "Iterator[Begun]":
        """The command is on record while the block lasts, to be done again if it is cut off, or if it `waits` for room:
        for one of which the second time does only what is left. None of its kind that `holds` the same (None:
        everything) is under way meanwhile. Raises StoreError, Failure."""
        if os.environ.pop(AGAIN, ""):   # the server does it again, and its record's lock is this process's
            again: Begun = _Begun(stops=True, waits=True)
            try:
                yield again
            except StoreError as error:
                again.refused(error)
                if not again.half_way:
                    raise
            if again.half_way:
                raise Failure("there is no room", NO_ROOM)
            return
        with _begun(self.config.root, kind, self.arguments.program, {
                "words": list(self.words), "folder": os.getcwd()}, stops=True, waits=waits, holds=holds) as record:
            yield record

    def act_as_owner(self, *, reads_as_root: bool = False) -> None:
        """Have this process act as the owner of the store, where root runs it. Raises Failure."""
        if os.geteuid() == storeowner.ROOT and self.config.values["root"]:
            storeowner.act(self.config.root, str(self.config.values["workers.user"]), reads_as_root=reads_as_root)

    @contextmanager
    def store(self) -> "Iterator[Store]":
        """The store, open; beside a running server too, whose clients hear of changes. Nobody has it open as root, also
        who has stayed root so far: the server could not look at such a process. Raises Failure."""
        self.act_as_owner()
        with _opened(self.config, self.arguments.program) as store:
            yield store

    @contextmanager
    def begun(self, store: "Store", kind: str, arguments: dict[str, Any], *, holds: Sequence[str], stops: bool = False,
              waits: bool = False) -> "Iterator[Begun]":
        """`Store.begun`, once what was cut off before and holds the same is finished. Raises StoreError."""
        self.finish_first(store, kind, holds)
        with store.begun(kind, arguments, stops=stops, waits=waits, holds=holds) as operation:
            yield operation

    def finish_first(self, store: "Store", kind: str, holds: Sequence[str]) -> None:
        """Finish what was cut off and holds the same: for a command that is on no record. Raises StoreError."""
        if _is_waiting(store.root):
            _finishing().finish_first(store, kind, holds)

    @contextmanager
    def overview(self) -> "Iterator[Overview]":
        """Users, mailboxes' names and quota; the store is opened only if that cannot be had otherwise.
        Raises StoreError, Failure."""
        found = None if self.config.has_outside_directory else _look(
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


class Parsers(Protocol):
    """Makes the parser of a command; it has the options of the configuration."""

    def __call__(self, name: str, command: Command, help: str, *, settings: bool = False) -> argparse.ArgumentParser:
        """A parser for `name` ("serve", "user add"). `settings`: its help lists the options of the configuration."""


def each(items: Iterable[str], work: Callable[[str], None], operation: "Begun | None" = None) -> int:
    """Do `work` for each item; the refusals are printed, and the status is 1 if there were any. `operation`, of which
    the items are parts, learns of them, and it is said what becomes of a part that was refused for now."""
    status, left = 0, ""
    for item in items:
        try:
            work(item)
        except StoreError as error:
            print(f"onecopy: {item}: {in_full(error)}", file=sys.stderr)
            status, left = 1, operation.refused(error) if operation is not None else left
    if left:
        print(f"onecopy: {left}", file=sys.stderr)
    return status


def typed(read: Callable[[str], T]) -> Callable[[str], T]:
    """The type of an argument, for argparse: what `read` makes of it, or the complaint of its ValueError."""
    def value(text: str) -> T:
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{text!r}: {error}") from None
    return value


def number(text: str) -> int:
    """How many; for `typed`."""
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise ValueError("not a number")
    return int(text)
