"""A standby has what the store has that it follows, at a moment, whole: after a promotion all of that is there."""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from attrs import define

from mboxlist.engine import kv
from mboxlist.engine.bulk import Load
from mboxlist.engine.damagemarks import log_files
from mboxlist.engine.hotcopy import Copied
from mboxlist.engine.transact import transact
from mboxlist.names import MailboxName
from store import offload
from store.check.wholecheck import check
from store.delivery import durable
from store.delivery.commit import Target
from store.errors import Problem, StoreError
from store.mailboxes import deletion, namespace
from store.mailboxes.copymessages import copy_messages
from store.mailboxes.expunge import remove
from store.mailboxes.flagchanges import change_flags
from store.opening import make_empty_store, open_store
from store.partitions import volumes
from store.rebuild import emptying
from store.snapshots import reset, taking
from store.standby import applying, copysource, following, logrecords, longfollowing, promotion, standbystate
from store.standby.following import Follower, Reseed
from store.standby.sourcepeer import SourcePeer
from store.standby.standbystate import FOLLOWING
from store.store import Store
from store.usermove.messageformat import Wire
from store.values import Flag, FlagAction, Flags
from tests.support.stores.purging import purge
from tests.support.stores.standbypair import Standby
from tests.support.stores.stores import SMALL, deliver, let_go, make_store
from tests.support.stores.whole import everything, random_store

INBOX = MailboxName("alice", "INBOX")

pytestmark = [pytest.mark.long, pytest.mark.few_folders]


@pytest.fixture
def store(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Store]:
    made = random_store(tmp_path / "one", 5) if getattr(request, "param", "") else make_store(
        tmp_path / "one", ("alice", "bob", "carol@example.com"))
    work(made, 0)
    yield made
    assert check(made) == []
    made.close()


@pytest.fixture
def standby(store: Store, tmp_path: Path) -> Standby:
    return Standby(store, tmp_path / "two")


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


def is_equal(store: Store, other: Store) -> None:
    """Both have all that a rebuild gives back, and message files that are the same octet for octet."""
    assert everything(other) == everything(store)
    one, two = (each.partitions["primary"].files for each in (store, other))
    for digest, record in store.partitions["primary"].refs.all():
        if record.references:
            first, second = one.locate(digest, record.serial), two.locate(digest, record.serial)
            assert first is not None and second is not None
            assert first.read_bytes() == second.read_bytes()


@pytest.mark.parametrize("store", ["with all that there can be"], indirect=True)
def test_what_was_there_at_the_beginning(store: Store, standby: Standby) -> None:
    standby.create()
    with closing(promoted(standby)) as other:
        is_equal(store, other)
        assert check(other) == []


@pytest.mark.parametrize("store", ["with all that there can be"], indirect=True)
def test_what_came_since_in_many_rounds(store: Store, standby: Standby) -> None:
    """With tables that take over what the logs have at some moments, and with connections that end between."""
    standby.create()
    for number in range(1, 9):
        work(store, number)
        if number % 3 == 1:
            for env in (store.mailboxes.env, store.partitions["primary"].env):
                env.checkpoint()
        standby.follow()
        if number in (2, 3, 6):
            state = standbystate.read(standby.root)
            assert state is not None
            applying.apply(standby.root, state)
            assert applying.waiting(applying.applied(standby.root, state, state)) == 0
    with closing(promoted(standby)) as other:
        is_equal(store, other)
        assert check(other) == []


def test_a_transaction_that_is_under_way_while_tables_are_brought_up_to_date(store: Store, standby: Standby) -> None:
    """It is undone in the tables of the standby, and there whole once it has been committed."""
    standby.create()
    env, table = store.partitions["primary"].env, store.partitions["primary"].uidls._table
    before = dict(table.scan())
    for ending in ("commit", "abort"):
        txn = env.begin()
        for number in range(300):
            table.put(b"\xff%b%04d" % (ending.encode(), number), b"x" * 50, txn)
        env.log_end()
        standby.follow()
        state = standbystate.read(standby.root)
        assert state is not None
        applying.apply(standby.root, state)
        applying.applied(standby.root, state, state)
        getattr(txn, ending)()
        standby.follow()
    after = dict(table.scan())
    assert len(after) == len(before) + 300
    with closing(promoted(standby)) as other:
        assert dict(other.partitions["primary"].uidls._table.scan()) == after

        def clear(txn: object) -> None:
            for number in range(300):
                table.delete(b"\xffcommit%04d" % number, txn)

        transact(env, clear)
        transact(other.partitions["primary"].env, lambda txn: [other.partitions["primary"].uidls._table.delete(
            b"\xffcommit%04d" % number, txn) for number in range(300)])


def test_no_uid_comes_again(store: Store, standby: Standby) -> None:
    """Not even those of messages that came when the standby was away."""
    standby.create()
    work(store, 1)
    lost = store.open_mailbox(store.entry(INBOX)).state
    with closing(promoted(standby)) as other:
        found, = deliver(other, b"Subject: after\r\n\r\n", str(INBOX))
        state = other.open_mailbox(other.entry(INBOX)).state
        assert found.uid > lost.uidnext
        assert state.highestmodseq > lost.highestmodseq
        made = namespace.create_mailbox(other, MailboxName("alice", "Made1"))
        lately = store.entry(MailboxName("alice", "Renamed1"))
        assert made.id > lately.id and made.uidvalidity > lately.uidvalidity


def test_a_message_file_is_here_before_the_log_that_tells_of_it(store: Store, standby: Standby,
                                                                monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when the connection ends in between."""
    standby.create()
    work(store, 2)
    before = standbystate.read(standby.root)

    def cut(*arguments: object) -> None:
        raise StoreError(Problem.UNAVAILABLE, "cut")

    with monkeypatch.context() as patched:
        patched.setattr(following.FileCopies, "needed", cut)
        with pytest.raises(StoreError, match="cut"):
            standby.follow()
    assert standbystate.read(standby.root) == before
    work(store, 3)
    standby.follow()
    with closing(promoted(standby)) as other:
        is_equal(store, other)


def test_a_promotion_without_the_last_round(store: Store, standby: Standby) -> None:
    """What was being written then is cut off: all is as it was at one moment."""
    standby.create()
    work(store, 1)
    standby.follow()
    known = everything(store)
    work(store, 2)
    state = standbystate.read(standby.root)
    assert state is not None
    standby.follow()
    state.save(standby.root)            # as if it had been killed before that
    with closing(promoted(standby)) as other:
        assert everything(other) == known
        assert check(other) == []


def test_nobody_opens_a_standby(standby: Standby) -> None:
    standby.create()
    with pytest.raises(StoreError, match="onecopy standby promote"):
        open_store(standby.root, SMALL)
    with pytest.raises(StoreError, match="There is a store"):
        make_empty_store(standby.root)
    for nobody_else in (reset.nobody_else, emptying.nobody_else):       # `snapshot restore`, `reconstruct --all`
        with pytest.raises(StoreError, match="onecopy standby promote"), nobody_else(standby.root):
            pass


def test_a_promotion_that_is_cut_off_is_done_again(store: Store, standby: Standby,
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    standby.create()
    work(store, 1)
    standby.follow()
    for name in ("_go_ahead", "sync_folder"):
        with monkeypatch.context() as patched:
            def cut(*arguments: object) -> None:
                raise OSError(5, "cut")

            patched.setattr(promotion, name, cut)
            with pytest.raises(StoreError):
                promotion.promote(standby.root)
    with closing(promoted(standby)) as other:
        is_equal(store, other)


def test_seeding_goes_on_where_it_was_cut_off(store: Store, standby: Standby) -> None:
    """A message file that is here is not sent again, nor a database of the same snapshot."""
    octets = 0

    def cut(what: str, done: int, total: int) -> None:
        nonlocal octets
        octets = done
        if what == "databases":
            raise StoreError(Problem.UNAVAILABLE, "cut")

    with pytest.raises(StoreError, match="cut"):
        standby.create(cut)
    with pytest.raises(StoreError, match="not all of the store"):
        promotion.promote(standby.root)
    again = []
    standby.create(lambda what, done, total: again.append((what, done)))
    assert [done for what, done in again if what == "message files" and done] == []
    with closing(promoted(standby)) as other:
        is_equal(store, other)


def test_a_table_that_was_made_without_the_log(store: Store, standby: Standby) -> None:
    """The standby is told to begin with the databases again, and all is there then."""
    standby.create()
    work(store, 1)
    exchange(store)
    with pytest.raises(Reseed, match=r"uidls\.db"):
        standby.follow()
    standby.create(age=0)
    with closing(promoted(standby)) as other:
        is_equal(store, other)
        assert check(other) == []


def test_logs_that_are_there_no_more(store: Store, standby: Standby) -> None:
    standby.create()
    env = store.partitions["primary"].env
    while env.log_end()[0] < 3:
        work(store, env.log_end()[0] * 2 + 101)
        before = env.log_end()[0]
        while env.log_end()[0] == before:
            env._env.log_printf(b"-" * 2000)
    env.checkpoint()
    env.logs.keep(None)
    assert env.drop_logs()
    with pytest.raises(Reseed, match="does not go on"):
        standby.follow()


def test_logs_of_another_life(store: Store, standby: Standby) -> None:
    """The same places in a log, with other octets before them."""
    standby.create()
    work(store, 1)
    standby.follow()
    state = standbystate.read(standby.root)
    assert state is not None
    index = standby.root / "partitions/primary/index"
    newest = log_files(index)[-1]
    with open(newest, "r+b") as file:
        file.seek(state.ends["partitions/primary/index"][1] - 100)
        file.write(b"other")
    with pytest.raises(Reseed, match="does not go on"):
        standby.follow()


def test_a_message_that_is_purged_and_comes_again(store: Store, standby: Standby) -> None:
    """It has another trace header then, and its file other octets."""
    body = b"Subject: again\r\n\r\nagain\r\n"
    first, = deliver(store, body, str(INBOX), trace=b"Return-Path: <first@example.org>\r\n")
    standby.create()
    remove(store, store.entry(INBOX), [first.uid])
    let_go(store)
    for snapshot in taking.listed(store.root / "snapshots"):
        taking.remove(snapshot)         # while it is there no message file goes that it refers to
    assert purge(store.partitions["primary"], 1 << 31)
    deliver(store, body, str(INBOX), trace=b"Return-Path: <another@example.org>\r\n")
    standby.follow()
    with closing(promoted(standby)) as other:
        is_equal(store, other)


def test_a_message_that_is_being_received_at_the_beginning(store: Store, standby: Standby) -> None:
    """Its file is not whole then, and has a name that it keeps for a while once it has been committed."""
    entry = store.entry(INBOX)
    staged = store.stage(entry, b"")
    staged.write(b"Subject: slow\r\n\r\n" + b"x" * 300_000)
    committed = store.stage(entry, b"")
    committed.write(b"Subject: quick\r\n\r\n")
    place = committed.place
    committed.place = lambda: None          # the thread that does it is late
    offload.now(durable.deliver(store, committed, [Target(entry)]))
    standby.create()
    place()
    staged.write(b"y" * 300_000)
    offload.now(durable.deliver(store, staged, [Target(entry)]))
    standby.follow()
    with closing(promoted(standby)) as other:
        is_equal(store, other)
        assert check(other) == []


def test_app_passwords_come_and_go(store: Store, standby: Standby) -> None:
    folder = store.root / "access"
    folder.mkdir(exist_ok=True)
    (folder / ("a" * 32)).write_bytes(b"one")
    standby.create()
    with standby.following() as follower:
        (folder / ("b" * 32)).write_bytes(b"two")
        _rounds(follower)
        assert {path.read_bytes() for path in (standby.root / "access").iterdir()} == {b"one", b"two"}
        for path in folder.iterdir():
            path.unlink()
        _rounds(follower)
        (folder / ("c" * 32)).write_bytes(b"three")
        _rounds(follower)
        assert [path.read_bytes() for path in (standby.root / "access").iterdir()] == [b"three"]
    (folder / ("c" * 32)).unlink()


def _rounds(follower: Follower) -> None:
    while follower.round(0):
        pass


def test_records_of_a_log(tmp_path: Path) -> None:
    """Every digest that is put into a table is found, whatever else the log has."""
    env = kv.Env(tmp_path, cache=1 << 20, locks=1000, recover=True, broken=lambda: None)
    table = env.table("messages.db")
    start = env.log_end()
    put = [os.urandom(32) for _ in range(500)]
    for at in range(0, 500, 50):
        transact(env, lambda txn, at=at: [table.put(key, os.urandom(36), txn) for key in put[at:at + 50]])
    transact(env, lambda txn: [table.delete(key, txn) for key in put[:20]])
    env.flush()
    end = env.log_end()
    octets = log_files(tmp_path)[-1].read_bytes()[start[1]:end[1]]
    env.close()
    assert set(logrecords.digests(octets)) == set(put)
    with pytest.raises(ValueError, match="not whole"):
        list(logrecords.digests(octets[:-1]))
    assert list(logrecords.digests(octets + bytes(5000)))
    with pytest.raises(ValueError, match="behind the end"):
        list(logrecords.digests(octets + bytes(5000) + b"x"))


@define(eq=False)
class Cut:
    """A connection that is lost before its `left`th read."""

    wire: Wire
    left: int

    def read(self, count: int) -> bytes:
        if not self.left:
            raise ConnectionResetError(errno.ECONNRESET, "cut")
        self.left -= 1
        return self.wire.read(count)

    def write(self, data: bytes) -> None:
        self.wire.write(data)

    def limit(self, seconds: float) -> None:
        self.wire.limit(seconds)

    def close(self) -> None:
        self.wire.close()


def test_a_connection_that_is_lost_at_every_step(store: Store, standby: Standby) -> None:
    """Of a round, and of the questions before it: it has counted or it has not, and the next one begins from there."""
    standby.create()
    before, work_done = standbystate.read(standby.root), 0
    work(store, 1)
    for step in range(1, 200):
        standby.wrap = lambda wire, step=step: Cut(wire, step)      # type: ignore[misc]
        try:
            standby.follow()
        except StoreError as error:
            assert error.problem is Problem.UNAVAILABLE
            assert standbystate.read(standby.root) == before
            work_done = step
        else:
            break
    assert work_done > 15
    standby.wrap = lambda wire: wire
    with closing(promoted(standby)) as other:
        is_equal(store, other)
        assert check(other) == []


@pytest.mark.parametrize("what", ["_log", "_message_files"])
def test_a_full_disk_at_the_standby(store: Store, standby: Standby, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """What counted counts, and the next round has the rest."""
    standby.create()
    work(store, 1)
    before = standbystate.read(standby.root)
    with standby.following() as follower, monkeypatch.context() as patched:
        def full(*arguments: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        patched.setattr(Follower, what, full)
        with pytest.raises(OSError, match="No space"):
            follower.round(0)
    assert standbystate.read(standby.root) == before
    standby.follow()
    with closing(promoted(standby)) as other:
        is_equal(store, other)


@define(eq=False)
class Until:
    """Stands for the event that ends the process which follows: it is asked before each round, and does something."""

    step: Callable[[int], bool]
    asked: int = 0

    def is_set(self) -> bool:
        self.asked += 1
        return self.step(self.asked)

    def wait(self, seconds: float) -> bool:
        return False


def test_a_process_that_follows(store: Store, standby: Standby, monkeypatch: pytest.MonkeyPatch) -> None:
    """It connects again, has the tables take over what the logs have, and copies the databases again by itself."""
    standby.create()
    monkeypatch.setattr(longfollowing, "APPLY_OCTETS", 1)
    monkeypatch.setattr(longfollowing, "WAIT", 0.01)
    tried, exchanged, seen = list[int](), list[int](), set[str]()

    def connect() -> SourcePeer:
        tried.append(1)
        if len(tried) == 1:
            raise StoreError(Problem.UNAVAILABLE, "not yet")
        return stack.enter_context(standby.connected())

    def step(asked: int) -> bool:
        state = standbystate.read(standby.root)
        assert state is not None
        seen.add(str(state.applied))
        if asked in (3, 5):
            work(store, asked)
        if len(seen) > 1 and not exchanged:
            exchanged.append(1)
            exchange(store)
            work(store, 8)
        return (len(tried) == 3 and state.phase == FOLLOWING and not applying_is_under_way(standby)
                and longfollowing.seen(standby.root)["trouble"] == "")

    with ExitStack() as stack:
        until = Until(step)
        longfollowing.LongFollowing(standby.root, connect, until).run()     # type: ignore[arg-type]
    assert longfollowing.seen(standby.root)["trouble"] == ""
    standby.follow()
    with closing(promoted(standby)) as other:
        is_equal(store, other)
        assert check(other) == []


def applying_is_under_way(standby: Standby) -> bool:
    return any(standby.root.glob(f"**/{applying.APPLYING}"))


def exchange(store: Store) -> None:
    """Have a table be another file, as a rebuild does: its log knows nothing of it."""
    partition = store.partitions["primary"]
    rows = sorted(partition.uidls._table.scan())
    with Load.begin(partition.env.folder / "uidls.db", lambda stream: iter(rows)) as load:
        load.end()
        partition.env.exchange(partition.uidls._table, load.file)


def test_an_app_password_that_is_no_more_goes_whatever_else_happens(store: Store, standby: Standby) -> None:
    """With other changes after it, with none, and when the connection ends before the next round."""
    folder, there = store.root / "access", standby.root / "access"
    folder.mkdir(exist_ok=True)
    for name in "abc":
        (folder / (name * 32)).write_bytes(b"one")
    standby.create()
    with standby.following() as follower:
        (folder / ("a" * 32)).unlink()
        _rounds(follower)
        assert sorted(path.name[0] for path in there.iterdir()) == ["b", "c"]
        (folder / ("b" * 32)).unlink()
        deliver(store, b"Subject: one\r\n\r\n", str(INBOX))
        assert follower.round(0)
        deliver(store, b"Subject: two\r\n\r\n", str(INBOX))
        assert follower.round(0)
        assert [path.name[0] for path in there.iterdir()] == ["c"]
        (folder / ("c" * 32)).unlink()
        assert follower.round(0)
    with standby.following() as follower:
        _rounds(follower)
    assert not list(there.iterdir())


def test_more_small_files_than_one_answer_takes(store: Store, standby: Standby,
                                                monkeypatch: pytest.MonkeyPatch) -> None:
    folder = store.root / "access"
    folder.mkdir(exist_ok=True)
    names = [f"{number:032x}" for number in range(23)]
    for name in names:
        (folder / name).write_bytes(name.encode())
    monkeypatch.setattr(copysource, "SMALL_FILES", 5)
    standby.create()
    assert {path.name: path.read_text() for path in (standby.root / "access").iterdir()} == {
        name: name for name in names}
    for name in names:
        (folder / name).unlink()


@pytest.mark.parametrize(("environment", "file"), [
    ("../outside", "mailboxes.db"), ("partitions/../../outside/index", "x.db"), ("mboxlist", "../../outside/x.db"),
    ("mboxlist", "/x.db"), ("mboxlist", "kept-log"), ("", "x.db")])
def test_the_other_side_names_no_file_elsewhere(store: Store, standby: Standby, tmp_path: Path, environment: str,
                                                file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it names would be removed, or written over."""
    for place in (tmp_path / "outside", tmp_path / "outside/index"):
        place.mkdir()
        (place / "dear").write_bytes(b"dear")

    def snapshot(source: SourcePeer, age: int) -> tuple[str, taking.Manifest]:
        part = taking.Part((Copied(file, 0, ""),), 1, (1, 0))
        return "20260101T000000Z", taking.Manifest(1, 1.0, "", {environment: part})

    monkeypatch.setattr(SourcePeer, "snapshot", snapshot)
    with pytest.raises(StoreError, match="cannot be understood"):
        standby.create()
    assert sorted(path.name for path in (tmp_path / "outside").rglob("*")) == ["dear", "dear", "index"]


def test_a_partition_that_was_removed_does_not_come_back(store: Store, standby: Standby) -> None:
    volumes.add(store, "second")
    standby.create()
    assert (standby.root / "partitions/second/index").is_dir()
    volumes.remove(store, "second")
    with pytest.raises(Reseed, match="second"):
        standby.follow()
    standby.create(age=0)
    with closing(promoted(standby)) as other:
        assert list(other.partitions) == ["primary"]
        assert check(other) == []


@pytest.mark.parametrize("problem", [Problem.BUSY, Problem.GONE, Problem.DISK_FULL])
def test_following_goes_on_after_what_the_other_side_cannot_do_now(
        store: Store, standby: Standby, monkeypatch: pytest.MonkeyPatch, problem: Problem) -> None:
    """A log that grows too fast to be read at one moment, a file that was purged between two questions."""
    standby.create()
    refusals = [StoreError(problem, "not now")]
    ends = SourcePeer.ends

    def refused(*arguments: object, **how: object) -> object:
        if refusals:
            raise refusals.pop()
        return ends(*arguments, **how)      # type: ignore[arg-type]

    monkeypatch.setattr(SourcePeer, "ends", refused)
    with ExitStack() as stack:
        until = Until(lambda asked: not refusals and longfollowing.seen(standby.root).get("trouble") == "")
        longfollowing.LongFollowing(standby.root, lambda: stack.enter_context(standby.connected()),
                                    until).run()        # type: ignore[arg-type]
    assert not refusals


def test_no_connection_waits_for_the_time_of_the_next_copy(store: Store, standby: Standby) -> None:
    """The other side ends one that says nothing for two minutes: the copy would never begin."""
    standby.create()
    exchange(store)
    opened, waited = list[SourcePeer](), list[tuple[float, int]]()

    def connect() -> SourcePeer:
        opened.append(stack.enter_context(standby.connected()))
        return opened[-1]

    class Stop(Until):
        def wait(self, seconds: float) -> bool:
            waited.append((seconds, sum(each.peer.wire.socket.fileno() >= 0 for each in opened)))  # type: ignore[attr-defined]
            return False

    with ExitStack() as stack:
        stop = Stop(lambda asked: len(opened) > 1 and longfollowing.seen(standby.root)["trouble"] == "")
        follow = longfollowing.LongFollowing(standby.root, connect, stop)       # type: ignore[arg-type]
        follow._next_copy = longfollowing.time.monotonic() + 500
        follow.run()
    (seconds, connected), = waited
    assert seconds > 400 and not connected


def test_logs_that_cannot_be_applied_are_seen(store: Store, standby: Standby, monkeypatch: pytest.MonkeyPatch) -> None:
    standby.create()
    monkeypatch.setattr(longfollowing, "APPLY_OCTETS", 1)
    monkeypatch.setattr(longfollowing, "WAIT", 0.01)

    def fail(root: Path, state: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(applying, "apply", fail)
    work(store, 1)
    with ExitStack() as stack:
        until = Until(lambda asked: "applied" in longfollowing.seen(standby.root).get("trouble", ""))
        longfollowing.LongFollowing(standby.root, lambda: stack.enter_context(standby.connected()),
                                    until).run()        # type: ignore[arg-type]
    state = standbystate.read(standby.root)
    assert state is not None and applying.waiting(state)
    with closing(promoted(standby)) as other:
        is_equal(store, other)


def test_a_standby_that_was_begun_and_cut_off_is_begun_again(standby: Standby) -> None:
    """Whatever is there then is known to be one, and no store is made of it."""
    standby.root.mkdir()
    standbystate.StandbyState("mail.example.org", "127.0.0.1:1").save(standby.root)
    with pytest.raises(StoreError, match="There is a store"):
        make_empty_store(standby.root)
