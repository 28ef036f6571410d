"""Each round of a standby brings it to a later moment of the store that it follows, whole."""

import errno
import hashlib
import os
import threading
import time
import zlib
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from attrs import define

from mboxlist.engine import kv
from mboxlist.engine.damagemarks import log_files
from mboxlist.engine.hotcopy import Position
from mboxlist.engine.transact import transact
from mboxlist.names import MailboxName
from store.check.wholecheck import check
from store.errors import Problem, StoreError
from store.events import outgoingfiles
from store.mailboxes.expunge import remove
from store.partition.messagefiles import MessageFiles
from store.snapshots import taking
from store.standby import applying, following, logrecords, standbyjournal, standbystate
from store.standby.copyformat import Packing, positions, unpacked
from store.standby.following import Follower
from store.standby.source import copysource, quickanswers
from store.store import Store
from store.usermove.messageformat import BadMessage, Message, Wire
from tests.support.stores.purging import purge
from tests.support.stores.standbypair import INBOX, Standby, is_equal, promoted, work
from tests.support.stores.stores import deliver, let_go
from tests.support.stores.whole import everything

pytestmark = [pytest.mark.long, pytest.mark.few_folders]


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


def test_a_message_file_is_here_before_the_log_that_tells_of_it(store: Store, standby: Standby,
                                                                monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when the connection ends in between: in a long round, whose parts are asked for one by one."""
    monkeypatch.setattr(quickanswers, "QUICK_OCTETS", 0)
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


def test_a_letter_is_here_with_the_log_that_tells_of_it(store: Store, standby: Standby,
                                                        monkeypatch: pytest.MonkeyPatch) -> None:
    """A large message that leaves is a file, which is on disk before the row that names it. Both come with one round,
    also when they are made while that round looks for news."""
    standby.create()
    look, kept = taking.log_ends, list[str]()

    def looked(envs: dict[str, kv.Env]) -> tuple[dict[str, Position], float]:
        if not kept:
            kept.append(outgoingfiles.keep(store.root, b"Subject: it leaves\r\n\r\n"))
            deliver(store, b"Subject: after it\r\n\r\n", str(INBOX))
        return look(envs)

    with standby.following() as follower:
        monkeypatch.setattr(taking, "log_ends", looked)
        assert follower.round(0)
        assert follower.state.ends == {name: env.log_end() for name, env in taking.environments(store).items()}
        assert outgoingfiles.read(standby.root, kept[0]) == b"Subject: it leaves\r\n\r\n"
    assert outgoingfiles.sweep(store.root, lambda: (), time.time() + 2 * outgoingfiles.WAITS) == 1


def test_changes_of_a_folder_that_leave_it_its_time(store: Store, standby: Standby, monkeypatch: pytest.MonkeyPatch
                                                    ) -> None:
    """Two within one tick of the file system's clock, with a look between: the letter comes with the log that tells of
    it, an app password some seconds later."""
    monkeypatch.setattr(copysource, "FRESH", 10**18)
    letters, access = store.root / outgoingfiles.FOLDER, store.root / "access"
    access.mkdir(exist_ok=True)
    outgoingfiles.keep(store.root, b"Subject: one\r\n\r\n")
    standby.create()
    with standby.following() as follower:
        _rounds(follower)
        times = {folder: folder.stat().st_mtime_ns for folder in (letters, access)}
        kept = outgoingfiles.keep(store.root, b"Subject: two\r\n\r\n")
        (access / ("b" * 32)).write_bytes(b"two")
        for folder, when in times.items():
            os.utime(folder, ns=(when, when))
        deliver(store, b"Subject: after it\r\n\r\n", str(INBOX))
        assert follower.round(0)
        assert outgoingfiles.read(standby.root, kept) == b"Subject: two\r\n\r\n"
        monkeypatch.setattr(copysource, "FRESH", 0)
        _rounds(follower)
        assert (standby.root / "access" / ("b" * 32)).read_bytes() == b"two"
    (access / ("b" * 32)).unlink()
    outgoingfiles.sweep(store.root, lambda: (), time.time() + 2 * outgoingfiles.WAITS)


def test_a_large_message_where_file_times_are_coarse(store: Store, standby: Standby, monkeypatch: pytest.MonkeyPatch
                                                     ) -> None:
    """Its file comes before the answer that names it. A file system that keeps whole seconds only gives it another
    time: it is not taken for one that is still to be written."""
    utime = os.utime
    monkeypatch.setattr(quickanswers, "QUICK_OCTETS", 6 << 10)
    standby.create()
    monkeypatch.setattr(os, "utime", lambda file, ns: utime(file, ns=(ns[0], ns[1] // 10**9 * 10**9)))
    with standby.following() as follower:
        deliver(store, b"Subject: large\r\n\r\n" + b"x" * 100_000 + b"\r\n", str(INBOX))
        assert follower.round(0)
        assert follower._waiting        # it came by the journal
        follower.finish()
    monkeypatch.undo()
    with closing(promoted(standby)) as other:
        is_equal(store, other)


def _rounds(follower: Follower) -> None:
    while follower.round(0):
        pass


def test_octets_that_only_the_journal_has_are_written_once_more(store: Store, standby: Standby,
                                                                monkeypatch: pytest.MonkeyPatch) -> None:
    """A loss of power: length and time of a message file are on disk, and its octets are not."""
    monkeypatch.setattr(standbyjournal, "EMPTY_SECONDS", 1e9)
    standby.create()
    with standby.following() as follower:
        while follower.round(0):
            pass
        known = {digest for digest, _ in store.partitions["primary"].refs.all()}
        deliver(store, b"Subject: in the journal\r\n\r\n", str(INBOX))
        while follower.round(0):
            pass
    digest, = {digest for digest, _ in store.partitions["primary"].refs.all()} - known
    path = Path(MessageFiles(standby.root / "partitions" / "primary").path(digest))
    status = path.stat()
    path.write_bytes(bytes(status.st_size))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    with closing(promoted(standby)) as other:
        is_equal(store, other)
        assert check(other) == []


def test_a_journal_is_emptied_without_a_thread(store: Store, standby: Standby, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    standby.create()
    with standby.following() as follower:
        deliver(store, b"Subject: in the journal\r\n\r\n", str(INBOX))
        while follower.round(0):
            pass
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", start)
            follower.finish()
        state = standbystate.read(standby.root)
        assert state is not None and state.ends == follower.state.ends


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


def test_what_comes_compressed_is_what_was_sent(store: Store, standby: Standby) -> None:
    """And it is less than half. What is random is sent as it is."""
    read = dict[bool, int]()
    deliver(store, b"Subject: random\r\n\r\n" + os.urandom(20_000).replace(b"\n", b"\0"), str(INBOX))
    for number, compress in enumerate((False, True), 1):
        counted = list[int]()
        other = Standby(store, standby.root.with_name(f"compressed-{compress}"), partial(Counting, counted=counted),
                        compress=compress)
        other.create()
        work(store, number)
        other.follow()
        read[compress] = sum(counted)
        with closing(promoted(other)) as opened:
            assert everything(opened) == everything(store)
    assert read[True] < read[False] / 2


def test_what_does_not_become_smaller_is_not_tried_for_some_answers() -> None:
    packing, noise, text = Packing(True), os.urandom(5000), b"Received: from a\r\n" * 300
    assert packing.pack({}, text[:100]) == ({}, text[:100])                     # too little
    assert packing.pack({}, noise) == ({}, noise)
    for _ in range(7):
        assert packing.pack({"a": 1}, text) == ({"a": 1}, text)
    fields, octets = packing.pack({"a": 1}, text)
    assert fields == {"a": 1, "unpacked": 5400} and len(octets) < 200
    assert unpacked(Message(fields, octets)) == Message({"a": 1}, text)
    assert Packing().pack({}, text) == ({}, text)


@pytest.mark.parametrize(("count", "octets"), [
    (5, zlib.compress(b"123456")), (7, zlib.compress(b"123456")), (6, zlib.compress(b"123456")[:-1]), (6, b"junk"),
    (6, zlib.compress(b"123456") + b"x"), (1 << 40, b""), (-1, b""), ("6", zlib.compress(b"123456")), (0, b""),
    (6, zlib.compress(bytes(1 << 24)))])
def test_what_is_packed_otherwise_than_was_said(count: object, octets: bytes) -> None:
    with pytest.raises(BadMessage):
        unpacked(Message({"unpacked": count}, octets))


@define(eq=False)
class Through:
    """A connection around another one."""

    wire: Wire

    def read(self, count: int) -> bytes:
        return self.wire.read(count)

    def write(self, data: bytes) -> None:
        self.wire.write(data)

    def limit(self, seconds: float) -> None:
        self.wire.limit(seconds)

    def close(self) -> None:
        self.wire.close()


@define(eq=False)
class Counting(Through):
    """A connection that notes how many octets each read has got."""

    counted: list[int]

    def read(self, count: int) -> bytes:
        found = super().read(count)
        self.counted.append(len(found))
        return found


@define(eq=False)
class Cut(Through):
    """A connection that is lost before its `left`th read."""

    left: int

    def read(self, count: int) -> bytes:
        if not self.left:
            raise ConnectionResetError(errno.ECONNRESET, "cut")
        self.left -= 1
        return super().read(count)


@pytest.mark.parametrize(("quick", "steps"), [(0, 15), (quickanswers.QUICK_OCTETS, 7)])
def test_a_connection_that_is_lost_at_every_step(store: Store, standby: Standby, monkeypatch: pytest.MonkeyPatch,
                                                 quick: int, steps: int) -> None:
    """Of a round, long or quick, and of the questions before it: it has counted or it has not, and the next one begins
    from there."""
    monkeypatch.setattr(quickanswers, "QUICK_OCTETS", quick)
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
    assert work_done > steps
    standby.wrap = lambda wire: wire
    with closing(promoted(standby)) as other:
        is_equal(store, other)
        assert check(other) == []


@pytest.mark.parametrize("what", ["_log", "_message_files"])
def test_a_full_disk_at_the_standby(store: Store, standby: Standby, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """What counted counts, and the next round has the rest."""
    monkeypatch.setattr(quickanswers, "QUICK_OCTETS", 0)
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


@pytest.mark.parametrize("name", [
    "../other", "partitions/../x/index", "partitions/a/b/index", "/etc", "", "mboxlist.copy", "partitions//index",
    "partitions/primary/index/.."])
def test_nothing_is_written_outside_of_environments(name: str) -> None:
    """Whatever the one that serves says of its logs: their names are places on our disk."""
    assert positions({"mboxlist": [1, 2], "partitions/primary/index": [1, 5]})
    with pytest.raises(BadMessage, match="an environment of the name"):
        positions({"mboxlist": [1, 2], name: [1, 0]})


@pytest.mark.parametrize("damage", [os.unlink, partial(os.truncate, length=20)], ids=["lost", "cut off"])
@pytest.mark.parametrize("quick", [True, False], ids=["in an answer", "in parts"])
def test_a_message_comes_again_whose_file_was_lost_before_the_standby_was_made(
        store: Store, standby: Standby, monkeypatch: pytest.MonkeyPatch, damage: Callable[[Path], None], quick: bool
        ) -> None:
    """The first machine gets the file back by it, and acknowledges it: so the standby gets it, too, although there is
    no new record of the file."""
    bob, octets = MailboxName("bob", "INBOX"), b"Subject: lost\r\n\r\n%b\r\n" % (b"z" * 5_000)
    deliver(store, octets, str(INBOX))
    partition = store.partitions["primary"]
    partition.files.drop_staged_names()
    damage(Path(partition.files.path(hashlib.blake2b(octets, digest_size=32).digest())))
    standby.create()
    if not quick:
        monkeypatch.setattr(quickanswers, "QUICK_OCTETS", 0)
        monkeypatch.setattr(quickanswers, "UNHURRIED", 0)
    deliver(store, octets, str(bob))
    standby.follow()
    with closing(promoted(standby)) as other:
        is_equal(store, other)
        assert check(other) == []
