"""The commands of `onecopy`, a module for each group. A module's `add` makes its parsers; a command is a function of an
`Invocation` that returns the exit status."""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from attrs import frozen

from store.errors import Problem, StoreError
from store.mailboxes import firstuse
from tools.cli.exits import Failure
from tools.cli.options import Config

if TYPE_CHECKING:           # what opens no store loads none
    from mboxlist.entry import MailboxEntry
    from mboxlist.names import MailboxName
    from store.accounts.base import Account
    from store.accounts.builtin import BuiltinDirectory
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
        from store.net.notify import NewsSocket
        from tools.cli.storeaccess import open_configured
        store = open_configured(self.config, self.arguments.program)
        try:
            NewsSocket(store.root, store.news)
            yield store
        finally:
            store.close()

    @contextmanager
    def overview(self) -> "Iterator[Overview]":
        """What is known of users, mailboxes' names and quota; the store is opened only if that cannot be had otherwise.
        Raises StoreError, Failure."""
        from store.quota.overview import look
        from store.settings import Settings
        found = None if self.config.has_outside_directory else look(
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


def directory(store: "Overview") -> "BuiltinDirectory":
    """The directory, if users can be changed in it. Raises Failure."""
    from store.accounts.builtin import BuiltinDirectory
    if not isinstance(store.directory, BuiltinDirectory):
        raise Failure("the users of this store are kept in an outside directory")
    return store.directory


def account(store: "Overview", address: str) -> "Account":
    """The account of a user id or address; an outside directory is asked, if it answers.

    Raises StoreError NO_USER, UNAVAILABLE.
    """
    found = store.directory.look_up(address)
    if store.directory.remote:
        try:
            found = store.directory.fetch(address) or found     # of who is gone there the mail may be here still
        except StoreError:
            if found is None:
                raise
    if found is None:
        raise StoreError(Problem.NO_USER, f"There is no user {address}")
    return found


def owner(store: "Overview", address: str) -> str:
    """The user id of a user id or address; "" for "public/", which stands for the owner of public mailboxes.

    Raises StoreError NO_USER.
    """
    from mboxlist.names import PUBLIC
    return "" if address == PUBLIC else account(store, address).user


def mailbox_name(owner: str, text: str) -> "MailboxName":
    """A mailbox name as the owner's client writes it; a public one also without "public/". Raises Failure."""
    from mboxlist.names import MailboxName, NameProblem
    try:
        return MailboxName.from_client(owner, text)
    except NameProblem as error:
        raise Failure(f"{text}: {error}") from None


def mailbox(store: "Store", address: str, text: str) -> "MailboxEntry":
    """A user's or a public mailbox; INBOX is made when first asked for. Raises StoreError NO_USER, NO_MAILBOX, Failure.
    """
    from mboxlist.names import PUBLIC
    user = owner(store, address)
    name = mailbox_name(user, text)
    if name.is_inbox() and name.owner == user:
        return firstuse.inbox(store, account(store, user))
    try:
        return store.entry(name)
    except StoreError as error:
        if error.problem is Problem.NO_MAILBOX:
            raise StoreError(Problem.NO_MAILBOX, f"There is no mailbox {text} of {user or PUBLIC}") from None
        raise


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
