"""The snapshots of the store as mailboxes of a session, #snapshots/2026-11-20T03:00:00Z/Archive.

Who is granted it (`imap.time_travel`) sees the own mailboxes as they were, for reading, and those that others had
shared and share still. To everybody else the names are those of mailboxes that are not there, as any others. Whose
mailboxes they were goes by the id of the user's INBOX, so nobody sees what belonged to, or was shared with, an earlier
user of the same name; and what the user may not read now is not shown either.
"""

import re
from collections.abc import Callable
from time import gmtime, strftime
from typing import TypeVar
from unicodedata import normalize

import numpy as np
from attrs import evolve, frozen
from numpy.typing import NDArray

from imap.client import Client
from imap.states import Farewell
from imap.view import View
from mboxlist import acl
from mboxlist.entry import MailboxEntry, MailboxId
from mboxlist.names import INBOX, SEPARATOR, MailboxName, NameProblem
from store import offload
from store.delivery import durable
from store.errors import Problem, StoreError
from store.mailboxes import authorization
from store.net.linestates import Clock
from store.partition.partition import snapshot_time
from store.progress import Progress
from store.snapshots.snapshotcopy import bring_back
from store.snapshots.snapshotreader import LINGER, SnapshotReader, readers_of
from store.snapshots.taking import Snapshot
from store.store import Store
from store.tables.state import Mailbox
from store.values import Flag

ROOT = "#snapshots"
PREFIX = ROOT + SEPARATOR
RIGHTS = "lr"               # on every mailbox in a snapshot (RFC 4314 §2.1)

_TIME = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})Z")

T = TypeVar("T")


def is_there(text: str) -> bool:
    """Whether a client's name is in the name space of snapshots."""
    return text == ROOT or text.startswith(PREFIX)


@frozen
class Visit:
    """A user who looks into a snapshot; `inbox` is the user's own as it is now, `was` what the user was called then,
    `groups` are those of now."""

    snapshot: SnapshotReader
    user: str
    inbox: MailboxEntry
    was: str
    groups: tuple[str, ...]

    @property
    def level(self) -> str:
        """The name below which the mailboxes are."""
        return PREFIX + shown(self.snapshot.snapshot)

    def mailboxes(self) -> "list[Seen]":
        """Those that the user may look up now, in order of name, named as the client sees them. For a thread."""
        shared = self.snapshot.shared(self.was, self.groups) if self.was else []
        return [self._named(entry) for entry in (*self.snapshot.mailboxes(self.inbox), *shared) if self._may(entry,
                                                                                                             "l")]

    def mailbox(self, path: str, right: str) -> "Seen":
        """The one of that name then, with the name that the client sees. For a thread.

        Raises StoreError NO_MAILBOX, NO_PERMISSION.
        """
        entry = self._find(path)
        if not self._may(entry, right):
            raise StoreError(Problem.NO_PERMISSION if self._may(entry, "l") else Problem.NO_MAILBOX)
        return self._named(entry)

    def _find(self, path: str) -> MailboxEntry:
        """In NFC, unless there was a mailbox with just the name that was written. Raises StoreError NO_MAILBOX."""
        try:
            names = dict.fromkeys(MailboxName.from_client(self.was, text) for text in (path, normalize("NFC", path)))
        except NameProblem as problem:
            raise StoreError(Problem.NO_MAILBOX) from problem
        for name in names if self.was else ():
            try:
                return self.snapshot.named(name)
            except StoreError as error:
                if error.problem is not Problem.NO_MAILBOX:
                    raise
        raise StoreError(Problem.NO_MAILBOX)

    def _may(self, entry: MailboxEntry, right: str) -> bool:
        """On what is there still the user needs the right now; on what was not the user's own, which must be there
        still, the user had to have it then, too."""
        store, own = self.snapshot.store, entry.name.owner == self.was
        now = store.mailboxes.find_id(MailboxId(-entry.id))
        if not own and right not in acl.rights_of(entry.acl, self.was, self.groups, owner=False):
            return False
        return own if now is None else authorization.may(store, self.user, now, right)

    def _named(self, entry: MailboxEntry) -> "Seen":
        name = MailboxName(self.user, f"{self.level}{SEPARATOR}{entry.name.to_client(self.was)}")
        return Seen(evolve(entry, name=name, special_use=None, acl={}), self._may(entry, "r"),
                    "" if entry.name.owner == self.was else self.was)


@frozen
class Seen:
    """A mailbox of a snapshot as a user sees it: whether it may be read, and the `reader`
    (`SnapshotReader.open_mailbox`)."""

    entry: MailboxEntry
    readable: bool
    reader: str


def shown(snapshot: Snapshot) -> str:
    """The level of a snapshot."""
    return strftime("%Y-%m-%dT%H:%M:%SZ", gmtime(snapshot_time(snapshot.name)))


class SnapshotAccess:
    """What a session knows of snapshots."""

    def __init__(self, session: Client) -> None:
        self._session = session
        self.snapshot: SnapshotReader | None = None           # the one that the selected mailbox is of
        self._shared: MailboxId | None = None   # that mailbox as it is now, if it is not the user's own

    @property
    def granted(self) -> bool:
        """Whether the user may look into snapshots."""
        session = self._session
        listed = session.settings.travellers
        if not listed or not session.user:
            return False
        account = session.store.directory.find(session.user)
        words = acl.identifiers(session.user, account.groups if account is not None else ())
        return acl.lets(listed, words)

    def concerns(self, text: str) -> bool:
        """Whether that name is one in a snapshot, to this user."""
        return is_there(text) and self.granted

    def all(self) -> list[Snapshot]:
        """Those in which the user has mailboxes, the oldest first. For a thread."""
        inbox = self._inbox()
        there = readers_of(self._session.store).there() if inbox is not None else []
        return [each for each in reversed(there) if inbox is not None and each.manifest.moment >= inbox.created]

    def visit(self, snapshot: str, work: Callable[[Visit], T]) -> T:
        """What `work` makes of a snapshot, by the name of its folder. For a thread.

        Raises StoreError NO_MAILBOX, LIMIT, DISK_FULL, UNAVAILABLE, and what `work` raises.
        """
        inbox, snapshot_readers = self._inbox(), readers_of(self._session.store)
        if inbox is None:
            raise StoreError(Problem.NO_MAILBOX)
        account = self._session.store.directory.find(self._session.user)
        with snapshot_readers.used(snapshot) as reader:
            return work(Visit(reader, self._session.user, inbox, reader.user(inbox), account.groups if account else ()))

    async def look(self, text: str, right: str, work: Callable[[SnapshotReader, Seen], T]) -> T:
        """What `work` makes, in a thread, of the mailbox that the client means, if the user may do that with it.

        Raises what `visit` raises, and NO_PERMISSION.
        """
        snapshot, path = _parsed(text)

        def found(visit: Visit) -> T:
            return work(visit.snapshot, visit.mailbox(path, right))

        return await self.run(lambda: self.visit(snapshot, found))

    async def run(self, work: Callable[[], T], progress: Progress | None = None) -> T:
        """The result of work that may have to make a snapshot readable first, and ends its use of it."""
        session = self._session
        try:
            return await session.patiently(offload.run(session.store, "snapshots", work, user=session.user), progress)
        finally:
            _tidy_later(session.store, session.clock)

    async def select(self, text: str) -> View:
        """Open the mailbox that the client means; the snapshot is in use until `leave`. Raises what `look` raises."""
        store = self._session.store

        def work(snapshot: SnapshotReader, seen: Seen) -> tuple[SnapshotReader, Mailbox]:
            mailbox = snapshot.open_mailbox(seen.entry, seen.reader)
            return readers_of(store).use(snapshot.snapshot.name), mailbox

        self.snapshot, mailbox = await self.look(text, "r", work)
        self._shared = MailboxId(-mailbox.entry.id) if mailbox.reader else None
        return View(mailbox, True, Flag(0), keywords=False)

    def leave(self) -> None:
        """No mailbox of a snapshot is selected any more."""
        if self.snapshot is not None:
            snapshot, self.snapshot = self.snapshot, None
            readers_of(self._session.store).give_back(snapshot)
            _tidy_later(self._session.store, self._session.clock)

    def require(self, snapshot: SnapshotReader) -> None:
        """Raises Farewell when the user may not read the selected mailbox any more, or its snapshot is gone."""
        if not self.granted:
            raise Farewell("You may not look into snapshots any more", b"NOPERM")
        if self._shared is not None:
            now = snapshot.store.mailboxes.find_id(self._shared)
            if now is None or not authorization.may(snapshot.store, self._session.user, now, "r"):
                raise Farewell("The selected mailbox is not shared with you any more", b"NOPERM")
        if not snapshot.is_there():
            raise Farewell("The snapshot has been removed", b"NONEXISTENT")

    async def copy(self, source: Mailbox, target: MailboxEntry, uids: NDArray[np.uint32], progress: Progress
                   ) -> list[int]:
        """Copy messages of the selected mailbox into one as it is now. It is on disk when this returns; see
        `snapshotcopy.bring_back`."""
        store, user, snapshot = self._session.store, self._session.user, self.snapshot
        assert snapshot is not None
        new = await offload.run(store, "changes", lambda: bring_back(
            snapshot, source, target, uids, reader=user, progress=progress,
            event_of=user if store.runs_script(target) else ""))
        await durable.flushed(store, target)
        return new

    def _inbox(self) -> MailboxEntry | None:
        return self._session.store.mailboxes.find(MailboxName(self._session.user, INBOX))


def _tidy_later(store: Store, clock: Clock) -> None:
    """Have snapshots that nobody looks into any more closed a while from now."""
    def tidy() -> None:
        offload.start(store, "snapshots", readers_of(store).tidy)
        _tidy_later(store, clock)           # in which nothing is left to do, unless one has been given back meanwhile

    if readers_of(store).claim_tidying():
        clock.callLater(LINGER + 1, tidy)


def _parsed(text: str) -> tuple[str, str]:
    """The snapshot and the path of a name in one. Raises StoreError NO_MAILBOX."""
    level, _, path = text[len(PREFIX):].partition(SEPARATOR)
    found = _TIME.fullmatch(level)
    if found is None or not path:
        raise StoreError(Problem.NO_MAILBOX)
    return "{}{}{}T{}{}{}Z".format(*found.groups()), path
