"""sequence-set, both ways: RFC 3501 §9."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from imap.wire.framer import Frame
from imap.wire.grammar import MAX_NUMBER, SyntaxProblem
from imap.wire.numbers import ALL, STAR, NumberSet, format_numbers, list_pieces
from imap.wire.scanner import Scanner, number_set, parse_number_set

SETS = [
    (b"1", ((1, 1),)),
    (b"4294967295", ((4294967295, 4294967295),)),
    (b"*", ((STAR, STAR),)),
    (b"1:*", ((1, STAR),)),
    (b"*:4", ((STAR, 4),)),
    (b"*:*", ((STAR, STAR),)),
    (b"2,4:7,9,12:*", ((2, 2), (4, 7), (9, 9), (12, STAR))),
    (b"7:4", ((7, 4),)),
    (b"5:5", ((5, 5),)),
]


@pytest.mark.parametrize("octets, ranges", SETS)
def test_a_set_is_read_and_written(octets, ranges):
    numbers = number_set(Scanner(Frame((octets,))))
    assert numbers == NumberSet(ranges)
    assert parse_number_set(bytes(numbers), 10) == numbers


def test_zeros_before_a_number_are_passed_over():
    assert parse_number_set(b"01:0010,*:007," + b"0" * 99 + b"4294967295", 9).ranges == (
        (1, 10), (STAR, 7), (MAX_NUMBER, MAX_NUMBER))


@pytest.mark.parametrize("octets", [b"0", b"", b",", b"1,", b",1", b"1:", b":1", b"1:2:3", b"00", b"1:00",
                                    b"4294967296", b"1:4294967296", b"99999999999999999999", b"**", b"1:0", b"0:1",
                                    b"*1", b"1*"])
def test_what_is_no_set_is_refused(octets):
    with pytest.raises(SyntaxProblem):
        parse_number_set(octets, 10)


def test_the_ranges_are_counted():
    assert len(parse_number_set(b"1,3,5", 3).ranges) == 3
    with pytest.raises(SyntaxProblem):
        parse_number_set(b"1,3,5", 2)


@pytest.mark.parametrize("octets, largest, ranges", [
    (b"1:*", 0, []), (b"*", 0, []), (b"5:7", 0, [(5, 7)]), (b"*", 9, [(9, 9)]), (b"12:*", 9, [(9, 12)]),
    (b"*:3", 9, [(3, 9)]), (b"7:4", 9, [(4, 7)]), (b"5,1:2,3,9:6", 9, [(1, 3), (5, 9)]), (b"4,4,4", 9, [(4, 4)]),
    (b"1:10,2:3", 99, [(1, 10)])])
def test_a_set_is_resolved(octets, largest, ranges):
    assert parse_number_set(octets, 100).resolve(largest) == ranges


UIDS = np.array([2, 3, 5, 8, 4000000000], dtype=np.uint32)


@pytest.mark.parametrize("octets, chosen", [
    (b"1:*", [0, 1, 2, 3, 4]), (b"*", [4]), (b"4294967295:*", [4]), (b"4,6:7", []), (b"3:8", [1, 2, 3]),
    (b"8,2", [0, 3]),
    (b"8,2:3,1:2", [0, 1, 3]), (b"4294967295", []), (b"6", []), (b"5", [2]), (b"4000000000:1", [0, 1, 2, 3, 4])])
def test_uids_are_selected(octets, chosen):
    assert parse_number_set(octets, 100).select(UIDS).tolist() == chosen


def test_nothing_is_selected_of_nothing():
    assert ALL.select(UIDS[:0]).tolist() == []


@pytest.mark.parametrize("octets, positions", [
    (b"1:*", [0, 1, 2]), (b"*", [2]), (b"3,1", [0, 2]), (b"2:1,2:3", [0, 1, 2]), (b"3:*", [2])])
def test_sequence_numbers_are_positions(octets, positions):
    assert parse_number_set(octets, 100).positions(3).tolist() == positions


@pytest.mark.parametrize("octets, count", [(b"4", 3), (b"1:4", 3), (b"4:*", 3), (b"*", 0), (b"1:*", 0), (b"1", 0)])
def test_a_message_that_is_not_there_is_a_problem(octets, count):
    with pytest.raises(SyntaxProblem):
        parse_number_set(octets, 100).positions(count)


@pytest.mark.parametrize("numbers, octets", [
    ([], b""), ([7], b"7"), ([1, 2, 3, 5], b"1:3,5"), ([1, 3, 5], b"1,3,5"), ([1, 2, 4, 5], b"1:2,4:5"),
    ([5, 6, 1, 2, 9], b"5:6,1:2,9"), ([4294967294, 4294967295], b"4294967294:4294967295")])
def test_numbers_are_written(numbers, octets):
    assert format_numbers(np.array(numbers, dtype=np.uint32)) == octets
    assert format_numbers(numbers) == octets


numbers = st.integers(1, 30) | st.integers(1, 0xFFFFFFFF)
ranges = st.tuples(st.just(STAR) | numbers, st.just(STAR) | numbers)


@given(st.lists(ranges, min_size=1, max_size=8), st.sets(numbers, max_size=30))
def test_selection_is_what_the_words_of_the_rfc_say(pairs, uids):
    array = np.array(sorted(uids), dtype=np.uint32)
    largest = max(uids, default=0)
    wanted = set()
    for first, last in pairs:
        low, high = sorted((first or largest, last or largest))
        wanted |= {uid for uid in uids if low <= uid <= high}
    chosen = NumberSet(tuple(pairs)).select(array)
    assert array[chosen].tolist() == sorted(wanted)


@given(st.sets(numbers, min_size=1, max_size=60))
def test_what_is_written_is_read_back(values):
    array = np.array(sorted(values), dtype=np.uint32)
    assert parse_number_set(format_numbers(array), 100).select(array).tolist() == list(range(len(array)))
    assert sum(last - first + 1 for first, last in parse_number_set(format_numbers(array), 100).ranges) == len(array)


@given(st.integers(0, 300), st.randoms(use_true_random=False))
def test_numbers_are_listed(count, random):
    """RFC 3501 §7.2.5: each after a blank, in this order."""
    chosen = [random.choice((random.randint(1, 1200), random.randint(1, 0xFFFFFFFF))) for _ in range(count)]
    assert b"".join(list_pieces(np.array(chosen, np.uint32))) == b"".join(b" %d" % number for number in chosen)


def test_long_lists_and_every_width():
    chosen = [10 ** width + add for width in range(10) for add in (0, 1, -1) if 10 ** width + add > 0] * 1000
    assert b"".join(list_pieces(np.array(chosen))) == b"".join(b" %d" % number for number in chosen)
