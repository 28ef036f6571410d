"""A store and its standby in one process, with a connection between them that a test can cut."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from attrs import define, field

from mboxlist.engine.bulk import Load
from mboxlist.names import MailboxName
from store.errors import StoreError
from store.mailboxes import deletion, namespace
from store.mailboxes.copymessages import copy_messages
from store.mailboxes.expunge import remove
from store.mailboxes.flagchanges import change_flags
from store.opening import open_store
from store.standby import promotion, seeding, standbystate
from store.standby.following import Follower, Reseed
from store.standby.source.copysource import Source
from store.standby.source.instep import InStep, Step
from store.standby.sourcepeer import SourcePeer
from store.store import Store
from store.usermove.messageformat import Wire
from store.usermove.peer import Peer
from store.usermove.responder import Session
from store.usermove.targetside import IncomingMoves
from store.values import Flag, FlagAction, Flags
from tests.support.stores.movepair import LIMIT, Plain
from tests.support.stores.stores import SMALL, deliver
from tests.support.stores.whole import everything

INBOX = MailboxName("alice", "INBOX")
HOST = "second.example.org"
ADDRESS = "mail.example.org=127.0.0.1:1"
LOOKS, LOOK = 36_000, 0.005      # until it is in step: 180 s


@define(eq=False)
class Standby:
    """The standby of a store, in that folder. `wrap` may put something around our end of each connection."""

    store: Store
    root: Path
    wrap: Callable[[Wire], Wire] = lambda wire: wire
    group: InStep | None = None         # in synchronous mode: it has the member `host`
    host: str = HOST
    compress: bool = False
    only: tuple[str, ...] = ()          # partitions
    threads: list[threading.Thread] = field(factory=list)

    def answering(self, theirs: socket.socket) -> Callable[[], None]:
        """What is at the other end of a connection, for a thread."""
        answers = Source(self.store, self.host, None if self.group is None else self.group.members[self.host])
        session = Session(Plain(theirs), self.host, IncomingMoves(self.store), answers.actions(),
                          answered=answers.answered)

        def run() -> None:
            try:
                session.run()
            finally:
                answers.close()

        return run

    @contextmanager
    def connected(self) -> Iterator[SourcePeer]:
        ours, theirs = socket.socketpair()
        for end in (ours, theirs):
            end.settimeout(LIMIT)
        thread = threading.Thread(target=self.answering(theirs), daemon=True)
        thread.start()
        source = SourcePeer(Peer(self.store.settings.host, self.wrap(Plain(ours))), compress=self.compress)
        try:
            yield source
        finally:
            source.close()
            thread.join(LIMIT)
            assert not thread.is_alive()

    def create(self, progress: Callable[[str, int, int], None] = lambda what, done, total: None, age: int = 600
               ) -> None:
        """`onecopy standby create`."""
        with self.connected() as source:
            seeding.seed(self.root, seeding.begin(self.root, source, ADDRESS, self.only), source, progress, age)

    @contextmanager
    def following(self) -> Iterator[Follower]:
        """After the first questions."""
        state = standbystate.read(self.root)
        assert state is not None
        with self.connected() as source:
            follower = Follower(self.root, source, state)
            follower.begin()
            try:
                yield follower
            finally:
                follower.close()

    @contextmanager
    def in_step(self, *, finish: bool = True) -> Iterator[Follower]:
        """Follow in a thread, in step when the body begins; unless it is to `finish`, as if it were killed at the end.
        """
        stop = threading.Event()

        def run(follower: Follower) -> None:
            try:
                while not stop.is_set():
                    follower.round(0.2, go_on=True)
                if finish:
                    follower.finish()
            except (StoreError, Reseed):        # the connection was cut, or the logs do not lead on
                follower.source.close()

        assert self.group is not None
        member = self.group.members[self.host]
        with self.following() as follower:
            thread = threading.Thread(target=run, args=(follower,), daemon=True)
            thread.start()
            for _ in range(LOOKS):
                with self.group.lock:           # so all know of it
                    is_in_step = member.step is Step.IN_STEP
                if is_in_step:
                    break
                threading.Event().wait(LOOK)
            try:
                yield follower
            finally:
                stop.set()
                thread.join(LIMIT)

    def follow(self) -> None:
        """Have all there is now."""
        with self.following() as follower:
            follower.round(0)
            follower.finish()


def work(store: Store, number: int) -> None:
    """Some of everything that changes a store."""
    inbox, other = store.entry(INBOX), store.entry(MailboxName.parse("user/bob/INBOX"))
    for each in range(12):
        deliver(store, b"Subject: %d-%d\r\n\r\n%b\r\n" % (number, each, b"y" * 700 * each), str(inbox.name),
                *([str(other.name)] if each % 2 else []), trace=b"Return-Path: <a@example.org>\r\n")
    uids = store.open_mailbox(inbox).rows["uid"].tolist()
    change_flags(store, inbox, uids[-6:], FlagAction.ADD, Flags(Flag.FLAGGED, (f"round{number}",)))
    made = MailboxName("alice", f"Made{number}")
    namespace.create_mailbox(store, made)
    copy_messages(store, inbox, store.entry(made), uids[-5:], remove=False)
    copy_messages(store, inbox, other, uids[-7:-5], remove=True)
    remove(store, inbox, uids[-1:])
    if number % 2:
        namespace.rename_mailbox(store, made, MailboxName("alice", f"Renamed{number}"))
    else:
        deletion.delete_mailbox(store, made)


def promoted(standby: Standby) -> Store:
    promotion.promote(standby.root)
    return open_store(standby.root, SMALL)


def uids(store: Store) -> dict[str, list[int]]:
    """What is in each mailbox, on whichever partition it is."""
    return {str(entry.name): store.open_mailbox(entry).rows["uid"].tolist() for entry in store.mailboxes.all()}


def is_equal(store: Store, other: Store) -> None:
    """Both have all that a rebuild gives back, and message files that are the same octet for octet."""
    assert everything(other) == everything(store)
    one, two = (each.partitions["primary"].files for each in (store, other))
    for digest, record in store.partitions["primary"].refs.all():
        if record.references:
            first, second = one.locate(digest, record.serial), two.locate(digest, record.serial)
            assert first is not None and second is not None
            assert first.read_bytes() == second.read_bytes()


def exchange(store: Store) -> None:
    """Have a table be another file, as a rebuild does: its log knows nothing of it."""
    partition = store.partitions["primary"]
    rows = sorted(partition.uidls._table.scan())
    with Load.begin(partition.env.folder / "uidls.db", lambda stream: iter(rows)) as load:
        load.end()
        partition.env.exchange(partition.uidls._table, load.file)
