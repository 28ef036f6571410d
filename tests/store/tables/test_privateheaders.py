"""Header fields that each recipient has of its own, while the message file is one."""

import multiprocessing
import shutil

import numpy as np
import pytest
from berkeleydb import db

from mboxlist.engine.btree import Table
from mboxlist.engine.transact import Deadlock
from mboxlist.names import MailboxName
from store import offload
from store.check.wholecheck import check
from store.delivery import durable
from store.delivery.commit import Delivered, Target
from store.errors import Problem, StoreError
from store.mailboxes import crosspartition, deletion, firstuse, namespace
from store.mailboxes.copymessages import copy_messages
from store.mailboxes.expunge import remove
from store.opening import open_store
from store.partitions import partitionmove, volumes
from store.quota import roots
from store.quota.accounting import sharing
from store.reconstruct.wholestore import rebuild
from store.tables.privateheaders import LOST
from store.userarea import idxfile, idxreading, writing
from tests.store.tables.headed import ALICE, BOB, BODY, TO, TRACE, box, change, files, texts, to
from tests.support.stores.purging import purge
from tests.support.stores.stores import SMALL, deliver, make_store, reopen, reopen_after_crash

pytestmark = pytest.mark.few_folders

_context = multiprocessing.get_context("fork")


def test_each_recipient_has_its_own_and_there_is_one_file(store):
    firstuse.inbox(store, store.directory.add("carol", "*"))
    targets = [ALICE, BOB, "user/carol/INBOX"]
    outcomes = deliver(store, BODY, *targets, trace=TRACE, header=TO)
    assert [type(outcome) for outcome in outcomes] == [Delivered] * 3
    for target in targets:
        assert texts(store, target) == [to(target) + TRACE + BODY]
        owner = target.split("/")[1]
        assert roots.quota(store, owner).octets == len(to(target) + TRACE + BODY)
    assert files(store) == [TRACE + BODY]


def test_with_and_without_in_one_delivery(store):
    staged = store.stage(box(store).entry)
    staged.write(BODY)
    offload.now(durable.deliver(store, staged, [
        Target(box(store).entry, header=b"A: 1\r\nB: 2\r\n"), Target(box(store, BOB).entry)]))
    assert texts(store) == [b"A: 1\r\nB: 2\r\n" + BODY]
    assert texts(store, BOB) == [BODY]


def test_a_message_without_the_first_ones_trace_header(store):
    """Fields of one's own, those of its own delivery, and no part of the file's trace header."""
    deliver(store, BODY, ALICE, trace=TRACE, header=TO)
    own = b"Return-Path: <b@example.org>\r\n"
    deliver(store, BODY, BOB, trace=own, header=TO)
    assert texts(store, BOB) == [to(BOB) + own + BODY]
    assert files(store) == [TRACE + BODY]


def test_quota_counts_them_to_the_octet(store):
    size = len(to(ALICE) + BODY)
    roots.set_quota(store, "alice", size - 1)
    refused, = deliver(store, BODY, ALICE, header=TO)
    assert isinstance(refused, StoreError) and refused.problem is Problem.QUOTA_GRACE_ENDED     # it can never fit
    roots.set_quota(store, "alice", size)
    assert isinstance(deliver(store, BODY, ALICE, header=TO)[0], Delivered)
    assert roots.quota(store, "alice").octets == size


def test_the_same_fields_have_the_same_number(store):
    for targets in ([ALICE], [ALICE, BOB], [BOB, ALICE]):       # known, or new, or both
        assert all(isinstance(each, Delivered) for each in deliver(store, BODY, *targets, header=TO))
    first, second = box(store).rows["head"].tolist(), box(store, BOB).rows["head"].tolist()
    assert len(set(first)) == len(set(second)) == 1 and first[0] != second[0]
    private_headers = dict(store.partitions["primary"].private_headers.all())
    assert {first[0]: to(ALICE), second[0]: to(BOB), 0: (2).to_bytes(4, "big")} == private_headers


def test_a_number_is_for_ever(store):
    """It outlives the message, and the store's end."""
    deliver(store, BODY, ALICE, header=TO)
    number = int(box(store).rows["head"][0])
    remove(store, box(store).entry, [1])
    purge(store.partitions["primary"], 2**31)
    store.close()
    reopen(store, SMALL)
    deliver(store, BODY, BOB, header=TO)
    deliver(store, BODY, ALICE, header=TO)
    assert box(store).rows["head"].tolist() == [number]
    assert box(store, BOB).rows["head"].tolist() == [number + 1]


def test_there_is_a_last_number(store):
    private_headers = store.partitions["primary"].private_headers
    last = (LOST - 2).to_bytes(4, "big")
    store.partitions["primary"].transact(lambda txn: private_headers._table.put(bytes(4), last, txn.handle))
    assert isinstance(deliver(store, BODY, ALICE, header=TO)[0], Delivered)
    refused, = deliver(store, BODY, BOB, header=TO)
    assert refused.problem is Problem.LIMIT
    assert texts(store, BOB) == []
    assert isinstance(deliver(store, BODY, ALICE, header=TO)[0], Delivered)


def test_who_gives_a_number_makes_others_wait(store, faults):
    """From when it looks for the last number on, not only when it writes the next."""
    partition, waited = store.partitions["primary"], []
    private_headers = partition.private_headers
    impatient = partition.env._env.txn_begin(None, db.DB_TXN_NOWAIT)

    def another(table, key, txn):
        if table is private_headers._table and not waited:
            waited.append(key)
            with pytest.raises(Deadlock):
                private_headers.numbers([b"B: 2\r\n"], impatient)

    faults.after(Table, "get_to_change", another)
    try:
        assert partition.transact(lambda txn: private_headers.numbers([b"A: 1\r\n"], txn.handle)) == {b"A: 1\r\n": 1}
    finally:
        impatient.abort()
    assert waited


def give(root, start, pipe, offset):
    """Have numbers given, one text after the other and all of them new, in a process of its own."""
    store = open_store(root, SMALL)
    partition = store.partitions["primary"]
    start.wait()
    found = {}
    for at in range(150):
        some = [b"X: %d\r\n" % ((at + step * offset) % 150) for step in range(2)]
        found |= partition.transact(lambda txn, some=some: partition.private_headers.numbers(some, txn.handle))
    store.close()
    pipe.send(found)


@pytest.mark.long
def test_processes_that_give_numbers_at_the_same_moment_agree(tmp_path):
    make_store(tmp_path / "store").close()
    start, pipes = _context.Barrier(3), [_context.Pipe() for _ in range(3)]
    processes = [_context.Process(target=give, args=(tmp_path / "store", start, pipes[at][1], at), daemon=True)
                 for at in range(3)]
    try:
        for process in processes:
            process.start()
        assert all(pipe.poll(300) for pipe, _ in pipes)
        found = [pipe.recv() for pipe, _ in pipes]
    finally:
        for process in processes:
            process.join(180)
            process.kill()
    assert found[0] == found[1] == found[2]
    assert sorted(found[0].values()) == list(range(1, 151))
    store = open_store(tmp_path / "store", SMALL)
    assert check(store) == []
    store.close()


# What is done to messages

def test_copies_and_what_is_brought_back_have_them(store):
    deliver(store, BODY, ALICE, BOB, trace=TRACE, header=TO)
    deliver(store, BODY, ALICE, header=b"")
    shown = [to(ALICE) + TRACE + BODY, BODY]
    archive = namespace.create_mailbox(store, MailboxName("alice", "Archive"))
    copy_messages(store, box(store).entry, archive, [1, 2])
    assert texts(store, "user/alice/Archive") == shown
    copy_messages(store, box(store).entry, archive, [1], remove=True)
    assert texts(store, "user/alice/Archive") == [*shown, shown[0]]
    assert texts(store) == [shown[1]]
    assert roots.quota(store, "alice").octets == 2 * sum(map(len, shown))
    remove(store, archive, [1, 3])
    assert [each.size for each in deletion.deleted_messages(store, archive)] == [len(shown[0])] * 2
    assert roots.quota(store, "alice").octets == 2 * len(BODY)
    deletion.undelete_messages(store, archive)
    assert texts(store, "user/alice/Archive") == [shown[1], shown[0], shown[0]]
    deletion.delete_mailbox(store, archive.name)
    deletion.undelete_mailbox(store, archive.name)
    assert texts(store, "user/alice/Archive") == [shown[1], shown[0], shown[0]]
    assert roots.quota(store, "alice").octets == len(BODY) * 2 + len(shown[0]) * 2
    remove(store, box(store, "user/alice/Archive").entry, [2, 4, 5])
    remove(store, box(store).entry, [2])
    purge(store.partitions["primary"], 2**31)
    assert texts(store, BOB) == [to(BOB) + TRACE + BODY]


@pytest.fixture
def two(store):
    """On the second partition numbers mean other fields."""
    volumes.add(store, "second")
    firstuse.inbox(store, store.directory.add("carol", "*", partition="second"))
    for number in range(3):
        deliver(store, b"%d" % number, "user/carol/INBOX", header=b"X: %d\r\n" % number)
    return store


@pytest.mark.parametrize("move", [False, True])
def test_copies_on_another_partition_have_them(two, move):
    deliver(two, BODY, ALICE, BOB, trace=TRACE, header=TO)
    deliver(two, BODY, ALICE)
    before = texts(two)
    carol = box(two, "user/carol/INBOX").entry
    offload.now(crosspartition.copy_durably(two, box(two).entry, carol, np.array([1, 2], np.uint32), remove=move))
    assert texts(two, "user/carol/INBOX")[3:] == before
    assert texts(two) == [] if move else before
    offload.now(crosspartition.copy_durably(two, box(two, BOB).entry, carol, np.array([1], np.uint32)))
    assert texts(two, "user/carol/INBOX")[5:] == texts(two, BOB)
    deliver(two, BODY, "user/carol/INBOX", header=to(ALICE))
    assert box(two, "user/carol/INBOX").rows["head"][[3, 6]].tolist() == [4, 4]


def test_a_user_who_moves_takes_them_along(two):
    for number in range(70):
        deliver(two, BODY + b"%d" % number, ALICE, BOB, trace=TRACE, header=TO if number % 3 else b"")
    remove(two, box(two).entry, [5])
    before = texts(two)
    quota = roots.quota(two, "alice")
    partitionmove.move_owner(two, "alice", "second")
    assert texts(two) == before
    assert roots.quota(two, "alice") == quota
    deletion.undelete_messages(two, box(two).entry)
    assert texts(two)[-1] == to(ALICE) + TRACE + BODY + b"4"
    partitionmove.move_owner(two, "alice", "primary")
    assert texts(two)[:69] == before


def test_fields_of_which_nothing_is_known_do_not_move(two):
    deliver(two, BODY, ALICE)
    change(two, head=99)
    with pytest.raises(StoreError) as refused:
        partitionmove.move_owner(two, "alice", "second")
    assert refused.value.problem is Problem.CORRUPT
    change(two, head=0)
    assert texts(two) == [BODY]


def test_a_crash_loses_none_that_was_acknowledged(store):
    deliver(store, BODY, ALICE, trace=TRACE, header=TO)
    store.__dict__.update(reopen_after_crash(store).__dict__)
    assert texts(store) == [to(ALICE) + TRACE + BODY]
    deliver(store, BODY, BOB, trace=TRACE, header=TO)
    assert texts(store, BOB) == [to(BOB) + TRACE + BODY]


def lose_databases(root):
    for folder in (root / "mboxlist", *(each / "index" for each in (root / "partitions").iterdir())):
        shutil.rmtree(folder)


@pytest.mark.long
def test_a_rebuild_gives_them_back(tmp_path):
    root = tmp_path / "store"
    store = make_store(root)
    deliver(store, BODY, BOB, header=b"X: only bob's\r\n")
    for number in range(3):
        deliver(store, BODY + b"%d" % number, ALICE, BOB, trace=TRACE, header=TO * (number + 1))
    before = texts(store), texts(store, BOB)
    store.close()
    lose_databases(root)
    assert rebuild(root, SMALL).findings == []
    store = open_store(root, SMALL)
    assert (texts(store), texts(store, BOB)) == before
    assert check(store) == []
    store.close()


@pytest.mark.long
def test_a_rebuild_without_them_gives_the_rest_and_says_so(tmp_path):
    """As when all their blocks in store.idx are damaged."""
    root = tmp_path / "store"
    store = make_store(root)
    deliver(store, BODY, ALICE, BOB, trace=TRACE, header=TO)
    deliver(store, BODY, ALICE)
    deliver(store, BODY + b"!", ALICE, header=TO)
    path = writing.right_place(store.partitions["primary"], box(store).entry, 0)
    store.close()
    left = idxreading.read(path)
    idxfile.write(path, idxfile.Contents(left.head, left.rows))
    lose_databases(root)
    told = [each.where for each in rebuild(root, SMALL).findings if "header fields" in each.what]
    assert told == [f"{ALICE}, UID 1", f"{ALICE}, UID 3"]
    store = open_store(root, SMALL)
    assert texts(store) == [TRACE + BODY, BODY, BODY + b"!"]
    assert texts(store, BOB) == [to(BOB) + TRACE + BODY]
    assert check(store) == []
    store.close()


def test_they_are_in_no_file_that_is_accounted_for(store):
    deliver(store, BODY, ALICE, BOB, trace=TRACE, header=TO)
    deliver(store, BODY + b"!", ALICE, header=TO)
    one, two, own = len(TRACE + BODY), len(BODY + b"!"), len(to(ALICE))
    users = sharing(store).users
    assert (users["alice"].octets, users["bob"].octets) == (one + two + 2 * own, one + len(to(BOB)))
    assert users["alice"].fair + users["bob"].fair == one + two == sum(map(len, files(store)))
    assert (users["alice"].unique, users["alice"].freed) == (two + own, two)
    remove(store, box(store).entry, [1, 2])
    remove(store, box(store, BOB).entry, [1])
    assert sharing(store).waiting == {"primary": one + two}
