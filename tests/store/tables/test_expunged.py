"""What was expunged stays counted until it can be brought back no more: an expunge touches no message file's row."""

import struct
import time
from contextlib import closing

import pytest

from mboxlist.engine.kv import Env
from mboxlist.engine.transact import transact
from mboxlist.names import MailboxName
from store.check.wholecheck import check
from store.errors import Problem, StoreError
from store.mailboxes.deletion import deleted_messages, undelete_messages
from store.mailboxes.expunge import FORGET, drop_lost, expunges, remove, waiting
from store.mend.orphans import take_in
from store.opening import open_store
from store.partition.serials import FORMAT, META, META_KEY
from store.rebuild.recount import recount
from store.tables.references import sum_of_marks
from tests.support.stores.purging import purge
from tests.support.stores.stores import SMALL, deliver, let_go, make_store

BODIES = [b"Subject: %d\r\n\r\nmessage %d\r\n" % (number, number) for number in range(4)]
_KEY = struct.Struct(">IIQ")


@pytest.fixture
def inbox(store):
    """UIDs 1 to 4; the last one is the first one again."""
    for body in (*BODIES[:3], BODIES[0]):
        deliver(store, body, "user/alice/INBOX")
    return store.entry(MailboxName("alice", "INBOX"))


@pytest.fixture(autouse=True)
def agrees(store):
    yield
    assert check(store) == []


def counted(store):
    """References and sums of all message files, by the first line of each."""
    partition = store.partitions["primary"]
    found = {}
    for digest, record in partition.refs.all():
        with partition.files.open(digest, record.serial, record.trace, record.size) as file:
            found[file.read(0, 10)] = record.references, record.check
    return found


def marks(entry, *uids):
    return len(uids), sum_of_marks([(entry.id, uid) for uid in uids]) % (1 << 64)


def late(store):
    return time.time() + store.settings.purge_delay + 10


def files(store):
    return len(list(store.partitions["primary"].files.folder.glob("?/??/*")))


def test_an_expunge_leaves_the_counts_and_the_purge_gives_them_back(store, inbox):
    before = counted(store)
    remove(store, inbox, [1, 2])
    assert counted(store) == before == {
        b"Subject: 0": marks(inbox, 1, 4), b"Subject: 1": marks(inbox, 2), b"Subject: 2": marks(inbox, 3)}
    assert list(store.partitions["primary"].refs.waiting(int(late(store)))) == []
    assert let_go(store, late(store)) == 1
    assert counted(store) == {
        b"Subject: 0": marks(inbox, 4), b"Subject: 1": (0, 0), b"Subject: 2": marks(inbox, 3)}
    assert purge(store.partitions["primary"], late(store)) == 1 and files(store) == 2


def test_a_file_is_released_as_of_the_last_expunge(store, inbox, unix_time):
    remove(store, inbox, [1])
    now = unix_time.now = int(unix_time.now) + 100
    remove(store, inbox, [4])
    assert let_go(store, late(store)) == 2
    assert [when for when, _ in store.partitions["primary"].refs.waiting(now + 1000)] == [now]


def test_what_is_brought_back_is_counted_under_its_new_uid_and_the_rest_can_go(store, inbox):
    remove(store, inbox, [1, 2, 3, 4])
    assert undelete_messages(store, inbox, uids=[1, 3]) == [5, 6]
    assert counted(store) == {
        b"Subject: 0": marks(inbox, 5, 4), b"Subject: 1": marks(inbox, 2), b"Subject: 2": marks(inbox, 6)}
    assert let_go(store, late(store)) == 1
    assert counted(store) == {
        b"Subject: 0": marks(inbox, 5), b"Subject: 1": (0, 0), b"Subject: 2": marks(inbox, 6)}


def test_both_of_one_message_come_back(store, inbox):
    remove(store, inbox, [1, 4])
    assert undelete_messages(store, inbox) == [5, 6]
    assert counted(store)[b"Subject: 0"] == marks(inbox, 5, 6)


def test_what_is_purged_while_somebody_brings_it_back_stays_gone(store, inbox, faults):
    remove(store, inbox, [2])
    partition = store.partitions["primary"]
    faults.before(partition, "transact", lambda _: let_go(store, late(store)))
    assert undelete_messages(store, inbox) == []
    assert counted(store)[b"Subject: 1"] == (0, 0)


def test_expunges_of_an_older_version_are_read_and_were_given_back_then(store, inbox):
    remove(store, inbox, [2, 3])
    partition = store.partitions["primary"]
    item, = partition.removed.all()

    def as_before(txn):
        partition.removed.forget([item.key], txn)
        partition.env.table("removed.db").put(item.key, struct.pack("<H", 5) + b"a b c" + item.rows.tobytes(), txn)

    transact(partition.env, as_before)
    found, = partition.removed.all()
    assert (found.keywords, found.held, found.rows["uid"].tolist()) == (("a", "b", "c"), False, [2, 3])
    assert [message.uid for message in deleted_messages(store, inbox)] == [2, 3]
    assert check(store) == []
    assert undelete_messages(store, inbox, uids=[2]) == [5]
    assert counted(store)[b"Subject: 1"] == marks(inbox, 5)
    assert let_go(store, late(store)) == 1
    assert counted(store)[b"Subject: 2"] == (0, 0)


def test_what_waits_is_what_nothing_else_uses(store, inbox):
    partition = store.partitions["primary"]
    remove(store, inbox, [1, 2])
    deliver(store, BODIES[2], "user/bob/INBOX")
    bobs = store.entry(MailboxName("bob", "INBOX"))
    remove(store, inbox, [3])
    sizes = {body: record.size for body, (_, record) in zip(BODIES, sorted(
        partition.refs.all(), key=lambda item: item[1].serial), strict=False)}
    assert sorted(size for _, size in waiting(partition)) == [sizes[BODIES[1]]]
    remove(store, bobs, [1])
    assert sorted(size for _, size in waiting(partition)) == sorted([sizes[BODIES[1]], sizes[BODIES[2]]])
    let_go(store, late(store))
    assert sorted(size for _, size in waiting(partition)) == sorted([sizes[BODIES[1]], sizes[BODIES[2]]])
    assert list(waiting(partition, int(time.time()) - 1000)) == []


def test_wrong_counts_are_corrected_with_them(store, inbox):
    partition = store.partitions["primary"]
    remove(store, inbox, [1, 2])
    digest, record = next((digest, record) for digest, record in partition.refs.all() if record.references == 2)
    transact(partition.env, lambda txn: partition.refs.add(digest, 1, 7, txn))
    assert [finding.where for finding in check(store)] == [f"message {digest.hex()}"]
    assert [correction.where for correction in recount(store, partition)] == [f"message {digest.hex()}"]
    assert partition.refs.find(digest) == record
    assert recount(store, partition) == []


def test_many_expunges_are_forgotten_some_at_a_time(store, monkeypatch):
    monkeypatch.setattr("store.mailboxes.expunge.FORGET", 3)
    assert FORGET > 3
    for number in range(10):
        deliver(store, b"Subject: %d\r\n\r\n%d\r\n" % (number, number), "user/alice/INBOX")
    entry = store.entry(MailboxName("alice", "INBOX"))
    for uids in ([1], [2], [3, 4], [5, 6, 7, 8, 9], [10]):
        remove(store, entry, uids)
    assert [len(some.keys) for some in expunges(store.partitions["primary"], int(late(store)))] == [3, 1, 1]
    assert purge(store.partitions["primary"], late(store)) == 10 and files(store) == 0


def test_a_large_expunge_is_forgotten_in_pieces_and_agrees_after_each(store, monkeypatch, faults):
    monkeypatch.setattr("store.mailboxes.expunge.LARGE", 3)
    for number in range(24):
        deliver(store, b"Subject: %d\r\n\r\n%d\r\n" % (number, number % 18), "user/alice/INBOX")
    entry, partition = store.entry(MailboxName("alice", "INBOX")), store.partitions["primary"]
    remove(store, entry, range(1, 24))
    steps = faults.watch(partition.refs, "release_all",
                         lambda tallies, when, txn: sum(count for _, count, _ in tallies))
    some, = expunges(partition, int(late(store)))
    assert len(some.large) == 1
    while transact(partition.env, lambda txn: partition.removed.shorten(some.large[0], 3, txn)):
        assert check(store) == []
    assert max(steps) <= 4 and sum(steps) == 23 - len(partition.removed.rows(some.large[0]))
    assert let_go(store, late(store)) == 1 and sum(steps) == 23
    assert purge(partition, late(store)) == 23 and files(store) == 1


def test_a_large_expunge_goes_with_the_others(store, monkeypatch):
    monkeypatch.setattr("store.mailboxes.expunge.LARGE", 3)
    for number in range(12):
        deliver(store, b"Subject: %d\r\n\r\n%d\r\n" % (number, number), "user/alice/INBOX")
    entry = store.entry(MailboxName("alice", "INBOX"))
    for uids in ([1], [2, 3, 4, 5, 6, 7, 8, 9], [10]):
        remove(store, entry, uids)
    assert let_go(store, late(store)) == 3
    assert not list(store.partitions["primary"].removed.all())
    assert purge(store.partitions["primary"], late(store)) == 10 and files(store) == 2


def test_keywords_that_are_longer_than_anybody_would_have_them(store, inbox):
    partition = store.partitions["primary"]
    item = (1, inbox.id, 2)
    transact(partition.env, lambda txn: partition.removed.keep(
        *item, ("a" * 70_000, "b"), store.open_mailbox(inbox).rows[:0], txn, held=True))
    found, = partition.removed.all()
    assert found.keywords == ("a" * 70_000, "b") and found.key == _KEY.pack(*item)
    transact(partition.env, lambda txn: partition.removed.forget([found.key], txn))


def test_a_store_of_the_version_before_is_used_and_one_of_a_version_to_come_refused(tmp_path):
    root = tmp_path / "before"
    make_store(root).close()

    def says(version=None):
        env = Env(root / "partitions/primary/index", cache=1 << 20, locks=20_000, recover=True, broken=lambda: None)
        states = env.table("state.db", page=4096)
        *figures, found = META.unpack(states.get(META_KEY))
        if version is not None:
            transact(env, lambda txn: states.put(META_KEY, META.pack(*figures, version), txn))
        env.checkpoint()
        env.close()
        return found

    assert says(2) == FORMAT
    with closing(open_store(root, SMALL)) as opened:
        deliver(opened, BODIES[0], "user/alice/INBOX")
    assert says(FORMAT + 1) == FORMAT
    with pytest.raises(StoreError) as refused:
        open_store(root, SMALL)
    assert refused.value.problem is Problem.UNAVAILABLE and str(FORMAT + 1) in refused.value.public


JUNK = [b"\1", b"\xff\xff\1", struct.pack("<H", 0) + b"x" * 50, struct.pack("<H", 9) + b"\xff\xfe",
        struct.pack("<H?I", 0xFFFF, True, 1 << 31)]


@pytest.mark.parametrize("junk", JUNK)
def test_what_cannot_be_read_stops_nobody_and_reconstruct_lets_go_of_it(store, inbox, junk):
    partition = store.partitions["primary"]
    remove(store, inbox, [2])
    item, = partition.removed.all()
    transact(partition.env, lambda txn: partition.env.table("removed.db").put(_KEY.pack(1, inbox.id, 2), junk, txn))
    assert [finding.what for finding in check(store)] == ["what was expunged cannot be read"]
    assert [each.key for each in partition.removed.all()] == [item.key] and drop_lost(partition) == 0
    assert [message.uid for message in deleted_messages(store, inbox)] == [2]
    assert [correction.where for correction in recount(store, partition)] == ["removed.db of primary"]
    assert recount(store, partition) == [] == check(store)
    assert let_go(store, late(store)) == 1 and purge(partition, late(store)) == 1


def test_references_of_what_cannot_be_read_are_corrected_and_its_file_stays(store, inbox):
    """It may be all that is left of the message."""
    partition = store.partitions["primary"]
    remove(store, inbox, [1, 2])
    item, = partition.removed.all()
    transact(partition.env, lambda txn: partition.env.table("removed.db").put(item.key, b"junk", txn))
    assert purge(partition, late(store)) == 0
    recount(store, partition)
    assert counted(store)[b"Subject: 0"] == marks(inbox, 4)
    assert purge(partition, late(store)) == 0 and files(store) == 3
    assert take_in(store, partition).corrections and check(store) == []
