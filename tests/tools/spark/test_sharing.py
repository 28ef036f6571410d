"""Sharing across partitions and back ends: figures against a simulation of each move; and messages nearly equal."""

import hashlib
from collections import defaultdict

import pytest

from store.store import Store
from tests.support.stores.stores import SMALL, deliver, make_store
from tests.tools.spark.conftest import LOCAL, rows
from tools.spark.generate.generator import Shape, generate
from tools.spark.nearness import HEADER_LIMIT, is_left_out, nearness, plain, plain_header
from tools.spark.sharing import analyse
from tools.spark.source import reading
from tools.spark.sparksession import tables

local = pytest.mark.parametrize("spark", [LOCAL], indirect=True, scope="session")
BODY = b"\r\nHello,\r\nX-Not: a field\r\nReceived: neither\r\n"
FIELDS = b"From: a@example.org\r\nSubject: hello\r\n  again\r\n"


# What is left of a message

@pytest.mark.parametrize("extra", [
    b"Received: from a by b;\r\n\tMon, 1 Jan 2024 00:00:00 +0000\r\n", b"Return-Path: <a@example.org>\r\n",
    b"DELIVERED-TO: bob\r\n", b"X-Spam-Score: 3\r\n", b"x-original-to : bob\r\n",
    b"ARC-Seal: i=1;\r\n a=b;\r\n c=d\r\n",
    b"DKIM-Signature: v=1\r\n", b"Resent-To: bob\r\n", b"Envelope-To: bob\r\nX-Two:\r\n",
])
def test_fields_that_are_left_out(tmp_path, extra):
    for at, octets in enumerate((FIELDS + BODY, extra + FIELDS + BODY, FIELDS + extra + BODY)):
        (tmp_path / str(at)).write_bytes(octets)
    first, *others = (plain(tmp_path / str(at)) for at in range(3))
    assert others == [first, first]
    assert first == hashlib.blake2b(FIELDS + BODY, digest_size=32).digest()


@pytest.mark.parametrize("other", [
    FIELDS.replace(b"hello", b"Hello") + BODY, FIELDS + BODY.replace(b"X-Not: a", b"X-Not: no"),
    FIELDS + b"\r\n" + BODY,
    FIELDS + b"To: x\r\n" + BODY, FIELDS.replace(b"\r\n  again", b"\r\nX: again") + BODY, FIELDS + BODY + b"\r\n", b"",
])
def test_what_makes_another_message(tmp_path, other):
    (tmp_path / "one").write_bytes(FIELDS + BODY)
    (tmp_path / "two").write_bytes(other)
    assert plain(tmp_path / "one") != plain(tmp_path / "two")


@pytest.mark.parametrize(("octets", "kept", "at"), [
    (b"", b"", 0), (b"X-A: 1", b"", 6), (b"A: 1", b"A: 1", 4), (b"X-A: 1\n\nX-B: 2\n", b"", 7), (b"\nX-A: 1\n", b"", 0),
    (b"no field\nX-A: 1\n", b"", 0), (b"X-A: 1\nno field\nX-B: 2\n", b"", 7),
    (b"A: 1\nX-B: 2\n\t3\nC: 4\n\n", b"A: 1\nC: 4\n", 20),
    (b" X-A: folded nothing\n", b"", 0), (b"X-A: \xff\x00\nB: 1\r\n\r\n", b"B: 1\r\n", 14),
])
def test_headers(octets, kept, at):
    assert plain_header(octets) == (kept, at)


def test_a_large_message(tmp_path):
    """Its header is longer than what is looked at; all the same each octet counts."""
    data = b"A: b\r\n" * (HEADER_LIMIT // 6) + b"X-Late: 1\r\n\r\n" + b"z" * HEADER_LIMIT
    (tmp_path / "one").write_bytes(data)
    (tmp_path / "two").write_bytes(data[:-1] + b"y")
    one, two = plain(tmp_path / "one"), plain(tmp_path / "two")
    assert one != two


def test_names():
    assert is_left_out(b"ReCeived") and is_left_out(b"X-") and not is_left_out(b"Message-ID") and not is_left_out(b"x")


def test_rows_of_a_task(tmp_path):
    root = nearly(tmp_path / "store")
    found = [row for task in reading.tasks([str(root)], "messages") for batch in nearness(task)
             for row in batch.to_pylist()]
    assert len(found) == 4 and len({row["plain"] for row in found}) == 2
    assert {row["digest"]: row["octets"] for row in found} == {
        row["digest"]: row["octets"] for row in rows([str(root)], "messages")}


def nearly(root):
    """Three messages that differ at their heads alone, and another one."""
    store: Store = make_store(root, ("alice", "bob"), SMALL)
    for extra in (b"", b"X-To: bob\r\n", b"Received: by a list\r\n"):
        deliver(store, extra + FIELDS + BODY, "user/alice/INBOX")
    deliver(store, FIELDS + BODY + b"more", "user/bob/INBOX", trace=b"Return-Path: <>\r\nReceived: x\r\n")
    for partition in store.partitions.values():
        partition.files.drop_staged_names()
    store.close()
    return root


@local
def test_near_duplicates(spark, tmp_path):
    root = nearly(tmp_path / "store")
    tables(spark, [str(root)], ["messages", "references"])
    found = analyse(spark, [str(root)], near=True)
    sizes = sorted(len(extra + FIELDS + BODY) for extra in (b"", b"X-To: bob\r\n", b"Received: by a list\r\n"))
    assert (found.near["messages"], found.near["files"], found.near["cost"]) == (1, 3, sum(sizes[:2]))
    largest, = found.near["largest"]
    assert len(largest["digests"]) == 3 and largest["octets"] == sum(sizes)
    assert found.totals["contents"] == found.totals["cost"] == 0 and found.moves == found.pairs == []
    spark.catalog.clearCache()


# Duplicates and moves

@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """Two back ends that have many contents in common."""
    folder = tmp_path_factory.mktemp("stores")
    for name, messages, users in (("one", 60, 8), ("two", 90, 5)):
        generate(folder / name, Shape(messages, users, 2, seed=3, small=True))
    return [str(folder / "one"), str(folder / "two")]


def octets_of(held, sizes):
    """What all the files have that somebody holds: on each place each content once."""
    return sum(sizes[digest] for digests in held.values() for digest in set().union(*digests.values()))


def simulated(references, sizes):
    """Every move that saves something, by taking all of a user's messages elsewhere and counting the octets anew."""
    held = defaultdict(lambda: defaultdict(set))
    for row in references:
        held[row["store"]][row["owner"]].add(row["digest"])
    before, found = octets_of(held, sizes), {}
    for home in held:
        for user in held[home]:
            for other in held:
                if user and other != home:
                    after = {place: {owner: set(digests) for owner, digests in owners.items()}
                             for place, owners in held.items()}
                    moved = after[home].pop(user)
                    after[other].setdefault(user, set()).update(moved)
                    saved = before - octets_of(after, sizes)
                    if saved > 0:
                        found[user, home, other] = saved
    return found


@local
def test_duplicates_and_moves(spark, stores):
    files, references = rows(stores, "messages"), rows(stores, "references")
    sizes = {row["digest"]: row["octets"] for row in files}
    by_digest = defaultdict(list)
    for row in files:
        by_digest[row["digest"]].append(row["store"])
    both = [digest for digest, places in by_digest.items() if len(places) == 2]
    tables(spark, stores, ["messages", "references"])
    found = analyse(spark, stores, moves=1000)
    assert len(both) >= 50
    assert found.totals == {"files": len(files), "octets": sum(row["octets"] for row in files), "contents": len(both),
                            "copies": len(both), "cost": sum(sizes[digest] for digest in both)}
    pair, = found.pairs
    assert (pair["store"], pair["other_store"], pair["contents"]) == (*stores, len(both))
    assert [row["cost"] for row in found.largest] == sorted((sizes[digest] for digest in both), reverse=True)[:10]
    wanted = simulated(references, sizes)
    assert wanted and {(row["user"], row["store"], row["to_store"]): row["saved"] for row in found.moves} == wanted
    saved = [row["saved"] for row in found.moves]
    assert saved == sorted(saved, reverse=True)
    spark.catalog.clearCache()
