"""LIST, LSUB and STATUS: RFC 3501 §6.3.8 to §6.3.10; RFC 5258 (extended LIST), RFC 5819 and RFC 8440 (what it can give
besides), RFC 6154 (special use), RFC 7889, RFC 8438 and RFC 9208 (items of STATUS)."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial

import numpy as np

from imap.session import Session
from imap.snapshotnames import PREFIX
from imap.states import Reply
from imap.verbs import snapshots, statusfigures
from imap.verbs.accesscontrol import own_rights
from imap.verbs.listednames import children, for_levels, in_order, joined, matching, parents
from imap.wire import responses
from imap.wire.accesscontrol import format_myrights
from imap.wire.grammar import MAX_NUMBER
from imap.wire.listing import List, ListOption, Lsub, Status, StatusItem
from mboxlist.entry import MailboxEntry
from mboxlist.names import OTHERS, PUBLIC
from store import offload
from store.errors import NotAtOnce, Problem, StoreError
from store.mailboxes import authorization, subscribing, uidskip
from store.mailboxes.uidskip import unstored
from store.tables.state import MailboxState

FEW = 300                   # mailboxes, subscriptions, or letters of patterns, that are gone through without a thread


async def list_mailboxes(session: Session, command: List) -> Reply:
    """List the names that match and are what was asked for; also names above mailboxes that are no mailboxes
    themselves."""
    if not command.extended and command.patterns == ("",):
        root = PREFIX if session.snapshots.concerns(command.reference) else _root(command.reference)
        session.stream.write(responses.listed([b"\\Noselect"], root))
        return Reply("LIST completed")
    if ListOption.STATUS in command.give and StatusItem.HIGHESTMODSEQ in command.status:
        session.enable_condstore()

    if ListOption.STATUS in command.give and StatusItem.UIDNEXT in command.status:
        await _store_skips(session)

    def lines() -> Iterator[Callable[[], bytes]]:
        names = _Names(session, command)
        return (partial(names.line, name) for name in in_order(names.wanted()))

    await _write(session, lines, sum(map(len, command.patterns)))
    await snapshots.list_snapshots(session, command)
    return Reply("LIST completed")


async def _store_skips(session: Session) -> None:
    """UIDNEXT of any mailbox that the user may know of can be shown."""
    if authorization.sees_many(session.store, session.user, FEW):
        found = await offload.run(session.store, "search", lambda: unstored(session.store, _visible(session)),
                                  user=session.user)
    else:
        found = unstored(session.store, _visible(session))
    await uidskip.stored(session.store, found)


async def _write(session: Session, lines: Callable[[], Iterator[Callable[[], bytes]]], letters: int) -> None:
    """Write all these lines. They are made in a thread if the user has many mailboxes, or the patterns many letters:
    sets of all names, and sorting, cannot be done in small pieces. Meanwhile the session does nothing else, so the
    lines may ask it."""
    if letters <= FEW and not authorization.sees_many(session.store, session.user, FEW):
        for line in lines():
            session.stream.write(await session.change(0, line, kind="views"))
            await session.stream.breathe()
        return
    progress = session.progress()
    for piece in await session.patiently(offload.run(
            session.store, "search", lambda: joined((line() for line in lines()), progress), user=session.user),
            progress):
        session.stream.write(piece)
        await session.stream.drain(session.settings.command_time)


class _Names:
    """All names that the user may know of, as one LIST command looks at them (RFC 5258 §3)."""

    def __init__(self, session: Session, command: List) -> None:
        self._session = session
        self._command = command
        self._accepts = matching(command.reference, command.patterns)
        self._entries = {entry.name.to_client(session.user): entry for entry in _visible(session)}
        self._parents = parents(self._entries)
        asked = command.select | command.give
        self._subscribed = frozenset(_subscriptions(session)) if ListOption.SUBSCRIBED in asked else frozenset()
        self._criteria = [option for option in (ListOption.SUBSCRIBED, ListOption.SPECIAL_USE)
                          if option in command.select]
        self._selected = self._select()
        self._recursive = ListOption.RECURSIVEMATCH in command.select
        self._with_selected = parents(self._selected) if self._recursive else set()

    def wanted(self) -> Iterator[str]:
        """The names to be listed."""
        names = self._selected
        if self._recursive:
            # A name says that there is something below it only when that is not listed itself (§3.5).
            names = names | parents(name for name in names if not self._accepts(name))
        return filter(self._accepts, names)

    def _select(self) -> set[str]:
        """The names that meet all selection options, whether or not they match (§3.1)."""
        if ListOption.SUBSCRIBED in self._criteria:
            names = set(self._subscribed)
        else:
            names = {*self._entries, *self._levels()}
        if ListOption.SPECIAL_USE in self._criteria:
            names = set(filter(self._use, names))
        return names

    def _levels(self) -> Iterable[str]:
        """Names that are no mailboxes, but are above some."""
        if not self._command.extended:
            return self._parents
        return filter(matching(self._command.reference, for_levels(self._command, self._command.patterns)),
                      self._parents)

    def line(self, name: str) -> bytes:
        """The LIST response for the name, and those that were asked for with it."""
        session, entry, give = self._session, self._entries.get(name), self._command.give
        selected = name in self._selected
        after = b""
        readable = entry is not None and authorization.may(session.store, session.user, entry, "r")
        if entry is not None and selected:
            if ListOption.STATUS in give and readable:
                try:
                    after += _status(session, entry, self._command.status)
                except NotAtOnce:
                    raise
                except StoreError as error:             # then it is left out (RFC 5819 §2)
                    readable = error.problem is not Problem.NO_MAILBOX
            if ListOption.MYRIGHTS in give:
                after += format_myrights(name, own_rights(session, entry), utf8=session.utf8)
        childinfo = [option.value for option in self._criteria] if name in self._with_selected else []
        attributes = self._attributes(name, entry, readable=readable)
        return responses.listed(attributes, name, childinfo=childinfo, utf8=session.utf8) + after

    def _attributes(self, name: str, entry: MailboxEntry | None, *, readable: bool) -> list[bytes]:
        attributes = []
        if entry is None and self._command.extended:
            attributes.append(b"\\NonExistent")
        elif not readable:
            attributes.append(b"\\Noselect")
        attributes.append(children(name in self._parents))
        if name in self._subscribed:
            attributes.append(b"\\Subscribed")
        if use := self._use(name):
            attributes.append(use.encode("ascii"))
        return attributes

    def _use(self, name: str) -> str | None:
        """The special use of the user's own mailbox of that name. Those of others' mailboxes do not concern the user
        (RFC 6154 §2)."""
        entry = self._entries.get(name)
        return entry.special_use if entry is not None and entry.name.owner == self._session.user else None


async def list_subscriptions(session: Session, command: Lsub) -> Reply:
    r"""The subscribed names that match. With `%`, a name above one that does not match stands for it, \Noselect."""
    if command.patterns == ("",):
        session.stream.write(responses.listed([b"\\Noselect"], _root(command.reference), lsub=True))
        return Reply("LSUB completed")

    def lines() -> Iterator[Callable[[], bytes]]:
        accepts = matching(command.reference, command.patterns)
        names = _subscriptions(session)
        found = set(filter(accepts, names))
        levels = filter(accepts, parents(names)) if "%" in "".join(command.patterns) else ()
        shown = {**dict.fromkeys(levels, (b"\\Noselect",)), **dict.fromkeys(found, ())}
        for name in in_order(shown):
            yield partial(responses.listed, shown[name], name, lsub=True, utf8=session.utf8)

    await _write(session, lines, sum(map(len, command.patterns)))
    return Reply("LSUB completed")


async def status(session: Session, command: Status) -> Reply:
    """The figures of a mailbox, without selecting it."""
    if session.snapshots.concerns(command.mailbox):
        return await snapshots.status(session, command)
    entry = session.entry(command.mailbox, "r")
    if StatusItem.UIDNEXT in command.items:
        await uidskip.stored(session.store, [entry])
    if StatusItem.HIGHESTMODSEQ in command.items:
        session.enable_condstore()
    session.stream.write(await session.change(0, lambda: _status(session, entry, command.items), kind="views"))
    return Reply("STATUS completed")


def _status(session: Session, entry: MailboxEntry, items: Iterable[StatusItem]) -> bytes:
    """The STATUS response. Raises StoreError."""
    state = session.store.status(entry, session.user)
    append_limit = min(session.store.settings.message_limit, MAX_NUMBER)        # RFC 7889 §5: number
    return statusfigures.response(session, entry, state, items, rows=lambda: session.store.open_mailbox(entry).rows,
                                  recent=lambda: _recent(session, entry, state), append_limit=append_limit)


def _recent(session: Session, entry: MailboxEntry, state: MailboxState) -> int:
    """How many messages no session has been told of; in the selected mailbox, how many are recent in this session."""
    if session.view is not None and session.view.mailbox.entry.id == entry.id:
        return session.view.recent_count()
    if state.recent >= state.uidnext:
        return 0
    return int(np.count_nonzero(session.store.open_mailbox(entry).rows["uid"] >= state.recent))


def _visible(session: Session) -> Iterable[MailboxEntry]:
    """The user's own mailboxes, and those of others and the public ones that the user may look up."""
    yield from session.store.names(session.user)
    yield from authorization.visible(session.store, session.user)


def _subscriptions(session: Session) -> list[str]:
    """The names that the user is subscribed to; of others' mailboxes only those that it may look up (RFC 4314 §2.1),
    and names above them."""
    subscribed = subscribing.subscriptions(session.store, session.user)
    if any(map(_is_foreign, subscribed)):
        known = {entry.name.to_client(session.user) for entry in authorization.visible(session.store, session.user)}
        known |= parents(known)
        return [name for name in subscribed if name in known or not _is_foreign(name)]
    return subscribed


def _is_foreign(name: str) -> bool:
    """Whether a client's name means somebody else's mailbox, or a public one."""
    return name.startswith((OTHERS, PUBLIC))


def _root(reference: str) -> str:
    """The name space that the reference is in (§6.3.8: LIST with an empty name)."""
    return next((prefix for prefix in (OTHERS, PUBLIC) if reference.startswith(prefix)), "")
