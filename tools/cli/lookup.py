"""What the words of a command name in the store: accounts and mailboxes."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from mboxlist.names import PUBLIC, MailboxName, NameProblem
from store.errors import Problem, StoreError
from store.values import Flag, Flags, InternalDate
from tools.cli.later import Later
from tools.exits import Failure

if TYPE_CHECKING:           # what opens no store loads none
    from mboxlist.entry import MailboxEntry
    from store.accounts.base import Account
    from store.quota.overview import Overview
    from store.store import Store

_FLAGS = {str(flag.name).lower(): flag for flag in Flag}
_inbox = Later("store.mailboxes.firstuse:inbox")        # what only looks at quota or names loads no store


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
    return "" if address == PUBLIC else account(store, address).user


def mailbox_name(owner: str, text: str) -> MailboxName:
    """A mailbox name as the owner's client writes it; a public one also without "public/". Raises Failure."""
    try:
        return MailboxName.from_client(owner, text)
    except NameProblem as error:
        raise Failure(f"{text}: {error}") from None


def flags_of(words: Sequence[str]) -> Flags:
    r"""Flags as a person types them: seen or \\Seen, and keywords. Raises Failure."""
    system, keywords = Flag(0), []
    for word in words:
        if (found := _FLAGS.get(word.lower().lstrip("\\"))) is not None:
            system |= found
        elif word.startswith("\\") or not word.isascii() or not word.isprintable() or set(word) & set(' (){%*"]\\'):
            raise Failure(f"{word}: there is no such flag; keywords have letters, digits, and $, - and _")
        else:
            keywords.append(word)
    return Flags(system, tuple(keywords))


def moment(text: str) -> InternalDate:
    """A day, or a time, of ISO 8601; without a zone it is local time. Raises ValueError."""
    try:
        found = datetime.fromisoformat(text).astimezone()
        return InternalDate(int(found.timestamp()), int((found.utcoffset() or timedelta()).total_seconds()) // 60)
    except (ValueError, OverflowError):
        raise ValueError("not a time (such as 2026-01-31, or 2026-01-31T12:00)") from None


def mailbox(store: "Store", address: str, text: str) -> "MailboxEntry":
    """A user's or a public mailbox; INBOX is made when first asked for. Raises StoreError NO_USER, NO_MAILBOX, Failure.
    """
    user = owner(store, address)
    name = mailbox_name(user, text)
    if name.is_inbox() and name.owner == user:
        inbox: MailboxEntry = _inbox(store, account(store, user))
        return inbox
    try:
        return store.entry(name)
    except StoreError as error:
        if error.problem is Problem.NO_MAILBOX:
            raise StoreError(Problem.NO_MAILBOX, f"There is no mailbox {text} of {user or PUBLIC}") from None
        raise
