"""What processes show each other: who listens to what, and what has been changed."""

import os

import pytest

from mboxlist.entry import MailboxId
from store.changes import Change
from store.news import changeboard
from store.news.changeboard import CHANGES, INTERESTS, MOST, Board, Place

SEVEN, EIGHT = MailboxId(7), MailboxId(8)


@pytest.fixture
def boards():
    """Those of two processes, and of a third that shows nothing."""
    handle = changeboard.make(3)
    yield [Board(Place(handle, own, 3)) for own in range(3)]
    os.close(handle)


def test_who_listens_is_seen_by_the_others(boards):
    first, second, _ = boards
    assert not first.wanted([7])
    second.listen(7, 1)
    second.listen((1 << 31) + 5, 1)             # the number of an account
    assert first.wanted([7]) and first.wanted([8, (1 << 31) + 5]) and not first.wanted([8, 9])
    assert not second.wanted([7])               # who listens here needs no news
    second.listen(7, -1)
    assert not first.wanted([7])


def test_a_counter_that_is_full_stays(boards):
    first, second, _ = boards
    for number in range(MOST + 10):
        second.listen(7 + number * INTERESTS, 1)
    for number in range(MOST + 10):
        second.listen(7 + number * INTERESTS, -1)
    assert first.wanted([7])                    # too much news, never too little


def test_a_process_without_a_part_is_known_as_such(boards):
    assert boards[0].wants(os.getpid(), [7]) is False
    assert boards[0].wants(os.getpid() + 1, [7]) is None


def test_what_was_changed_is_shown(boards):
    first, second, third = boards
    changes = [Change(1 << 31, SEVEN, (1 << 63) + 5, frozenset((0, 9, 67108863))), Change(5, SEVEN, 6, frozenset()),
               Change(5, EIGHT, 1, frozenset(range(64)))]
    first.note([*changes, Change(5, SEVEN, 7, None), Change(5, SEVEN, 8, frozenset(range(65)))])
    for other in (second, third):
        assert other.changes_of(SEVEN) == changes[:2] and other.changes_of(EIGHT) == changes[2:]
    assert first.changes_of(SEVEN) == []        # its own it remembers


def test_the_last_ones_are_shown(boards):
    first, second, _ = boards
    for before in range(CHANGES + 3):
        first.note([Change(5, SEVEN, before, frozenset((before,)))])
    assert sorted(change.before for change in second.changes_of(SEVEN)) == list(range(3, CHANGES + 3))


def test_an_entry_that_is_just_being_written_is_passed_over(boards):
    first, second, _ = boards
    first.note([Change(5, SEVEN, 1, frozenset((1, 2))), Change(5, SEVEN, 2, frozenset((3,)))])
    octets = first._own.octets
    for at in range(changeboard._RING + 4, changeboard._RING + 32):
        octets[at] ^= 1
        assert [change.before for change in second.changes_of(SEVEN)] == [2], at
        octets[at] ^= 1
