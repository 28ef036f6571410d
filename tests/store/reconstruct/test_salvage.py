"""Which references are missing, found from the sum of their marks."""

from random import Random

import numpy as np
import pytest

from store.partition.records import sound
from store.rebuild import salvage
from store.rebuild.salvage import Possible, solve
from store.tables.index import ROW, encode
from store.tables.references import mark

MASK = (1 << 64) - 1
RANGES = [(1, 1, 65), (7, 129, 193), (1 << 31, 1, 10), (9, 5, 5)]
EVERY = [(mailbox, uid) for mailbox, first, end in RANGES for uid in range(first, end)]


def total(*references):
    return sum(mark(mailbox, uid) for mailbox, uid in references) & MASK


@pytest.mark.parametrize("seed", range(20))
def test_one_and_two_are_found(seed):
    """Any two of them; nothing else has the same sum, unless by a chance of one in 2^50."""
    one, two = Random(seed).sample(EVERY, 2)
    possible = Possible.of(RANGES)
    assert solve(1, total(one), set(), possible) == [one]
    assert set(solve(2, total(one, two), set(), possible)) == {one, two}


def test_nothing_is_found_where_nothing_is():
    possible = Possible.of(RANGES)
    one, two = EVERY[0], (3, 1)
    for missing, value in ((1, total(two)), (1, 0), (1, MASK), (2, total(one, two)), (2, total(one, one)), (2, 0),
                           (3, total(*EVERY[:3])), (0, 1)):
        assert solve(missing, value, set(), possible) is None
    empty = Possible.of([])
    assert solve(1, 5, set(), empty) is None and solve(2, 5, set(), empty) is None


def test_what_records_themselves_claim_comes_first():
    claimed = {(99, 1), (99, 2), (99, 3)}
    assert set(solve(3, total(*claimed), claimed, Possible.of([]))) == claimed
    assert solve(3, total(*claimed) ^ 1, claimed, Possible.of([])) is None


def test_the_search_for_two_has_an_end():
    """However many messages lack two: what is past the limit stays open; one that lacks one is found all the same."""
    possible = Possible.of(RANGES)
    assert possible.left == salvage.PAIRS
    possible.left = 3 * len(EVERY)
    found = [solve(2, total(*EVERY[n:n + 2]), set(), possible) for n in range(5)]
    assert [each is not None for each in found] == [True] * 3 + [False] * 2
    assert solve(1, total(EVERY[4]), set(), possible) == [EVERY[4]]


@pytest.mark.parametrize(("uids", "is_sound"), [
    ([65], True), ([128], True), ([65, 66, 128], True), (list(range(65, 129)), True), ([64, 65], False),
    ([128, 129], False), ([66, 65], False), ([65, 65], False), ([65, 70, 69, 71], False)])
def test_a_sound_chunk_has_records_of_its_own_uids_in_their_order(uids, is_sound):
    rows = np.zeros(len(uids), ROW)
    rows["uid"] = uids
    value = encode(rows)
    assert sound(7, 1, value) is is_sound
    assert not sound(7, 1, value[:-1] + bytes([value[-1] ^ 1])) and not sound(7, 1, value[-4:]) and not sound(7, 1, b"")
