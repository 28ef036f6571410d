"""Duplicate suppression: the same Message-ID from the same sender comes to a mailbox once in a while."""

import multiprocessing
import os

import pytest
from attrs import evolve
from berkeleydb import db

from mboxlist.engine.transact import Deadlock
from mboxlist.names import MailboxName
from store import offload
from store.check.wholecheck import check
from store.delivery import durable
from store.delivery.commit import Delivered, Duplicate, Locked, Target, commit
from store.errors import Problem, StoreError
from store.housekeeping import tasks
from store.housekeeping.tasks import Round
from store.mailboxes import deletion, namespace
from store.mailboxes.expunge import remove
from store.opening import open_store
from store.partitions import partitionmove as moving
from store.partitions import volumes
from store.quota import roots
from store.tables.duplicates import ROWS_AT_A_TIME, arrival_key
from store.tables.state import state_key
from store.values import InternalDate
from tests.support.stores.stores import SMALL, deliver, make_store, reopen, reopen_after_crash

ALICE, BOB = "user/alice/INBOX", "user/bob/INBOX"
START = 1_900_000_000
MANY = 250                  # messages that several processes bring
_context = multiprocessing.get_context("fork")


def message(ident=b"<1@example.org>", text=b"x"):
    return b"Received: by relay\r\nMessage-ID: " + ident + b"\r\nSubject: x\r\n\r\n" + text + b"\r\n"


def trace(sender=b"a@example.org"):
    return b"Return-Path: <" + sender + b">\r\nReceived: from relay\r\n"


def send(store, *mailboxes, body=None, sender=b"a@example.org", window=100, **more):
    """What becomes of a message: "new", "again" or a problem."""
    body = message() if body is None else body
    found = deliver(store, body, *mailboxes, trace=trace(sender), suppress=window, **more)
    for outcome, name in zip(found, mailboxes, strict=True):
        assert isinstance(outcome, StoreError) or str(outcome.entry.name) == name
    return ["new" if isinstance(each, Delivered) else "again" if isinstance(each, Duplicate) else each.problem
            for each in found]


def count(store, name=ALICE):
    return store.status(store.entry(MailboxName.parse(name))).messages


def files(store):
    return [path for partition in store.partitions.values() for path in (
        *partition.files.folder.glob("?/??/*"), *partition.files.staging.iterdir()) if path.stat().st_size]


def rows(store):
    return dict(store.partitions["primary"].duplicates._table.scan())


@pytest.fixture
def clocked(store):
    """The store, whose arrivals have a clock of their own."""
    at = [START]
    store.partitions["primary"].duplicates.clock = lambda: at[0]
    store.later = lambda seconds: at.__setitem__(0, at[0] + seconds)
    return store


def test_a_duplicate_is_taken_and_leaves_nothing(clocked):
    assert send(clocked, ALICE) == ["new"]
    clocked.partitions["primary"].files.drop_staged_names()
    before = clocked.open_mailbox(clocked.entry(MailboxName.parse(ALICE)))
    there, quota = files(clocked), roots.quota(clocked, "alice")
    for body in (message(), message(text=b"a list added this"), message(b"  <1@example.org>  ")):
        assert send(clocked, ALICE, body=body) == ["again"]
    assert clocked.refresh(before) is before
    assert (files(clocked), roots.quota(clocked, "alice")) == (there, quota)
    assert [record.references for _, record in clocked.partitions["primary"].refs.all()] == [1]


def test_for_as_long_as_it_counts(clocked):
    assert send(clocked, ALICE) == ["new"]
    clocked.later(99)
    assert send(clocked, ALICE, window=10_000) == ["again"]     # which does not make it count longer
    clocked.later(1)
    assert send(clocked, ALICE) == ["new"]
    clocked.later(99)
    assert send(clocked, ALICE) == ["again"]
    assert count(clocked) == 2


def test_until_the_last_second_of_a_clock(clocked):
    assert send(clocked, ALICE, window=1 << 40) == ["new"]
    assert list(rows(clocked).values()) == [b"\xff" * 4]


@pytest.mark.parametrize("other", [
    {"body": message(b"<2@example.org>")}, {"sender": b"b@example.org"}, {"sender": b""}, {"window": 0}])
def test_what_is_another_message(clocked, other):
    assert send(clocked, ALICE) == ["new"]
    assert send(clocked, ALICE, **other) == ["new"]
    assert count(clocked) == 2


@pytest.mark.parametrize("body", [
    b"Subject: x\r\n\r\nMessage-ID: <1@example.org>\r\n", message(b""), message(b"  "), b""])
def test_without_message_id_everything_comes(clocked, body):
    for _ in range(2):
        assert send(clocked, ALICE, body=body) == ["new"]
    assert rows(clocked) == {}


def test_each_mailbox_has_its_own(clocked):
    namespace.create_mailbox(clocked, MailboxName("alice", "Archive"))
    assert send(clocked, ALICE) == ["new"]
    assert send(clocked, ALICE, BOB, "user/alice/Archive") == ["again", "new", "new"]
    assert send(clocked, "user/alice/Archive", BOB, ALICE) == ["again"] * 3
    assert [count(clocked, name) for name in (ALICE, BOB, "user/alice/Archive")] == [1, 1, 1]


def test_twice_in_one_delivery(clocked):
    assert send(clocked, ALICE, BOB, ALICE) == ["new", "new", "again"]


def test_some_targets_ask_for_it_and_some_do_not(clocked):
    inbox, other = (clocked.entry(MailboxName.parse(name)) for name in (ALICE, BOB))
    for wanted in ([Delivered, Delivered], [Duplicate, Delivered]):
        staged = clocked.stage(inbox, trace())
        staged.write(message())
        found = offload.now(durable.deliver(clocked, staged, [Target(inbox, suppress=9), Target(other)]))
        assert [type(each) for each in found] == wanted


def test_who_was_refused_gets_it_later(clocked):
    roots.set_quota(clocked, "alice", 5)
    refused, taken = send(clocked, ALICE, BOB)
    assert (refused in (Problem.OVER_QUOTA, Problem.QUOTA_GRACE_ENDED), taken) == (True, "new")
    roots.set_quota(clocked, "alice", 5000)
    assert send(clocked, ALICE, BOB) == ["new", "again"]


def test_what_all_refuse_leaves_no_trace(clocked):
    roots.set_quota(clocked, "alice", 5)
    assert send(clocked, ALICE) == [Problem.QUOTA_GRACE_ENDED]
    assert rows(clocked) == {} and files(clocked) == []


def test_a_mailbox_that_is_gone_has_nothing_again(clocked):
    archive = namespace.create_mailbox(clocked, MailboxName("alice", "Archive"))
    assert send(clocked, "user/alice/Archive") == ["new"]
    deletion.delete_mailbox(clocked, archive.name)
    staged = clocked.stage(archive, trace())
    staged.write(message())
    refused, = offload.now(durable.deliver(clocked, staged, [Target(archive, suppress=9)]))
    assert refused.problem is Problem.NO_MAILBOX


def test_a_message_that_the_user_has_expunged_does_not_come_back(clocked):
    assert send(clocked, ALICE) == ["new"]
    remove(clocked, clocked.entry(MailboxName.parse(ALICE)), [1])
    assert send(clocked, ALICE) == ["again"]
    assert count(clocked) == 0


def test_with_header_fields_of_its_own(clocked):
    assert send(clocked, ALICE, BOB, header=b"Delivered-To: {}\r\n") == ["new", "new"]
    assert send(clocked, ALICE, BOB, header=b"Delivered-To: another\r\n") == ["again", "again"]
    assert send(clocked, BOB, sender=b"b@example.org", header=b"Delivered-To: {}\r\n") == ["new"]


def test_it_is_known_after_a_crash_and_in_the_next_process(store):
    assert send(store, ALICE) == ["new"]
    store.__dict__.update(reopen_after_crash(store).__dict__)
    assert send(store, ALICE) == ["again"]
    store.close()
    reopen(store, SMALL)
    assert send(store, ALICE, BOB) == ["again", "new"]


def test_two_partitions(store):
    volumes.add(store, "second")
    moving.move_owner(store, "bob", "second")
    assert send(store, ALICE, BOB) == ["new", "new"]
    assert send(store, ALICE, BOB) == ["again", "again"]
    assert send(store, BOB, sender=b"b@example.org") == ["new"]
    moving.move_owner(store, "bob", "primary")          # what has moved may get it twice, and nothing worse
    assert send(store, ALICE, BOB) == ["again", "new"]
    assert send(store, ALICE, BOB) == ["again", "again"]


def test_another_try_meets_what_the_first_one_left(store, faults):
    """A mailbox that was being moved is tried once more, and those that had it before are not asked again."""
    bob = store.entry(MailboxName.parse(BOB))
    partition = store.partitions["primary"]

    def moves(txn, moving):
        txn.set_state(bob.id, None, evolve(txn.any_state(bob.id), moving=moving))

    partition.transact(lambda txn: moves(txn, True))
    faults.around(offload.Threads, "pause", lambda *_: resume())

    async def resume():
        partition.transact(lambda txn: moves(txn, False))

    assert send(store, ALICE, BOB) == ["new", "new"]
    assert (count(store), count(store, BOB)) == (1, 1)


def test_a_locked_mailbox_is_named_before_any_key_is_locked(store):
    """So that a target whose mailbox stays locked is refused alone, and nobody else's messages wait with it."""
    partition = store.partitions["primary"]
    inbox, other = (store.entry(MailboxName.parse(name)) for name in (ALICE, BOB))
    targets = [Target(other, suppress=9), Target(inbox, suppress=9)]
    staged = store.stage(inbox, trace())
    staged.write(message())
    staged.finish()
    staged.sync()
    holder = partition.env.begin()
    partition.states.get_to_change(state_key(other.id), holder)
    partition.duplicates.counts(arrival_key(staged.message_id, staged.sender, inbox.id), holder)
    try:
        with pytest.raises(Locked) as refused:
            commit(partition, staged, targets, InternalDate(0), seconds=0)
        assert refused.value.at == 1            # first in order of id; both are on the page that is locked
    finally:
        holder.abort()
    found = commit(partition, staged, targets, InternalDate(0), seconds=0)
    assert [type(each) for each in found] == [Delivered] * 2
    staged.place()
    staged.close()


# What has had its time

def clean(store):
    store.settings = evolve(store.settings, housekeeping_rate=0)
    task, = [task for task in tasks.one_process(store) if task.name == "arrivals"]
    assert task.limited
    round = Round(task, store)
    while round.step() is not None:
        pass
    return round.status()


def fill(store, count, until):
    table = store.partitions["primary"].duplicates._table

    def work(txn):
        for number in range(count):
            key = arrival_key(b"%d" % number, b"", until)
            table.put(key, until.to_bytes(4, "little"), txn.handle)
    store.partitions["primary"].transact(work)


def test_what_has_had_its_time_is_forgotten(clocked):
    fill(clocked, ROWS_AT_A_TIME * 3, START + 50)
    fill(clocked, 700, START + 51)
    assert clean(clocked).failures == 0
    assert len(rows(clocked)) == ROWS_AT_A_TIME * 3 + 700
    clocked.later(50)
    assert clean(clocked).failures == 0
    assert list(rows(clocked).values()) == [(START + 51).to_bytes(4, "little")] * 700
    clocked.later(1)
    clean(clocked)
    assert rows(clocked) == {}
    assert clean(clocked).done == 0          # there is nothing to look at


def test_one_that_comes_again_meanwhile_stays(clocked):
    partition = clocked.partitions["primary"]
    assert send(clocked, ALICE) == ["new"]
    clocked.later(200)
    key, = rows(clocked)
    assert partition.duplicates.over(b"") == [key]
    assert send(clocked, ALICE) == ["new"]
    assert partition.transact(lambda txn: partition.duplicates.forget([key, b"\xff" * 16], txn.handle)) == 0
    assert list(rows(clocked)) == [key]


def test_the_rate_is_kept_to(clocked):
    fill(clocked, ROWS_AT_A_TIME, START - 1)
    clocked.settings = evolve(clocked.settings, housekeeping_rate=ROWS_AT_A_TIME)
    task, = [task for task in tasks.one_process(clocked) if task.name == "arrivals"]
    assert 0.5 < Round(task, clocked).step() <= 1


# Several processes

def test_who_looks_makes_others_wait(store):
    partition = store.partitions["primary"]
    key, impatient = bytes(16), partition.env._env.txn_begin(None, db.DB_TXN_NOWAIT)

    def work(txn):
        assert not partition.duplicates.counts(key, txn.handle)
        try:
            with pytest.raises(Deadlock):
                partition.duplicates.counts(key, impatient)
        finally:
            impatient.abort()

    partition.transact(work)


def post(root, together, pipe, names):
    """Deliver some messages, each of which the other processes deliver at the same moment, some as other octets."""
    store = open_store(root, SMALL)
    found = []
    for number in range(MANY):
        body = message(b"<%d@example.org>" % number, text=b"%d" % (os.getpid() if number % 3 else 0))
        together.wait()
        found.append(send(store, *names, body=body, header=b"Delivered-To: {}\r\n" * (number % 2)))
    store.close()
    pipe.send(found)


@pytest.mark.long
def test_of_those_who_bring_it_at_the_same_moment_one_does(tmp_path):
    users = ["alice", "bob", "carol"]
    make_store(tmp_path / "store", users).close()
    together, pipes = _context.Barrier(3), [_context.Pipe() for _ in range(3)]
    names = [f"user/{user}/INBOX" for user in users]
    worker_config = [names, names[::-1], [*names[1:], names[0]]]
    processes = [_context.Process(target=post, args=(tmp_path / "store", together, pipes[at][1], worker_config[at]),
                                  daemon=True) for at in range(3)]
    try:
        for process in processes:
            process.start()
        assert all(pipe.poll(300) for pipe, _ in pipes)
        found = [pipe.recv() for pipe, _ in pipes]
    finally:
        for process in processes:
            process.join(180)
            process.kill()
    for number in range(MANY):
        for name in names:
            told = sorted(done[number][order.index(name)] for done, order in zip(found, worker_config, strict=True))
            assert told == ["again", "again", "new"]
    store = open_store(tmp_path / "store", SMALL)
    assert [count(store, name) for name in names] == [MANY] * 3
    assert check(store) == []
    store.close()
