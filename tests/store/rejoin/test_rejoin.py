"""A machine whose standby has been promoted brings home what only it has: all of it, once, and then follows."""

import shutil
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from attrs import define

from mboxlist.names import MailboxName
from store.check.wholecheck import check
from store.errors import Problem, StoreError
from store.expiry.rulebook import set_file
from store.mailboxes import deletion, namespace
from store.mailboxes.copymessages import copy_messages
from store.mailboxes.expunge import remove
from store.mailboxes.flagchanges import change_flags
from store.opening import open_store
from store.rejoin import returning, sendinghome, stranded, takinghome
from store.rejoin.sendinghome import HomePeer, SendingHome
from store.rejoin.stranded import Stranded
from store.rejoin.takinghome import TakingHome
from store.standby import promotion, seeding, standbystate, succession
from store.standby.filecopies import FileCopies
from store.standby.source.copysource import Source
from store.standby.sourcepeer import SourcePeer
from store.store import Store
from store.usermove.messageformat import Wire
from store.usermove.peer import Peer
from store.usermove.responder import Session
from store.usermove.targetside import IncomingMoves
from store.values import Flag, FlagAction, Flags
from tests.support.stores.movepair import LIMIT, ONE, Plain
from tests.support.stores.standbypair import Standby
from tests.support.stores.stores import SMALL, deliver, make_store
from tests.support.stores.whole import everything

ALICE, BOB = MailboxName("alice", "INBOX"), MailboxName("bob", "INBOX")
TRACE = b"Return-Path: <a@example.org>\r\n"

pytestmark = [pytest.mark.long, pytest.mark.few_folders]


@define(eq=False)
class Pair:
    """The machine that comes back, and the one that serves."""

    old: Store
    new: Store
    wrap: Callable[[Wire], Wire] = lambda wire: wire

    @contextmanager
    def connected(self) -> Iterator[Peer]:
        ours, theirs = socket.socketpair()
        for end in (ours, theirs):
            end.settimeout(LIMIT)
        session = Session(Plain(theirs), ONE, IncomingMoves(self.new), {
            **Source(self.new, ONE).actions(), **TakingHome(self.new).actions()}, moves=False)
        thread = threading.Thread(target=session.run, daemon=True)
        thread.start()
        try:
            yield Peer("two.example.org", self.wrap(Plain(ours)))
        finally:
            ours.close()
            thread.join(LIMIT)
            assert not thread.is_alive()

    def found(self) -> Stranded:
        with self.connected() as peer:
            ours = succession.read(self.old.root).lineage
            return sendinghome.find(self.old, HomePeer(peer), HomePeer(peer).promoted(ours), ours)

    def bring(self, found: Stranded) -> SendingHome:
        with self.connected() as peer:
            home = SendingHome(self.old, HomePeer(peer), lambda what, done, total: None)
            home.bring(found.mail)
        return home


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folders of both stores, closed. Both have had the same mail, and nothing else has happened since."""
    folder = tmp_path_factory.mktemp("made")
    old = make_store(folder / "one", ("alice", "bob"))
    for number in range(4):
        deliver(old, b"Subject: both %d\r\n\r\n" % number, str(ALICE), str(BOB), trace=TRACE)
    for name in ("Old", "Gone", "Other"):
        namespace.create_mailbox(old, MailboxName("alice", name))
    standby = Standby(old, folder / "two")
    standby.create()
    old.close()
    promotion.promote(standby.root)
    open_store(standby.root, SMALL).close()
    return folder


@pytest.fixture
def pair(made: Path, tmp_path: Path) -> Iterator[Pair]:
    for name in ("one", "two"):
        shutil.copytree(made / name, tmp_path / name)
    pair = Pair(*(open_store(tmp_path / name, SMALL) for name in ("one", "two")))
    yield pair
    for each in (pair.old, pair.new):
        assert check(each) == []
        each.close()


def mail(store: Store, name: MailboxName) -> list[tuple[bytes, Flags, int]]:
    """Octets, flags and internal date of each message, sorted."""
    view, found = store.open_mailbox(store.entry(name)), []
    for row in view.rows:
        with store.open_message(view.entry, row) as file:
            found.append((b"".join(file.pieces()), Flags(Flag(int(row["flags"])), view.keyword_names(
                int(row["keywords"]))), int(row["received"])))
    return sorted(found, key=repr)


def strand(store: Store) -> None:
    """Mail that only this store gets: for two with one file, large, flagged, moved, copied, in a mailbox that it makes,
    twice in one mailbox."""
    shared = b"Subject: shared\r\n\r\n" + b"s" * 5000
    deliver(store, shared, str(ALICE), str(BOB), trace=b"Return-Path: <b@example.org>\r\n")
    deliver(store, shared, str(BOB), trace=b"Return-Path: <c@example.org>\r\nReceived: other\r\n")
    deliver(store, b"Subject: large\r\n\r\n" + b"l" * 1_300_000, str(ALICE))
    deliver(store, b"", str(BOB))
    inbox = store.entry(ALICE)
    flagged, = deliver(store, b"Subject: flagged\r\n\r\n", str(ALICE), trace=TRACE)
    change_flags(store, inbox, [flagged.uid], FlagAction.ADD, Flags(Flag.FLAGGED | Flag.SEEN, ("$Later", "work")))
    moved, = deliver(store, b"Subject: moved\r\n\r\n", str(ALICE))
    made = namespace.create_mailbox(store, MailboxName("alice", "Made/Here"))
    copy_messages(store, inbox, made, [moved.uid], remove=True)
    expunged, = deliver(store, b"Subject: expunged\r\n\r\n", str(ALICE))
    remove(store, inbox, [expunged.uid])


def test_all_that_is_only_there_comes_home_once(pair: Pair, tmp_path: Path) -> None:
    strand(pair.old)
    found = pair.found()
    assert found.messages == 7 and found.octets > 1_300_000
    assert [str(each) for each in found.done] == ["mailbox made: user/alice/Made/Here"]
    before = everything(pair.old)
    home = pair.bring(found)
    assert (home.brought, home.there, home.refused) == (7, 0, [])
    for name in (ALICE, BOB, MailboxName("alice", "Made/Here")):
        assert mail(pair.new, name) == mail(pair.old, name)
    assert everything(pair.old) == before
    again = pair.bring(found)
    assert (again.brought, again.there) == (0, 7)
    shared, = (record for _, record in pair.new.partitions["primary"].refs.all() if record.references > 2)
    assert shared.size < 6000


def test_nothing_is_only_there(pair: Pair, tmp_path: Path) -> None:
    found = pair.found()
    assert (found.mail, found.done) == ([], [])


def test_what_is_not_done_again_is_told(pair: Pair, tmp_path: Path) -> None:
    store = pair.old
    inbox = store.entry(ALICE)
    copy_messages(store, inbox, store.entry(MailboxName("alice", "Other")), [1], remove=False)
    copy_messages(store, inbox, store.entry(MailboxName("alice", "Other")), [2], remove=True)
    remove(store, inbox, [3])
    change_flags(store, inbox, [4], FlagAction.ADD, Flags(Flag.DELETED, ()))
    namespace.rename_mailbox(store, MailboxName("alice", "Old"), MailboxName("alice", "New"))
    deletion.delete_mailbox(store, MailboxName("alice", "Gone"))
    found = pair.found()
    assert found.mail == []
    assert sorted(map(str, found.done)) == [
        "flags changed in: user/alice/INBOX (1)", "mailbox deleted: user/alice/Gone",
        "mailbox renamed: user/alice/Old (it is user/alice/New here)",
        "messages copied or moved to: user/alice/Other (2)", "messages expunged from: user/alice/INBOX (2)"]


def test_mail_goes_where_its_mailbox_is_now(pair: Pair, tmp_path: Path) -> None:
    """One that was renamed at the machine that serves; one that was deleted there is made again."""
    for name in ("Old", "Gone"):
        deliver(pair.old, b"Subject: %b\r\n\r\n" % name.encode(), f"user/alice/{name}")
    found = pair.found()
    namespace.rename_mailbox(pair.new, MailboxName("alice", "Old"), MailboxName("alice", "Renamed"))
    deletion.delete_mailbox(pair.new, MailboxName("alice", "Gone"))
    assert pair.bring(found).brought == 2
    for name in ("Renamed", "Gone"):
        assert len(mail(pair.new, MailboxName("alice", name))) == 1


def test_a_message_that_has_come_meanwhile_does_not_come_again(pair: Pair, tmp_path: Path) -> None:
    """The relay tried again; its owner has even expunged it since."""
    for number in range(3):
        deliver(pair.old, b"Subject: again %d\r\n\r\n" % number, str(ALICE), trace=TRACE)
    for number in range(2):
        came, = deliver(pair.new, b"Subject: again %d\r\n\r\n" % number, str(ALICE), trace=b"Return-Path: <>\r\n")
    remove(pair.new, pair.new.entry(ALICE), [came.uid])
    home = pair.bring(pair.found())
    assert (home.brought, home.there) == (1, 2)
    subjects = Counter(octets for octets, _, _ in mail(pair.new, ALICE) if b"again" in octets)
    assert len(subjects) == 2 and set(subjects.values()) == {1}


def test_mail_of_nobody_is_kept(pair: Pair, tmp_path: Path) -> None:
    """The user was made where nobody serves any more."""
    deliver(pair.old, b"Subject: one\r\n\r\n", str(BOB), trace=TRACE)
    found = pair.found()

    class Refusing(HomePeer):
        def mailbox(self, mail: stranded.StrandedMail) -> bool:
            raise StoreError(Problem.NO_USER)

    with pair.connected() as peer:
        home = SendingHome(pair.old, Refusing(peer), lambda what, done, total: None)
        home.bring(found.mail)
    assert sendinghome.keep(pair.old, home.refused, tmp_path / "aside") == 1
    kept, = (tmp_path / "aside").rglob("*.eml")
    assert kept.read_bytes() == TRACE + b"Subject: one\r\n\r\n"
    assert kept.parts[-4:-1] == ("user", "bob", "INBOX")


@define(eq=False)
class Cut:
    """A connection that is lost before its `left`th read or write."""

    wire: Wire
    left: int

    def read(self, count: int) -> bytes:
        self._count()
        return self.wire.read(count)

    def write(self, data: bytes) -> None:
        self._count()
        self.wire.write(data)

    def _count(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise ConnectionResetError(104, "cut")

    def limit(self, seconds: float) -> None:
        self.wire.limit(seconds)

    def close(self) -> None:
        self.wire.close()


def test_it_is_cut_off_at_every_step(pair: Pair, tmp_path: Path) -> None:
    strand(pair.old)
    found, steps = pair.found(), 0
    for steps in range(200):
        pair.wrap = lambda wire, steps=steps: Cut(wire, steps)      # type: ignore[misc]
        try:
            home = pair.bring(found)
        except StoreError as error:
            assert error.problem is Problem.UNAVAILABLE
        else:
            break
    assert steps > 15 and home.brought + home.there == 7
    for name in (ALICE, BOB, MailboxName("alice", "Made/Here")):
        assert mail(pair.new, name) == mail(pair.old, name)


def test_it_becomes_the_standby_with_what_it_has(pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    strand(pair.old)
    pair.bring(pair.found())
    for number in range(3):
        deliver(pair.new, b"Subject: new %d\r\n\r\n" % number, str(ALICE))
    expected, root = everything(pair.new), pair.old.root
    rules = "expire/example.com.rules", "partitions/primary/expire.rules"
    for name in rules:
        set_file(root / name, f"mail.folderpattern: user/{name}\nmail.savedays: 30\n")
    pair.old.close()
    state = turn(pair, tmp_path)
    for name in rules:          # those of the other machine, which has none, come in their place
        assert (tmp_path / "aside" / name).read_bytes() == (root / name).read_bytes()
    assert returning.going_on(root, "two:2").phase == standbystate.RETURNING
    with pytest.raises(StoreError, match="onecopy standby promote"):
        open_store(root, SMALL)
    came, keep = list[str](), FileCopies._keep
    monkeypatch.setattr(FileCopies, "_keep", lambda self, path, name, sent: (came.append(name), keep(
        self, path, name, sent)))
    with pair.connected() as peer:
        seeding.seed(root, state, SourcePeer(peer), lambda what, done, total: None, 0)
    returning.ended(root)
    known = {digest.hex() for digest, record in pair.new.partitions["primary"].refs.all()}
    assert len(came) < len(known)       # only what came since, and what has another time there
    assert returning.going_on(root, "two:2") is None
    known = standbystate.read(root)
    with pair.connected() as peer, pytest.raises(StoreError, match="standby of"):
        returning.has_more(root, known, SourcePeer(peer), HomePeer(peer).other())
    assert (tmp_path / "aside/audit").is_dir() == (root / "audit").is_dir()
    promotion.promote(root)
    assert succession.read(root).number == 2
    pair.old = open_store(root, SMALL)
    assert everything(pair.old) == expected


def turn(pair: Pair, tmp_path: Path) -> standbystate.StandbyState:
    with pair.connected() as peer:
        return returning.follow(pair.old.root, pair.new.mailboxes.identity, SourcePeer(peer), "two:1",
                                succession.read(pair.new.root).lineage, tmp_path / "aside")


def test_the_other_machine_is_lost_before_all_has_come(pair: Pair, tmp_path: Path) -> None:
    """The store that was here is what is left, and no UID or id is one that the other one may have shown."""
    strand(pair.old)
    expected, root = everything(pair.old), pair.old.root
    shown, = deliver(pair.new, b"Subject: shown\r\n\r\n", str(ALICE))
    made = namespace.create_mailbox(pair.new, MailboxName("bob", "Shown"))
    pair.old.close()
    state = turn(pair, tmp_path)
    with pair.connected() as peer, pytest.raises(StoreError, match="cut"):
        seeding.seed(root, state, SourcePeer(peer), _cut_at_databases, 0)
    promotion.promote(root)
    pair.old = open_store(root, SMALL)
    with closing(open_store(root, SMALL)):
        assert everything(pair.old) == expected
    came, = deliver(pair.old, b"Subject: came\r\n\r\n", str(ALICE))
    assert came.uid > shown.uid + 1000
    other = namespace.create_mailbox(pair.old, MailboxName("bob", "Shown"))
    assert other.id > made.id and other.uidvalidity > made.uidvalidity
    assert succession.read(root).number == 2


def _cut_at_databases(what: str, done: int, total: int) -> None:
    if what == "databases":
        raise StoreError(Problem.UNAVAILABLE, "cut")


@pytest.mark.parametrize(("fields", "octets"), [
    ({"op": "home octets"}, b"x"), ({"op": "home there", "mailbox": 1, "since": 1}, b""),
    ({"op": "home mailbox", "mailbox": 0, "uidvalidity": 1, "name": "user/alice/INBOX"}, b""),
    ({"op": "home mailbox", "mailbox": 1, "uidvalidity": 1, "name": "alice"}, b""),
    ({"op": "home message", "mailbox": 1}, b"")])
def test_what_cannot_be_understood_ends_the_connection(pair: Pair, fields: dict[str, object], octets: bytes) -> None:
    with pair.connected() as peer, pytest.raises(StoreError) as error:
        peer.ask_for(fields, octets)
    assert error.value.problem is Problem.UNAVAILABLE


def test_a_message_that_does_not_come_whole_leaves_nothing(pair: Pair) -> None:
    inbox = pair.new.entry(ALICE)
    before = everything(pair.new)
    with pair.connected() as peer:
        peer.ask_for({"op": "home mailbox", "mailbox": int(inbox.id), "uidvalidity": inbox.uidvalidity,
                      "name": str(ALICE)})
        fields = {"op": "home message", "mailbox": int(inbox.id), "trace": 0, "size": takinghome.OCTETS + 1, "flags": 0,
                  "keywords": [], "received": 0, "zone": 1440}
        assert peer.ask_for(fields, b"x" * takinghome.OCTETS).fields["uid"] == 0
    assert everything(pair.new) == before
