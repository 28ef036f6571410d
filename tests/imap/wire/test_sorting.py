"""SORT and THREAD: RFC 5256 §4, §5."""

import numpy as np
import pytest

from imap.wire import responses
from imap.wire.commands import BadCommand, parse_command
from imap.wire.framer import Frame
from imap.wire.search import Result
from imap.wire.sorting import Algorithm, Sort, Thread, thread_data
from store.search.searchkeys import All, And, HasFlag, Received, Text
from store.search.sort import Criterion, SortKey
from store.values import Flag


def _sorted(numbers, modseq=0):
    return b"".join(responses.search_pieces(b"SORT", np.asarray(numbers, np.int64), modseq))


def parsed(*parts):
    tag, command = parse_command(Frame(parts))
    assert tag == b"a"
    return command


@pytest.mark.parametrize(("octets", "criteria"), [
    (b"(SUBJECT)", (Criterion(SortKey.SUBJECT),)),
    (b"(subject Reverse DATE)", (Criterion(SortKey.SUBJECT), Criterion(SortKey.DATE, reverse=True))),
    (b"(REVERSE ARRIVAL CC FROM TO SIZE)", (
        Criterion(SortKey.ARRIVAL, True), Criterion(SortKey.CC), Criterion(SortKey.FROM), Criterion(SortKey.TO),
        Criterion(SortKey.SIZE))),
    (b"(DISPLAYFROM REVERSE DISPLAYTO)", (Criterion(SortKey.DISPLAYFROM), Criterion(SortKey.DISPLAYTO, True))),
])
def test_sort(octets, criteria):
    assert parsed(b"a SORT " + octets + b" UTF-8 ALL") == Sort(criteria, All(), b"UTF-8")
    assert parsed(b"a UID SORT " + octets + b' "us-ascii" SEEN ALL') == Sort(
        criteria, And((HasFlag(Flag.SEEN), All())), b"US-ASCII", by_uid=True)
    assert parsed(b"a SORT RETURN (MIN COUNT) " + octets + b" UTF-8 ALL") == Sort(
        criteria, All(), b"UTF-8", results=frozenset({Result.MIN, Result.COUNT}))


def test_thread():
    assert parsed(b"a THREAD ORDEREDSUBJECT UTF-8 ALL") == Thread(Algorithm.ORDEREDSUBJECT, All(), b"UTF-8")
    assert parsed(b"a UID THREAD references us-ascii SEEN") == Thread(
        Algorithm.REFERENCES, HasFlag(Flag.SEEN), b"US-ASCII", by_uid=True)
    since = parsed(b"a THREAD REFERENCES UTF-8 SINCE 5-MAR-2000").key
    assert isinstance(since, Received)


def test_texts_are_in_the_charset():
    assert parsed(b"a SORT (DATE) KOI8-R TEXT {3+}", "мир".encode("koi8-r"), b"").key == Text("мир")
    assert parsed(b"a THREAD REFERENCES ISO-8859-1 TEXT {1}", b"\xe9", b"").key == Text("é")


@pytest.mark.parametrize("octets", [b"SORT (DATE) X-NONE ALL", b"THREAD REFERENCES X-NONE ALL"])
def test_an_unknown_charset_is_left_to_the_session(octets):
    assert not parsed(b"a " + octets).charset_known


@pytest.mark.parametrize("octets", [
    b"SORT", b"SORT ", b"SORT ()", b"SORT () UTF-8 ALL", b"SORT (DATE)", b"SORT (DATE) ", b"SORT (DATE) UTF-8",
    b"SORT (DATE) UTF-8 ", b"SORT (DATE) ALL", b"SORT (REVERSE) UTF-8 ALL", b"SORT (REVERSE REVERSE DATE) UTF-8 ALL",
    b"SORT (DATE SIZE UTF-8 ALL", b"SORT ( ) UTF-8 ALL", b"SORT (AGE) UTF-8 ALL",
    b"SORT DATE UTF-8 ALL", b"SORT (DATE)UTF-8 ALL", b"SORT (DATE) UTF-8 NONSENSE", b"SORT RETURN (MIN) UTF-8 ALL",
    b"SORT RETURN (X) (DATE) UTF-8 ALL", b"SORT RETURNS (MIN) (DATE) UTF-8 ALL",
    b"SORT (" + b"DATE " * 64 + b"DATE) UTF-8 ALL",
    b"THREAD", b"THREAD REFERENCES", b"THREAD REFERENCES UTF-8", b"THREAD REFS UTF-8 ALL",
    b"THREAD (REFERENCES) UTF-8 ALL",
    b"THREAD RETURN (MIN) REFERENCES UTF-8 ALL", b"THREAD REFERENCES UTF-8 NONSENSE", b"UID THREAD", b"UID SORT"])
def test_wrong_forms(octets):
    with pytest.raises(BadCommand) as refused:
        parsed(b"a " + octets)
    assert refused.value.problem.status == b"BAD"


def test_sort_response():
    assert _sorted([2, 84, 882]) == b"* SORT 2 84 882\r\n"
    assert _sorted([]) == b"* SORT\r\n"
    assert _sorted([5, 3], 917162500) == b"* SORT 5 3 (MODSEQ 917162500)\r\n"


@pytest.mark.parametrize(("items", "by_uid", "octets"), [
    ([(b"COUNT", b"17"), (b"ALL", b"4:18,21,28")], True, b'* ESEARCH (TAG "a567") UID COUNT 17 ALL 4:18,21,28\r\n'),
    ([(b"MIN", b"2")], False, b'* ESEARCH (TAG "a567") MIN 2\r\n'),
    ([], True, b'* ESEARCH (TAG "a567") UID\r\n')])
def test_esearch_response(items, by_uid, octets):
    assert responses.esearch(b"a567", items, by_uid=by_uid) == octets


# RFC 5256 §4: what a client is told, and the tree that it stands for; message n has number n here, 100 is no message.
TREES = [
    (b"* THREAD (2)(3 6 (4 23)(44 7 96))\r\n", [2, 3], {3: [6], 6: [4, 44], 4: [23], 44: [7], 7: [96]}),
    (b"* THREAD ((3)(5))\r\n", [100], {100: [3, 5]}),
    (b"* THREAD\r\n", [], {}),
    (b"* THREAD (1)(2)(3)\r\n", [1, 2, 3], {}),
    (b"* THREAD (1 (2)(3))((4 5)(6 (7)(8 9)))\r\n", [1, 100], {1: [2, 3], 100: [4, 6], 4: [5], 6: [7, 8], 8: [9]}),
]


@pytest.mark.parametrize(("octets", "roots", "children"), TREES)
def test_thread_response(octets, roots, children):
    assert thread_data(roots, children, range(100)) == octets


def test_a_thread_may_be_very_deep():
    children = {number: [number + 1] for number in range(50_000)}
    assert thread_data([0], children, range(50_001)) == b"* THREAD (" + b" ".join(
        [b"%d" % number for number in range(50_001)]) + b")\r\n"
    forked = {2 * at: [2 * at + 1, 2 * at + 2] for at in range(20_000)}
    assert thread_data([0], forked, range(50_001)).endswith(b"(40000))" + b")" * 19_999 + b"\r\n")
