"""store/accounts/throttle/sharedcounts.py: counters of several processes, and limits that hold over all of them."""

import os
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.accounts.throttle import sharedcounts
from store.accounts.throttle.sharedcounts import Counts, Place
from store.net.limits import TOO_MANY, TOO_MANY_HERE, ConnectionLimits

KEY = "00" * 32


@pytest.fixture
def three():
    """The counters of three processes."""
    handle = sharedcounts.make(3)
    yield [Counts.at(Place(handle, own, 3, KEY)) for own in range(3)]
    os.close(handle)


def test_each_sees_what_the_others_count_and_not_its_own(three):
    one, two, other = three
    one.add(b"a", 1)
    one.add(b"a", 1)
    two.add(b"a", 1)
    assert [each.others(b"a") for each in three] == [1, 2, 3]
    assert [each.others(b"b") for each in three] == [0, 0, 0]
    one.add(b"a", -1)
    assert other.others(b"a") == 2


@pytest.mark.long
@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 300), st.booleans()), max_size=300))
def test_never_too_low_and_nothing_is_left(steps):
    handle = sharedcounts.make(3)
    processes = [Counts.at(Place(handle, own, 3, KEY)) for own in range(3)]
    there = Counter()
    for process, number, more in steps:
        if not more and not there[process, number]:
            continue
        change = 1 if more else -1
        processes[process].add(b"%d" % number, change)
        there[process, number] += change
    for number in range(300):
        assert processes[2].others(b"%d" % number) >= there[0, number] + there[1, number]
    for (process, number), times in there.items():
        for _ in range(times):
            processes[process].add(b"%d" % number, -1)
    assert not any(os.pread(handle, os.fstat(handle).st_size, 0))
    os.close(handle)


def test_ten_thousand_names_are_hardly_ever_taken_for_one_another(three):
    for number in range(10_000):
        three[0].add(b"192.0.2.%d" % number, 1)
    wrong = sum(three[1].others(b"198.51.100.%d" % number) > 0 for number in range(1000))
    # a cell of a row is taken with 1 - exp(-10000/16384) = 0.457; all four: 4.4 %, by one each time
    assert wrong < 100
    assert max(three[1].others(b"198.51.100.%d" % number) for number in range(1000)) <= 2


def test_who_does_not_know_the_key_does_not_know_the_cells(three):
    handle = sharedcounts.make(2)
    one, other = Counts.at(Place(handle, 0, 2, KEY)), Counts.at(Place(handle, 1, 2, "11" * 32))
    one.add(b"a", 1)
    assert other.others(b"a") == 0
    assert KEY not in repr(Place(handle, 0, 2, KEY))
    os.close(handle)


def processes(three, **limits):
    return [ConnectionLimits(**{"total": 100, "per_address": 100, "server": "imap", **limits}, shared=each)
            for each in three]


def test_limits_hold_over_all_processes(three):
    one, two, other = processes(three, total=3)
    assert not one.refusal("192.0.2.1") and not two.refusal("192.0.2.2") and not other.refusal("local")
    assert [each.refusal("192.0.2.9") for each in (one, two, other)] == [TOO_MANY] * 3
    two.release("192.0.2.2")
    assert not one.refusal("192.0.2.9")


def test_those_of_an_address_too(three):
    one, two, other = processes(three, per_address=2)
    assert not one.refusal("192.0.2.1") and not two.refusal("::ffff:192.0.2.1")
    assert other.refusal("192.0.2.1") == TOO_MANY_HERE
    assert not other.refusal("192.0.2.2")
    one.release("192.0.2.1")
    assert not other.refusal("192.0.2.1")


def test_those_of_a_user_too(three):
    one, two, other = processes(three, per_user=2)
    assert one.admit_user("alice") and two.admit_user("alice")
    assert not other.admit_user("alice") and other.admit_user("bob")
    two.release_user("alice")
    assert other.admit_user("alice")
    assert not one.admit_user("alice")


def test_those_before_login_too(three):
    one, two, other = processes(three, early=2)
    assert one.admit_early("192.0.2.1") and two.admit_early("192.0.2.1")
    assert not other.admit_early("192.0.2.1") and other.admit_early("192.0.2.2") and other.admit_early("local")
    two.release_early("192.0.2.1")
    assert other.admit_early("192.0.2.1")


def test_servers_are_apart(three):
    imap = ConnectionLimits(1, 1, 1, server="imap", shared=three[0])
    pop3 = ConnectionLimits(1, 1, 1, server="pop3", shared=three[1])
    assert not imap.refusal("192.0.2.1") and not pop3.refusal("192.0.2.1")
    assert imap.admit_user("alice") and pop3.admit_user("alice")


def test_who_has_more_connections_than_another_one_knows_it(three):
    one, two, other = processes(three)
    assert not one.is_ahead()
    for each in (one, two):                     # `other` does not serve it
        each.show()
    assert not one.refusal("192.0.2.1") and one.is_ahead() and not two.is_ahead() and not other.open
    assert not two.refusal("192.0.2.1") and not one.is_ahead() and not two.is_ahead()
    other.show()
    assert one.is_ahead() and two.is_ahead() and not other.is_ahead()
    one.release("192.0.2.1")
    assert not one.is_ahead()


def test_who_is_full_is_left_nobody(three):
    one, two, other = processes(three)
    for each in (one, two, other):
        each.show()
    assert not two.refusal("192.0.2.1") and two.is_ahead()
    one.show(full=True)
    assert one.is_ahead() and two.is_ahead() and not other.is_ahead()
    other.show(full=True)
    assert not two.is_ahead() and one.is_ahead() and other.is_ahead()
    two.show(full=True)
    assert not one.is_ahead() and not two.is_ahead() and not other.is_ahead()      # somebody must say it
    two.release("192.0.2.1")
    assert one.is_ahead() and not two.is_ahead()


def test_who_is_refused_does_not_count_as_a_connection(three):
    one, two, _ = processes(three, total=1)
    two.show()
    assert not one.refusal("192.0.2.1") and one.refusal("192.0.2.1") == TOO_MANY
    one.release("192.0.2.1")
    assert not one.is_ahead()


def test_each_server_has_its_own(three):
    imap = ConnectionLimits(10, 10, 1, server="imap", shared=three[0])
    pop3 = ConnectionLimits(10, 10, 1, server="pop3", shared=three[1])
    pop3.show()
    assert not imap.refusal("192.0.2.1") and not imap.is_ahead()
    assert not ConnectionLimits(1, 1, server="verification", shared=three[2]).is_ahead()
