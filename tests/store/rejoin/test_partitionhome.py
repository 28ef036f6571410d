"""A partition that only the machine that comes back has is brought to the promoted one: whole, or not at all."""

import os
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from attrs import define, evolve

from mboxlist.names import MailboxName
from store.check.wholecheck import check
from store.errors import Problem, StoreError
from store.expiry.rulebook import set_file
from store.mailboxes import deletion, firstuse, namespace
from store.mailboxes.expunge import remove
from store.mailboxes.flagchanges import change_flags
from store.opening import open_store
from store.partition import marks
from store.partitions import volumes
from store.partitions.partitionmove import _Move, move_owner
from store.rejoin import returning, sendinghome, sendingpartition
from store.rejoin.sendinghome import HomePeer, SendingHome
from store.rejoin.takinghome import TakingHome
from store.standby import promotion, standbystate, succession
from store.standby.source.copysource import Source
from store.standby.sourcepeer import SourcePeer
from store.store import Store
from store.usermove.peer import Peer
from store.usermove.responder import Session
from store.usermove.targetside import IncomingMoves
from store.values import Flag, FlagAction, Flags
from tests.support.stores.movepair import LIMIT, ONE, Plain
from tests.support.stores.standbypair import ADDRESS, Standby
from tests.support.stores.stores import HASH, SMALL, deliver, make_store, reopen

ALICE, BOB, OLD = MailboxName("alice", "INBOX"), MailboxName("bob", "INBOX"), MailboxName("alice", "Old")
GONE = MailboxName("alice", "Gone")
SHARED = b"Subject: shared\r\n\r\n" + b"s" * 5000

pytestmark = [pytest.mark.long, pytest.mark.few_folders]


def silent(what: str, done: int, total: int) -> None:
    """Nobody watches."""


@define(eq=False)
class Pair:
    """The machine that comes back, and the one that was promoted, which has no partition `archive`."""

    old: Store
    new: Store

    @contextmanager
    def connected(self) -> Iterator[Peer]:
        ours, theirs = socket.socketpair()
        for end in (ours, theirs):
            end.settimeout(LIMIT)
        wire = Plain(theirs)
        session = Session(wire, ONE, IncomingMoves(self.new), {
            **Source(self.new, ONE).actions(), **TakingHome(self.new, wire, ONE).actions()}, moves=False)
        thread = threading.Thread(target=session.run, daemon=True)
        thread.start()
        try:
            yield Peer("two.example.org", Plain(ours))
        finally:
            ours.close()
            thread.join(LIMIT)
            assert not thread.is_alive()

    def bring(self, progress: Callable[[str, int, int], None] = silent) -> None:
        """The partition alone."""
        with self.connected() as peer, self.old.alone():
            sendingpartition.send(self.old, HomePeer(peer), "archive", 0, progress)

    def bring_the_rest(self, come_home: tuple[str, ...] = ("archive",)) -> SendingHome:
        with self.connected() as peer:
            home, ours = HomePeer(peer), succession.read(self.old.root).lineage
            promoted = home.promoted(ours)
            assert promoted.home == come_home and not promoted.absent
            without = sendingpartition.come_with_it(self.old, home, set(promoted.home))
            found = sendinghome.find(self.old, home, promoted, ours, without)
            made = SendingHome(self.old, home, silent)
            made.bring(found.mail)
        return made

    def is_absent(self) -> None:
        """Nothing has changed for who uses the promoted machine."""
        assert list(marks.absent(self.new.root)) == ["archive"] and "archive" not in self.new.partitions
        finding, = check(self.new)
        assert finding.where == "partition archive"


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    old = make_store(tmp_path / "one", ("alice",))
    volumes.add(old, "archive")
    firstuse.inbox(old, old.directory.add("bob", HASH, partition="archive"))
    namespace.insert_mailbox(old, OLD, "archive", None)
    namespace.insert_mailbox(old, GONE, "archive", None)
    deletion.delete_mailbox(old, GONE)
    deliver(old, SHARED, str(ALICE))
    for number in range(4):
        deliver(old, b"Subject: %d\r\n\r\n" % number + b"x" * 70_000 * number, str(BOB), str(OLD))
    standby = Standby(old, tmp_path / "two", only=("primary",))
    standby.create()
    deliver(old, SHARED, str(BOB), str(OLD), trace=b"Return-Path: <a@example.org>\r\n")
    change_flags(old, old.entry(BOB), [2], FlagAction.ADD, Flags(Flag.FLAGGED, ("$Later",)))
    remove(old, old.entry(BOB), [1])
    promotion.promote(standby.root)
    made = Pair(old, open_store(standby.root, SMALL))
    yield made
    for each in (made.old, made.new):
        assert check(each) == []
        each.close()


def rows(store: Store, name: MailboxName) -> list[tuple[int, int, bytes, bytes]]:
    """UID, flags, digest and octets of each message."""
    view, found = store.open_mailbox(store.entry(name)), []
    for row in view.rows:
        with store.open_message(view.entry, row) as file:
            found.append((int(row["uid"]), int(row["flags"]), row["digest"].tobytes(), b"".join(file.pieces())))
    return found


def test_it_comes_home_whole(pair: Pair) -> None:
    """With its rules of expiry; those of a domain are there, and not replaced by older ones."""
    for name in ("partitions/archive/expire.rules", "expire/example.com.rules"):
        set_file(pair.old.root / name, "mail.folderpattern: *\nmail.savedays: 30\n")
    pair.is_absent()
    pair.bring()
    assert marks.absent(pair.new.root) == {} and sorted(os.listdir(pair.new.root / "partitions/archive")) == sorted(
        (*volumes.PARTS, "expire.rules"))
    assert pair.new.root.joinpath("partitions/archive/expire.rules").read_text().endswith("savedays: 30\n")
    assert not list(pair.new.root.glob("expire/*"))
    for name in (BOB, OLD):
        assert rows(pair.new, name) == rows(pair.old, name) and pair.new.entry(name) == pair.old.entry(name)
        outcome, = deliver(pair.new, b"Subject: new\r\n\r\n", str(name))
        assert outcome.uid > max(row[0] for row in rows(pair.old, name))        # type: ignore[union-attr]
    assert pair.bring_the_rest().brought == 0
    with pytest.raises(StoreError, match="not absent"):
        pair.bring()
    pair.new.close()
    reopen(pair.new)
    assert len(rows(pair.new, BOB)) == 5


def test_it_goes_on_where_it_was_cut_off(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a connection that ends at some question; and at the very end, when all is in its place, and what came with it
    is being removed."""
    asked: list[int] = []

    def cut(at: int) -> Callable[[str, int, int], None]:
        def progress(what: str, done: int, total: int) -> None:
            asked.append(done)
            if len(asked) == at:
                raise StoreError(Problem.UNAVAILABLE, "cut")
        return progress

    whole: list[int] = []
    for at in (2, 5, 9):
        asked.clear()
        with pytest.raises(StoreError, match="cut"):
            pair.bring(cut(at))
        pair.is_absent()
    with monkeypatch.context() as planted:
        planted.setattr(shutil, "rmtree", cut_off)
        with pytest.raises(StoreError, match="planted"):
            pair.bring(lambda what, done, total: whole.append(done))
    assert (pair.new.root / "partitions/archive/index").is_dir()
    pair.is_absent()
    asked.clear()
    pair.bring(lambda what, done, total: asked.append(done))
    assert rows(pair.new, BOB) == rows(pair.old, BOB) and rows(pair.new, OLD) == rows(pair.old, OLD)


def cut_off(path: Path, *, ignore_errors: bool = False, remove: Callable[..., None] = shutil.rmtree) -> None:
    """Remove the first file of a standby's folder, and what is no such folder."""
    if (path / marks.STANDBY).exists():
        (path / marks.STANDBY).unlink()
        raise StoreError(Problem.UNAVAILABLE, "planted")
    remove(path, ignore_errors=ignore_errors)


def test_a_message_file_that_is_not_what_its_name_says_comes_again(pair: Pair, caplog: pytest.LogCaptureFixture
                                                                   ) -> None:
    """Its size and time are those of the one that was sent."""
    sent: list[int] = [0]

    def stop(what: str, done: int, total: int) -> None:
        if sent[-1] > 400_000:          # the files have gone
            raise StoreError(Problem.UNAVAILABLE, "cut")
        sent.append(done)

    with pytest.raises(StoreError, match="cut"):
        pair.bring(stop)
    path = max((path for path in (pair.new.root / "partitions/archive/coming").rglob("messages/*/*/*")),
               key=lambda path: path.stat().st_size)
    status = path.stat()
    octets = bytearray(path.read_bytes())
    octets[100_000] ^= 1
    path.write_bytes(octets)
    os.utime(path, ns=(status.st_mtime_ns, status.st_mtime_ns))
    with caplog.at_level("ERROR"):
        pair.bring()
    assert rows(pair.new, BOB) == rows(pair.old, BOB) and "damaged" not in caplog.text


def test_mailboxes_that_changed_since(pair: Pair) -> None:
    """One that was made there comes whole; so does one whose name another one has now, beside it. One that has moved to
    another partition is empty, under a new UIDVALIDITY, and its mail comes as that of any other."""
    for name in ("Made", "Twice"):
        namespace.insert_mailbox(pair.old, MailboxName("alice", name), "archive", None)
        deliver(pair.old, b"Subject: %b\r\n\r\n" % name.encode(), f"user/alice/{name}")
    namespace.create_mailbox(pair.new, MailboxName("alice", "Twice"))
    move_owner(pair.old, "bob", "primary")
    before = rows(pair.old, BOB)
    pair.bring()
    assert pair.bring_the_rest().brought == len(before)
    twice = pair.old.entry(MailboxName("alice", "Twice"))
    assert [len(rows(pair.new, MailboxName("alice", name))) for name in ("Made", "Twice")] == [1, 0]
    assert pair.new.entry(MailboxName("alice", f"Twice ({twice.id})")).id == twice.id
    assert [row[2:] for row in rows(pair.new, BOB)] == [row[2:] for row in before]
    assert pair.new.entry(BOB).uidvalidity > pair.old.entry(BOB).uidvalidity


def test_mailboxes_that_were_deleted_or_restored_since(pair: Pair) -> None:
    """One that was deleted is as it was: that is not done again. One that was restored is, with what came to it."""
    before = rows(pair.old, OLD)
    deletion.delete_mailbox(pair.old, OLD)
    deletion.undelete_mailbox(pair.old, GONE)
    deliver(pair.old, b"Subject: restored\r\n\r\n", str(GONE))
    deletion.delete_mailbox(pair.old, BOB, even_inbox=True)
    deletion.undelete_mailbox(pair.old, BOB)
    pair.bring()
    assert rows(pair.new, OLD) == before and not list(pair.new.mailboxes.deleted.all())
    for name in (GONE, BOB):
        assert rows(pair.new, name) == rows(pair.old, name)
    assert pair.bring_the_rest().brought == 0
    for name in (OLD, GONE, BOB):
        deliver(pair.new, b"Subject: new\r\n\r\n", str(name))


def test_a_user_who_was_moved_at_that_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The standby has the copy that was being made, and the list says that the mailbox is on the other partition, which
    it has not: all of the mail is only on the other machine."""
    old = make_store(tmp_path / "one", ("alice",))
    volumes.add(old, "archive")
    firstuse.inbox(old, old.directory.add("bob", HASH, partition="archive"))
    for number in range(3):
        deliver(old, b"Subject: %d\r\n\r\n" % number, str(BOB))
    standby, finish = Standby(old, tmp_path / "two", only=("primary",)), _Move._finish
    standby.create()

    def last_state(move: _Move) -> None:
        finish(move)
        move.target.flush()
        standby.follow()

    monkeypatch.setattr(_Move, "_finish", last_state)
    move_owner(old, "bob", "primary")
    promotion.promote(standby.root)
    with closing(old), closing(open_store(standby.root, SMALL)) as new:
        pair = Pair(old, new)
        pair.bring()
        assert pair.bring_the_rest().brought == 3
        assert [row[2:] for row in rows(new, BOB)] == [row[2:] for row in rows(old, BOB)]
        assert check(new) == check(old) == []


def test_it_leaves_room_for_who_uses_the_machine(pair: Pair) -> None:
    """What is kept free for mail (`store.disk_reserve`) stays so; it goes on when there is more."""
    enough = pair.new.settings
    pair.new.settings = evolve(enough, disk_reserve=1 << 62)
    with pytest.raises(StoreError) as caught:
        pair.bring()
    assert caught.value.problem is Problem.DISK_FULL
    pair.is_absent()
    pair.new.settings = enough
    pair.bring()
    assert rows(pair.new, BOB) == rows(pair.old, BOB)


def test_nothing_is_replaced_before_it_is_home(pair: Pair, tmp_path: Path) -> None:
    with pair.connected() as peer:
        source = SourcePeer(peer)
        with pytest.raises(StoreError, match="may be its only copy"):
            returning.follow(pair.old.root, pair.old.mailboxes.identity, source, ADDRESS,
                             succession.read(pair.new.root).lineage, tmp_path / "aside")
    assert standbystate.read(pair.old.root) is None
    pair.bring()


def test_what_came_after_it_was_home(pair: Pair) -> None:
    """From then on the machine that came back is not served, though it does not follow yet. Once an administrator has
    preferred it, what it gets is looked for there, too."""
    pair.bring()
    with pair.connected() as peer:
        HomePeer(peer).passed(pair.old)
    with pytest.raises(StoreError, match=r"two\.example\.org has been promoted"):
        succession.require_first(pair.old.root)
    succession.forget(pair.old.root, "two.example.org")
    before = rows(pair.new, BOB), rows(pair.new, OLD)
    deliver(pair.old, b"Subject: later\r\n\r\n", str(BOB))
    assert pair.bring_the_rest(come_home=()).brought == 1
    *others, later = rows(pair.new, BOB)
    assert later[3] == b"Subject: later\r\n\r\n" and (others, rows(pair.new, OLD)) == before
