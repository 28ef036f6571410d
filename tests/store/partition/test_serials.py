"""Cache records of many messages: read one after the other, or each by itself, they say the same."""

import random

import numpy as np
import pytest

from mboxlist.engine.transact import transact
from mboxlist.names import MailboxName
from store.message.fields import Lister, header_fields
from store.tables.index import ROW
from tests.support.stores.stores import deliver

HEADER = b"From: a@example.org\r\nTo: b@example.org\r\nSubject: %d\r\nX-Mailer: c\r\n\r\n"
NAMES = b"From", b"Subject"
MESSAGES = 24


@pytest.fixture
def rows(store):
    """The records of some messages, in the order in which they came."""
    for number in range(MESSAGES):
        deliver(store, HEADER % number, "user/alice/INBOX")
    return store.open_mailbox(store.entry(MailboxName("alice", "INBOX"))).rows


def expected(numbers):
    return [header_fields(HEADER % number, NAMES) for number in numbers]


@pytest.mark.parametrize("numbers", [
    range(MESSAGES), range(5), range(7, 19), [*range(4), *range(9, 20)], [*range(6), *range(8, 15), *range(20, 24)]])
def test_header_fields_of_serials_that_follow_one_another(store, rows, numbers):
    serials = store.partitions["primary"].serials
    wanted = rows[list(numbers)]
    assert serials.listed(wanted["serial"], wanted["digest"], Lister(NAMES)) == expected(numbers)
    assert serials.batch(wanted["serial"], wanted["digest"], fields=True).listed([Lister(NAMES)]) == [expected(numbers)]


def test_envelopes_and_structures_are_those_of_each(store, rows):
    serials = store.partitions["primary"].serials
    for wanted in (rows, rows[3:9], rows[::-1].copy(), rows[[*range(5), *range(9, 20)]], rows[[4, 9, 1]]):
        each = serials.cached(wanted["serial"].tolist())
        batch = serials.batch(wanted["serial"], wanted["digest"], fields=False)
        assert batch.envelopes() == [one.envelope for one in each]
        assert batch.bodystructures() == [one.bodystructure for one in each]
        assert batch.bodies() == [one.body for one in each]


def test_serials_in_any_order_are_left_to_others(store, rows):
    serials = store.partitions["primary"].serials
    drawn = random.Random(3)
    for count in (2, 9, MESSAGES):
        numbers = drawn.sample(range(MESSAGES), count)
        wanted = rows[numbers]
        assert serials.listed(wanted["serial"], wanted["digest"], Lister(NAMES)) in (None, expected(numbers))
        found = serials.batch(wanted["serial"], wanted["digest"], fields=True)
        assert found.listed([Lister(NAMES)]) == [expected(numbers)]
    backwards = rows[::-1].copy()
    assert serials.listed(backwards["serial"], backwards["digest"], Lister(NAMES)) is None


@pytest.mark.parametrize("lost", [0, 11, MESSAGES - 1])
def test_a_lost_record_is_found_to_be_lost(store, rows, lost):
    partition = store.partitions["primary"]
    transact(partition.env, lambda txn: partition.serials.forget_cached(int(rows["serial"][lost]), txn))
    assert partition.serials.listed(rows["serial"], rows["digest"], Lister(NAMES)) is None
    assert partition.serials.batch(rows["serial"], rows["digest"], fields=False) is None
    found = partition.serials.cached(rows["serial"].tolist())
    assert [at for at, one in enumerate(found) if one is None] == [lost]
    partition.serials.rebuild_cached(rows[lost])
    assert partition.serials.listed(rows["serial"], rows["digest"], Lister(NAMES)) == expected(range(MESSAGES))


def test_a_record_of_another_message_is_not_taken(store, rows):
    changed = np.array(rows, ROW)
    changed["digest"][5] = changed["digest"][6]
    assert store.partitions["primary"].serials.listed(changed["serial"], changed["digest"], Lister(NAMES)) is None
    assert store.partitions["primary"].serials.batch(changed["serial"], changed["digest"], fields=False) is None
