"""LIST, LSUB and STATUS: RFC 3501 §6.3.8 to §6.3.10, RFC 3348 (children), RFC 6154 (special use)."""

from collections.abc import Callable, Iterable

import numpy as np

from imap.session import Session
from imap.states import Refused, Reply
from imap.wire import responses
from imap.wire.listing import List, Lsub, Status, StatusItem
from mboxlist.entry import MailboxEntry
from mboxlist.names import INBOX, OTHERS, PUBLIC, SEPARATOR
from mboxlist.patterns import compile_pattern
from store import rights
from store.mailbox import MailboxState

TURN = 500                  # lines after which others are let in


async def list_mailboxes(session: Session, command: List) -> Reply:
    r"""The mailboxes that match, and the names above them that are no mailboxes (\Noselect)."""
    if not command.pattern:
        session.stream.write(responses.listed([b"\\Noselect"], _root(command.reference)))
        return Reply("LIST completed")
    accepts = _matching(command.reference, command.pattern)
    entries = {entry.name.to_client(session.user): entry for entry in _visible(session)}
    parents = _parents(entries)
    for number, name in enumerate(_in_order({*entries, *parents}), 1):
        entry = entries.get(name)
        use = entry.special_use if entry is not None and entry.name.owner == session.user else None
        if not accepts(name) or command.special_use_only and not use:
            continue
        attributes = [] if entry is not None else [b"\\Noselect"]
        attributes.append(b"\\HasChildren" if name in parents else b"\\HasNoChildren")
        if use:
            attributes.append(use.encode("ascii"))
        session.stream.write(responses.listed(attributes, name))
        if number % TURN == 0:
            await session.stream.drain(session.settings.command_time)
    return Reply("LIST completed")


async def list_subscriptions(session: Session, command: Lsub) -> Reply:
    r"""The subscribed names that match. With `%`, a name above one that does not match stands for it, \Noselect.

    Of what is not the user's own only what it may look up (RFC 4314 §2.1).
    """
    if not command.pattern:
        session.stream.write(responses.listed([b"\\Noselect"], _root(command.reference), lsub=True))
        return Reply("LSUB completed")
    accepts = _matching(command.reference, command.pattern)
    subscribed = session.store.subscriptions(session.user)
    if any(map(_is_foreign, subscribed)):
        known = {entry.name.to_client(session.user) for entry in rights.visible(session.store, session.user)}
        subscribed = [name for name in subscribed if name in known or not _is_foreign(name)]
    shown: dict[str, bool] = {}
    for number, name in enumerate(subscribed, 1):
        if accepts(name):
            shown[name] = True
        elif "%" in command.pattern:
            for parent in _parents([name]):
                if accepts(parent):
                    shown.setdefault(parent, False)
        if number % TURN == 0:
            await session.stream.breathe()
    for name in _in_order(shown):
        session.stream.write(responses.listed([] if shown[name] else [b"\\Noselect"], name, lsub=True))
    return Reply("LSUB completed")


async def status(session: Session, command: Status) -> Reply:
    """The figures of a mailbox, without selecting it."""
    entry = session.entry(command.mailbox, "r")
    state = session.store.status(entry, session.user)
    values = [(item, _figure(session, entry, state, item)) for item in command.items]
    session.stream.write(responses.status(entry.name.to_client(session.user), values))
    return Reply("STATUS completed")


def _figure(session: Session, entry: MailboxEntry, state: MailboxState, item: StatusItem) -> int:
    match item:
        case StatusItem.MESSAGES:
            return state.messages
        case StatusItem.UIDNEXT:
            return state.uidnext
        case StatusItem.UIDVALIDITY:
            return state.uidvalidity
        case StatusItem.UNSEEN:
            return state.unseen
        case StatusItem.RECENT:
            return _recent(session, entry, state)


def _recent(session: Session, entry: MailboxEntry, state: MailboxState) -> int:
    """Those that no session has been told of; in the selected mailbox those that are recent in this session."""
    if session.view is not None and session.view.mailbox.entry.id == entry.id:
        return session.view.recent_count()
    if state.recent >= state.uidnext:
        return 0
    return int(np.count_nonzero(session.store.open_mailbox(entry).rows["uid"] >= state.recent))


def _matching(reference: str, pattern: str) -> Callable[[str], bool]:
    try:
        return compile_pattern(reference + pattern)
    except ValueError as problem:
        raise Refused(str(problem), b"LIMIT") from problem


def _visible(session: Session) -> Iterable[MailboxEntry]:
    """The user's own mailboxes, and those of others and the public ones that the user may look up."""
    yield from session.store.names(session.user)
    yield from rights.visible(session.store, session.user)


def _is_foreign(name: str) -> bool:
    """Whether a client's name is that of somebody else's, or of a public, mailbox."""
    return name.startswith((OTHERS, PUBLIC))


def _parents(names: Iterable[str]) -> set[str]:
    """Every name above one of `names`."""
    found: set[str] = set()
    for name in names:
        while SEPARATOR in name:
            name = name.rpartition(SEPARATOR)[0]
            if name in found:
                break
            found.add(name)
    return found


def _in_order(names: Iterable[str]) -> list[str]:
    """INBOX first, and what is below it."""
    return sorted(names, key=lambda name: (name != INBOX and not name.startswith(INBOX + SEPARATOR), name))


def _root(reference: str) -> str:
    """The name space that the reference is in (§6.3.8: LIST with an empty name)."""
    return next((prefix for prefix in (OTHERS, PUBLIC) if reference.startswith(prefix)), "")
