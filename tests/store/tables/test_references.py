"""References to message files: counts, marks, and that a wrong count never deletes mail."""

import logging
import time

import numpy as np
import pytest

from mboxlist.names import MailboxName
from store.check.wholecheck import check
from store.mailboxes.expunge import expunge, remove
from store.mailboxes.flagchanges import change_flags
from store.tables.references import mark, marks, sum_of_marks, tally
from store.values import Flag, FlagAction, Flags
from tests.support.stores.purging import purge
from tests.support.stores.stores import deliver, let_go

BODY = b"Subject: x\r\n\r\nhello\r\n"
WORD = (1 << 64) - 1


def splitmix(state):
    """SplitMix64 as it is published: the mark of (mailbox, UID) is its output for that state."""
    value = (state + 0x9E3779B97F4A7C15) & WORD
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & WORD
    return value ^ (value >> 31)


def test_a_mark_is_one_in_all_three_ways():
    assert splitmix(0) == 0xE220A8397B1DCDAF        # the first output for seed 0, as its reference program prints it
    for mailbox, uid in [(1, 1), (1, 2), (2, 1), ((1 << 32) - 1, (1 << 32) - 1)]:
        expected = splitmix(mailbox << 32 | uid)
        assert mark(mailbox, uid) == expected
        assert marks(mailbox, np.array([uid], "<u4")).tolist() == [expected]
    pairs = [(number % 7 + 1, number) for number in range(1, 500)]
    for some in (pairs[:2], pairs):
        assert sum_of_marks(some) & WORD == sum(mark(*pair) for pair in some) & WORD


@pytest.fixture
def shared(store):
    """One message that alice and bob have; its digest and the partition."""
    deliver(store, BODY, "user/alice/INBOX", "user/bob/INBOX")
    partition = store.partitions["primary"]
    [(digest, _)] = partition.refs.all()
    return partition, digest


def record(partition, digest):
    found = partition.refs.find(digest)
    return found.references, found.check


def in_all(store, body=BODY):
    """Alice's and bob's message can be read."""
    for user in ("alice", "bob"):
        entry = store.entry(MailboxName(user, "INBOX"))
        for row in store.open_mailbox(entry).rows:
            with store.open_message(entry, row) as file:
                assert file.read(0, file.size) == body


def put_back(partition, digest, references, value):
    """Have the record say that again, so that the store is whole at the end of the test."""
    def work(txn):
        found = partition.refs.find_to_change(digest, txn.handle)
        partition.refs.add(digest, references - found.references, value - found.check, txn.handle)
    partition.transact(work)


def test_references_and_their_check_value(store, shared):
    partition, digest = shared
    inboxes = [store.entry(MailboxName(user, "INBOX")).id for user in ("alice", "bob")]
    assert record(partition, digest) == (2, sum(mark(mailbox, 1) for mailbox in inboxes) & WORD)
    remove(store, store.entry(MailboxName("alice", "INBOX")), [1])
    let_go(store)
    assert record(partition, digest) == (1, mark(inboxes[1], 1))


def test_one_of_two_given_back_twice_keeps_the_file(store, shared, caplog):
    partition, digest = shared
    alice = store.entry(MailboxName("alice", "INBOX"))
    [(_, count, value)] = tally(alice.id, store.open_mailbox(alice).rows)
    for _ in range(2):                              # as if the expunge of alice's were counted twice
        partition.transact(lambda txn: partition.refs.release(digest, count, value, txn.handle))
    assert "its file stays" in caplog.text
    assert partition.refs.find(digest).references == 0
    assert list(partition.refs.waiting(1 << 32 - 1)) == []
    assert purge(partition, time.time() + partition.settings.purge_delay + 10) == 0
    in_all(store)
    assert [finding for finding in check(store) if digest.hex() in finding.where + finding.what]
    put_back(partition, digest, 2, sum(mark(store.entry(MailboxName(user, "INBOX")).id, 1) for user in ("alice",
                                                                                                        "bob")))


def test_more_given_back_than_was_counted_changes_nothing(store, shared, caplog):
    partition, digest = shared
    before = record(partition, digest)
    with caplog.at_level(logging.ERROR):
        partition.transact(lambda txn: partition.refs.release(digest, 3, 7, txn.handle))
    assert "more often" in caplog.text and digest.hex() in caplog.text
    assert record(partition, digest) == before


def test_what_is_not_known_at_all_is_reported(store, caplog):
    partition = store.partitions["primary"]
    partition.transact(lambda txn: partition.refs.release(b"\x01" * 32, 1, 1, txn.handle))
    assert "more often" in caplog.text
    assert list(partition.refs.all()) == []


def test_a_wrong_count_does_not_keep_the_rest_from_being_expunged(store, shared):
    partition, digest = shared
    deliver(store, b"Subject: y\r\n\r\n", "user/alice/INBOX")
    alice = store.entry(MailboxName("alice", "INBOX"))
    lost = sum(mark(store.entry(MailboxName(user, "INBOX")).id, 1) for user in ("alice", "bob"))
    partition.transact(lambda txn: partition.refs.release(digest, 2, lost, txn.handle))
    change_flags(store, alice, [1, 2], FlagAction.ADD, Flags(Flag.DELETED))
    assert expunge(store, alice) == [1, 2]
    let_go(store)
    assert [finding for finding in check(store) if digest.hex() in finding.where + finding.what]
    put_back(partition, digest, 1, mark(store.entry(MailboxName("bob", "INBOX")).id, 1))


def test_another_reference_than_the_last_one_keeps_the_file(store, shared, caplog):
    """The count comes out, the check value does not: something else was given back."""
    partition, digest = shared
    remove(store, store.entry(MailboxName("alice", "INBOX")), [1])
    let_go(store)
    partition.transact(lambda txn: partition.refs.release(digest, 1, mark(77, 1), txn.handle))
    assert "not what used it" in caplog.text
    assert purge(partition, time.time() + partition.settings.purge_delay + 10) == 0
    in_all(store)
    put_back(partition, digest, 1, mark(store.entry(MailboxName("bob", "INBOX")).id, 1))


def test_a_file_waits_from_the_latest_time_on(store, shared):
    """A reference that goes late, as of an earlier time, does not shorten what others were promised."""
    partition, digest = shared
    values = [mark(store.entry(MailboxName(user, "INBOX")).id, 1) for user in ("alice", "bob")]
    partition.transact(lambda txn: partition.refs.release(digest, 1, values[0], txn.handle, 5000))
    partition.transact(lambda txn: partition.refs.release(digest, 1, values[1], txn.handle, 3000))
    assert list(partition.refs.waiting(1 << 31)) == [(5000, digest)]
    put_back(partition, digest, 2, sum(values))
    assert purge(partition, time.time() + partition.settings.purge_delay) == 0
    in_all(store)
