"""The log of expunged UIDs (RFC 7162 §3.2.5.1): ranges, what went after a MODSEQ, what happens when it is trimmed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mboxlist.names import MailboxName
from store.mailboxes import namespace
from store.mailboxes.copymessages import copy_messages
from store.mailboxes.expunge import remove
from store.tables.vanished import from_ranges, to_ranges
from tests.support.stores.stores import deliver, reopen_after_crash

LIMIT = 64                  # octets: 8 ranges


def array(*uids):
    return np.array(uids, np.uint32)


@pytest.mark.parametrize("uids, pairs", [
    ((1,), [(1, 1)]),
    ((1, 2, 3), [(1, 3)]),
    ((1, 3, 5), [(1, 1), (3, 3), (5, 5)]),
    ((7, 8, 10, 11, 12, 4294967295), [(7, 8), (10, 12), (4294967295, 4294967295)]),
    ((4294967294, 4294967295), [(4294967294, 4294967295)]),
])
def test_ranges(uids, pairs):
    data = b"".join(first.to_bytes(4, "little") + last.to_bytes(4, "little") for first, last in pairs)
    assert to_ranges(array(*uids)) == data
    assert from_ranges(data).tolist() == list(uids)


@given(st.sets(st.integers(1, 200) | st.integers(1, 2**32 - 1), min_size=1))
def test_ranges_both_ways(uids):
    assert from_ranges(to_ranges(array(*sorted(uids)))).tolist() == sorted(uids)


@pytest.fixture
def inbox(store):
    """INBOX with UIDs 1 to 40, and a log of at most 8 ranges."""
    store.partitions["primary"].vanished.limit = LIMIT
    for number in range(40):
        deliver(store, b"Subject: %d\r\n\r\n" % number, "user/alice/INBOX")
    return store.entry(MailboxName("alice", "INBOX"))


def gone(store, entry, since):
    found = store.vanished(entry, since)
    return None if found is None else found.tolist()


def test_what_went_after_a_modseq(store, inbox):
    start = store.status(inbox).highestmodseq
    remove(store, inbox, [9, 2, 3])
    after_one = store.status(inbox).highestmodseq
    remove(store, inbox, [1, 9])                # 9 is gone already
    assert gone(store, inbox, start) == gone(store, inbox, 0) == [1, 2, 3, 9]
    assert gone(store, inbox, after_one) == [1]
    assert gone(store, inbox, store.status(inbox).highestmodseq) == []
    assert gone(store, inbox, 1 << 63) == []    # what a client from another life believes


def test_nothing_is_logged_when_nothing_went(store, inbox):
    remove(store, inbox, [1000])
    assert store.status(inbox).logged == 0


def test_what_was_moved_away_has_vanished(store, inbox):
    start = store.status(inbox).highestmodseq
    other = namespace.create_mailbox(store, MailboxName("alice", "Archive"))
    copy_messages(store, inbox, other, [4, 6], remove=True)
    copy_messages(store, inbox, inbox, [5], remove=True)
    assert gone(store, inbox, start) == [4, 5, 6]
    assert gone(store, other, 0) == []


def test_it_is_trimmed_and_then_the_old_is_no_longer_known(store, inbox):
    start = store.status(inbox).highestmodseq
    steps = []
    for uid in range(1, 17, 2):                 # eight ranges: that many fit
        remove(store, inbox, [uid])
        steps.append(store.status(inbox).highestmodseq)
    assert gone(store, inbox, start) == list(range(1, 17, 2))
    remove(store, inbox, [17])                  # the ninth; the older half goes, four ranges stay
    assert gone(store, inbox, start) is None
    assert gone(store, inbox, steps[3]) is None
    assert gone(store, inbox, steps[4]) == [11, 13, 15, 17]
    state = store.status(inbox)
    assert state.log_since == steps[4]
    assert state.logged == store.partitions["primary"].vanished.octets(inbox.id) == 32


def test_an_expunge_larger_than_the_log_empties_it(store, inbox):
    before = store.status(inbox).highestmodseq
    remove(store, inbox, range(1, 40, 2))       # 20 ranges
    assert gone(store, inbox, before) is None
    assert gone(store, inbox, store.status(inbox).highestmodseq) == []
    remove(store, inbox, [2])
    assert gone(store, inbox, store.status(inbox).highestmodseq - 1) == [2]


def test_it_outlives_a_crash(store, inbox):
    start = store.status(inbox).highestmodseq
    remove(store, inbox, [1, 2])
    store.partitions["primary"].env.flush()
    store.__dict__.update(reopen_after_crash(store).__dict__)
    assert gone(store, inbox, start) == [1, 2]
    remove(store, inbox, [3])
    assert gone(store, inbox, start) == [1, 2, 3]
    assert gone(store, inbox, store.status(inbox).highestmodseq - 1) == [3]


def test_each_mailbox_has_its_own(store, inbox):
    other = store.entry(MailboxName("bob", "INBOX"))
    deliver(store, b"x", "user/bob/INBOX")
    remove(store, other, [1])
    assert gone(store, inbox, 0) == [] and gone(store, other, 0) == [1]
    store.partitions["primary"].transact(
        lambda txn: txn.partition.vanished.forget(inbox.id, txn.handle))
    assert gone(store, other, 0) == [1]
