"""The store that the operations work on, its messages, and the ways of a server to it."""

from collections.abc import Callable
from pathlib import Path

from attrs import evolve

from mboxlist.entry import MailboxEntry
from mboxlist.names import MailboxName
from store import offload
from store.check.wholecheck import check
from store.delivery import durable
from store.delivery.commit import Target
from store.errors import StoreError
from store.mailboxes import firstuse, namespace
from store.mailboxes.expunge import expunge
from store.mailboxes.flagchanges import change_flags
from store.opening import open_store
from store.settings import Settings
from store.store import Store
from store.values import Flag, FlagAction, Flags, InternalDate
from tests.support.stores import messages
from tests.support.stores.stores import HASH, SMALL

SETTINGS = evolve(SMALL, database_locks=2000)
USERS = ("alice", "bob")
TRACE = b"Return-Path: <sender@example.org>\r\nReceived: from relay.example.org by here\r\n"
WHEN = InternalDate(1_700_000_000, 60)
LATER = 8 * 86400               # seconds: past the purge delay

OLD = [messages.make(1, number, 1024 + 100 * number) for number in range(6)]
NEW = [messages.make(2, number, 1500 + 100 * number) for number in range(4)]
BIG = messages.make(3, 0, 300_000)
PROBES = [messages.make(4, 0, 1024), messages.make(4, 1, 1033)]
CONTENTS = [*OLD, *NEW, BIG, *PROBES]

ALICE, BOB = MailboxName("alice", "INBOX"), MailboxName("bob", "INBOX")
ARCHIVE, WORK = MailboxName("alice", "Archive"), MailboxName("alice", "Work")

Answered = Callable[[], None]


class Place:
    """A store's folder, and the store while it is open."""

    def __init__(self, root: Path, settings: Settings = SETTINGS) -> None:
        self.root = root
        self.settings = settings
        self.broken = False             # a database said that it needs recovery
        self._store: Store | None = None

    @property
    def store(self) -> Store:
        """The open store."""
        assert self._store is not None
        return self._store

    def open(self) -> Store:
        """Open it."""
        self._store = open_store(self.root, self.settings, broken=self._on_broken)
        return self._store

    def close(self) -> None:
        """Close it."""
        store, self._store = self.store, None
        store.close()

    def entry(self, name: MailboxName) -> MailboxEntry:
        """The mailbox of that name."""
        return self.store.entry(name)

    def deliver(self, body: bytes, *names: MailboxName, trace: bytes = b"", flags: Flags = Flags(), header: bytes = b""
                ) -> None:
        """Deliver to all of these mailboxes. Raises StoreError when any of them refuses."""
        deliver(self.store, body, *names, trace=trace, flags=flags, header=header)

    def flushed(self, name: MailboxName) -> None:
        """What a server waits for before it says that a change was made."""
        offload.now(durable.flushed(self.store, self.entry(name)))

    def uids(self, name: MailboxName) -> list[int]:
        """The UIDs in a mailbox."""
        uids: list[int] = self.store.open_mailbox(self.entry(name)).rows["uid"].tolist()
        return uids

    def _on_broken(self) -> None:
        self.broken = True


def deliver(store: Store, body: bytes, *names: MailboxName, trace: bytes = b"", flags: Flags = Flags(),
            ignore_quota: bool = False, header: bytes = b"") -> None:
    """Deliver to all of these mailboxes, as the servers do; in `header` {} stands for the name of each. Raises
    StoreError when any of them refuses."""
    entries = [store.entry(name) for name in names]
    staged = store.stage(entries[0], trace)
    try:
        for at in range(0, len(body), 40_000):
            if staged.write(body[at:at + 40_000]):
                offload.now(durable.spill(store, staged))
    except BaseException:
        staged.abort()
        raise
    targets = [Target(entry, flags, ignore_quota, header=header.replace(b"{}", str(entry.name).encode()))
               for entry in entries]
    for outcome in offload.now(durable.deliver(store, staged, targets, WHEN)):
        if isinstance(outcome, StoreError):
            raise outcome


def fill(store: Store) -> None:
    """Users, mailboxes and messages: some in several mailboxes, flagged, expunged; all of it on disk."""
    for user in USERS:
        firstuse.inbox(store, store.directory.add(user, HASH))        # type: ignore[attr-defined]
    for path in ("Archive", "Archive/2025", "Archive/2026", "Archive/2026/January", "Work"):
        namespace.create_mailbox(store, MailboxName("alice", path))
    deliver(store, OLD[0], ALICE, BOB, ARCHIVE, trace=TRACE, header=b"Delivered-To: {}\r\n")
    deliver(store, OLD[1], ALICE, flags=Flags(Flag.SEEN, ("todo", "$Forwarded")))
    deliver(store, OLD[2], ALICE, trace=TRACE)
    deliver(store, OLD[3], WORK, ALICE, trace=TRACE)
    deliver(store, OLD[4], MailboxName("alice", "Archive/2026/January"))
    deliver(store, OLD[5], ALICE, BOB, trace=TRACE)
    change_flags(store, store.entry(ALICE), [3, 5], FlagAction.ADD, Flags(Flag.DELETED))
    expunge(store, store.entry(ALICE), [5])
    assert check(store) == []
