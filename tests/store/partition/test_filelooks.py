"""Many message files looked at in one go: each as it would be looked at by itself."""

import hashlib
import os

import numpy as np
import pytest

from store.partition import filelooks, serials
from store.partition.filelooks import read_through, sizes
from store.rebuild import cacherebuild
from store.tables import references
from store.tables.references import in_order
from store.values import Finding
from tests.support.stores.stores import deliver

TRACE = b"Return-Path: <sender@example.org>\r\n"


TOLD = "its file has", "its file is missing", "its file cannot be used"


@pytest.fixture
def mail(store, monkeypatch):
    """What messages.db says of five messages, and a function that gives the path of each; pieces are so small that some
    of the files, one of them to the octet, are longer."""
    partition = store.partitions["primary"]
    for number in range(5):
        deliver(store, b"Subject: %d\r\n\r\n" % number + b"x" * 20 * number, "user/alice/INBOX", trace=TRACE)
    partition.files.drop_staged_names()
    known = cacherebuild.known(partition, [digest for digest, _ in partition.refs.all()])
    known = known[np.argsort(known["size"])]
    monkeypatch.setattr(filelooks, "READ_OCTETS", int(known["size"][3]))
    return partition, known, lambda at: partition.files.path(bytes(known["digest"][at]))


def content(path):
    with open(path, "rb") as file:
        return file.read()


def write(path, octets):
    with open(path, "wb") as file:
        file.write(octets)


def looked_at(partition, known, **how):
    found = list(cacherebuild.look_at(partition, known, **how))
    assert all(isinstance(item, Finding) for item in found)
    return sorted((item.where.removeprefix("message "), next(text for text in TOLD if item.what.startswith(text)))
                  for item in found)


def test_files_as_they_should_be(mail):
    partition, known, path = mail
    assert sizes(partition.files, known["digest"]).tolist() == known["size"].tolist() == [
        os.stat(path(at)).st_size for at in range(5)]
    assert read_through(partition.files, known).tolist() == [True] * 5
    assert len(sizes(partition.files, known["digest"][:0])) == len(read_through(partition.files, known[:0])) == 0
    assert looked_at(partition, known) == looked_at(partition, known, deep=True) == []


HARM = {
    "an octet more": (lambda octets: octets + b"x", "its file has"),
    "an octet fewer": (lambda octets: octets[:-1], "its file has"),
    "empty": (lambda octets: b"", "its file has"),
    "another octet at the end": (lambda octets: octets[:-1] + b"y", "its file cannot be used"),
    "another octet behind the trace header": (lambda octets: octets.replace(b"Subject", b"Xubject"),
                                              "its file cannot be used"),
}


@pytest.mark.parametrize("at", range(5))
@pytest.mark.parametrize("harm, told", HARM.values(), ids=HARM)
def test_files_that_were_harmed(mail, at, harm, told):
    partition, known, path = mail
    octets = content(path(at))
    write(path(at), harm(octets))
    assert sizes(partition.files, known["digest"])[at] == len(harm(octets))
    assert read_through(partition.files, known).tolist() == [other != at for other in range(5)]
    expected = [(known["digest"][at].tobytes().hex(), told)]
    assert looked_at(partition, known, deep=True) == expected
    assert looked_at(partition, known) == (expected if told == "its file has" else [])
    write(path(at), octets)


def test_the_trace_header_is_no_part_of_the_digest(mail):
    partition, known, path = mail
    for at in range(5):
        write(path(at), content(path(at)).replace(b"sender", b"SENDER"))
    assert read_through(partition.files, known).all() and looked_at(partition, known, deep=True) == []


def test_files_that_are_not_where_they_should_be(mail):
    partition, known, path = mail
    kept = content(path(0)), content(path(1)), content(path(2))
    os.rename(path(0), partition.files.staged_path(int(known["serial"][0])))       # a name that it may have, too
    os.unlink(path(1))
    os.unlink(path(2))
    os.mkdir(path(2))
    assert sizes(partition.files, known["digest"]).tolist()[:2] == [-1, -1]
    assert read_through(partition.files, known).tolist() == [False] * 3 + [True] * 2
    for deep in (False, True):
        found = dict(looked_at(partition, known, deep=deep))
        assert found.keys() == {known["digest"][at].tobytes().hex() for at in (1, 2)}
        assert found[known["digest"][1].tobytes().hex()] == "its file is missing"
    os.rmdir(path(2))
    for at in range(3):
        write(path(at), kept[at])


def test_digests_are_put_in_order_octet_by_octet():
    drawn = [hashlib.blake2b(b"%d" % number, digest_size=32).digest() for number in range(200)]
    for octets in (b"", b"\0", b"\0\0\1", b"\x7f\x80", b"\xff" * 31, b"a\0b", b"a", b"a\0"):
        drawn += [octets.ljust(32, b"\0"), octets.rjust(32, b"\0"), octets.ljust(32, b"\xff"), octets.ljust(32, b"a")]
    drawn += drawn[:50]
    for some in (drawn, drawn[:200], drawn[:200] + drawn[-50:]):        # with the same beginnings, without, and twice
        rows = np.zeros(len(some), [("uid", "<u4"), ("digest", "V32")])
        rows["digest"] = np.frombuffer(b"".join(some), "V32")
        for digests in (rows["digest"], rows["digest"].copy()):
            assert [some[at] for at in in_order(digests)] == sorted(some)
    assert in_order(np.empty(0, "V32")).tolist() == []


def test_the_length_is_the_one_that_messages_db_says(mail):
    """Also where the content agrees with the digest."""
    partition, known, _ = mail
    known["size"] += np.array([1, 0, 0, 1, 1], np.uint64)
    assert read_through(partition.files, known).tolist() == [False, True, True, False, False]


@pytest.mark.parametrize("held", [1, 2, 4, 5, 6])
def test_what_is_known_of_messages_is_the_same_however_much_is_held_at_a_time(mail, monkeypatch, held):
    place, known, _ = mail
    digests = known["digest"].tolist()
    monkeypatch.setattr(references, "HELD", held)
    monkeypatch.setattr(serials, "HELD", held)
    unknown = [bytes(32), b"\xff" * 32]
    found = place.refs.figures(np.frombuffer(b"".join([unknown[0], *digests, unknown[1]]), "V32"))
    assert found["serial"].tolist() == [0, *known["serial"].tolist(), 0]
    assert found["size"].tolist() == [0, *known["size"].tolist(), 0]
    assert place.serials.are_cached(known["serial"], known["digest"], known["trace"]).tolist() == [True] * 5
    others = known["serial"].copy()
    others[3] = 10_000
    assert place.serials.are_cached(others, known["digest"], known["trace"]).tolist() == [True] * 3 + [False, True]
    swapped = known["digest"][::-1]
    assert place.serials.are_cached(known["serial"], swapped, known["trace"]).tolist() == [False] * 2 + [True] + [
        False] * 2
    assert not len(place.serials.are_cached(known["serial"][:0], known["digest"][:0], known["trace"][:0]))
    assert not len(place.refs.figures(known["digest"][:0]))
