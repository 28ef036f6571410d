"""Verifying a store: faults that were planted are found, and called what they are; nothing else is; and mended."""

import ast
import os
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from attrs import evolve

from mboxlist.engine.transact import transact
from mboxlist.names import MailboxName
from store.check.wholecheck import check
from store.mailboxes import namespace
from store.mailboxes.expunge import remove
from store.opening import open_store
from store.rebuild.userareascan import Source
from store.tables.index import ROW, chunk_key
from store.userarea.idxfile import MAGIC, Head
from store.userarea.paths import place
from store.values import Finding
from tests.support.faults.spark_faults import FAULTS, LOSSES, QUIET, Planter, plant
from tests.support.stores.stores import deliver, make_store
from tests.support.stores.whole import lose_databases
from tests.tools.spark.conftest import LOCAL, compiled
from tools.spark.generate.generator import Shape, generate
from tools.spark.rebuild.localplan import Local
from tools.spark.rebuild.plan import Plan
from tools.spark.rebuild.sparkplan import Spark
from tools.spark.verify import comparing
from tools.spark.verify import kinds as verifying
from tools.spark.verify.mending import mend
from tools.spark.verify.sparksuspects import SparkLooking
from tools.spark.verify.suspects import judged
from tools.spark.verify.verifyjob import FAULTS as FAULTS_FILE
from tools.spark.verify.verifyjob import faults_of, verify

SHAPE = Shape(150, 9, 6, seed=5, small=True)
AT_A_TIME = 1 if os.environ.get("PLANTINGS") == "all" else 4
_IN_ORDER = sorted(FAULTS, key=lambda kind: kind[:5] != "index")        # as `plant` has them
FEW = [_IN_ORDER[start::len(FAULTS) // AT_A_TIME] for start in range(len(FAULTS) // AT_A_TIME)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A store in which nothing is wrong, which nobody may change."""
    root = tmp_path_factory.mktemp("whole") / "store"
    generate(root, SHAPE)
    return root


def found_in(root, folder, engine=None, **options):
    """What a verification finds, with the databases."""
    store = open_store(root, QUIET)
    try:
        return verify(root, folder, engine or Local(), store, **options)
    finally:
        store.close()


def own(found):
    return sorted((fault.kind, fault.where) for fault in found.own)


def wanted(planted):
    return sorted((fault.kind, fault.where) for fault in planted)


def test_nothing_is_wrong(whole, tmp_path):
    found = found_in(whole, tmp_path / "plan")
    assert found.faults == [] and (found.waiting, found.moved, found.databases) == (0, 0, True)
    assert found.manifest.total.records == SHAPE.messages * SHAPE.references


@pytest.mark.parametrize("kinds", FEW, ids=" and ".join)
def test_few_faults(whole, tmp_path, kinds):
    """They are found, and nothing else. (Mending is the next test's.)"""
    root = tmp_path / "store"
    shutil.copytree(whole, root)
    store = open_store(root, QUIET)
    planter = Planter(store, 3)
    planted = [planter.plant(kind) for kind in kinds]
    store.close()
    found = found_in(root, tmp_path / "plan")
    assert own(found) == wanted(planted)


def _mend(root, folder, found, planted):
    store = open_store(root, QUIET)
    applied = mend(store, Plan(folder / "plan"), found, sweep=True)
    assert len(applied.corrections) >= len([fault for fault in planted if fault.kind not in LOSSES])
    store.close()
    again = found_in(root, folder / "again")
    assert own(again) == wanted(fault for fault in planted if fault.kind in LOSSES)


def test_many_faults(whole, tmp_path):
    root = tmp_path / "store"
    shutil.copytree(whole, root)
    planted = plant(root, 3 * len(FAULTS), 7)
    found = found_in(root, tmp_path / "plan")
    told, every = Counter(own(found)), Counter(wanted(planted))
    assert told - every == {} and {kind for kind, _ in every - told} <= {"quota-use"}   # of whose mailbox is wrong, too
    _mend(root, tmp_path, found, planted)


@pytest.mark.parametrize("spark", [LOCAL], indirect=True, scope="session")
def test_spark_finds_the_same(spark, whole, tmp_path):
    root = tmp_path / "store"
    shutil.copytree(whole, root)
    planted = plant(root, len(FAULTS), 11)
    with compiled(spark):
        found = found_in(root, tmp_path / "plan", Spark(spark), by=SparkLooking(spark))
    assert own(found) == wanted(planted) and found.manifest.engine == "spark"
    kept = pq.read_table(tmp_path / "plan" / FAULTS_FILE).to_pylist()
    assert sorted((row["kind"], row["where"]) for row in kept if not row["follows"]) == wanted(planted)


def test_without_databases(whole, tmp_path):
    """What is in files alone is found, and nothing that only databases could tell."""
    root = tmp_path / "store"
    shutil.copytree(whole, root)
    planted = plant(root, 2 * len(FAULTS), 13)
    lose_databases(root)
    found = verify(root, tmp_path / "plan", Local())
    kinds = ("message-missing", "message-octets", "message-cut", "message-long", "message-other", "message-misnamed",
             "idx-cut", "idx-rows", "idx-head", "idx-place")
    assert not found.databases
    strange = {fault.where for fault in planted if fault.kind == "message-stranger"}
    assert [item for item in own(found) if item[1] not in strange] == [
        item for item in wanted(planted) if item[0] in kinds]
    assert found.waiting + len([item for item in own(found) if item[1] in strange]) >= len(strange)


def test_a_store_that_is_in_use(whole, tmp_path):
    """Mailboxes that have changed since their store.idx were written are not compared; nothing is reported."""
    root = tmp_path / "store"
    shutil.copytree(whole, root)
    store = open_store(root, QUIET)
    for name in ("user/user00001/INBOX", "user/user00002/INBOX"):
        deliver(store, b"Subject: new\r\n\r\n%s\r\n" % name.encode(), name)
    entry = store.entry(MailboxName.parse("user/user00003/INBOX"))
    remove(store, entry, store.open_mailbox(entry).rows["uid"][:3])
    found = verify(root, tmp_path / "plan", Local(), store)
    assert found.faults == [] and found.moved == 3
    store.close()


def test_what_waits_for_the_purge_is_no_fault(whole, tmp_path):
    root = tmp_path / "store"
    shutil.copytree(whole, root)
    store = open_store(root, QUIET)
    entry = store.entry(MailboxName.parse("user/user00001/INBOX"))
    made, = deliver(store, b"Subject: short-lived\r\n\r\n", str(entry.name))
    remove(store, entry, [made.uid])
    store.close()
    found = found_in(root, tmp_path / "plan")
    assert (found.faults, found.waiting) == ([], 1)


def test_cache_records_that_lie_side_by_side(whole, tmp_path):
    """All of a page of the table are exchanged in one transaction, which must not wait for itself."""
    root = tmp_path / "store"
    shutil.copytree(whole, root)
    store = open_store(root, QUIET)
    planter = Planter(store, 5)
    planted = [planter.plant("cache-record") for _ in range(60)]
    store.close()
    found = found_in(root, tmp_path / "plan")
    assert own(found) == wanted(planted)
    _mend(root, tmp_path, found, planted)


# The rules

@pytest.mark.parametrize("kind", [kind for kind in verifying.KINDS if kind != "other"])
def test_every_kind_is_described(kind):
    what, is_loss = verifying.KINDS[kind]
    assert what and is_loss == (kind in (*LOSSES, "message-unreadable"))


def test_what_the_check_says_has_a_kind():
    """Every text of a finding in store/check is of a kind, so that nothing new goes under "something else"."""
    texts = []
    for path in sorted((Path(verifying.__file__).parents[3] / "store" / "check").glob("*.py")):
        if path.stem == "scrub":        # which is a command of its own
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        named = {each.targets[0].id: each.value.value for each in tree.body if isinstance(each, ast.Assign)
                 and isinstance(each.targets[0], ast.Name) and isinstance(each.value, ast.Constant)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("Finding", "found"):
                first = node.args[0]
                for part in (first.body, first.orelse) if isinstance(first, ast.IfExp) else (first,):
                    if isinstance(part, ast.JoinedStr):
                        texts.append("".join(str(getattr(piece, "value", "")) if isinstance(piece, ast.Constant)
                                             else str(named.get(getattr(piece.value, "id", ""), "7"))
                                             for piece in part.values))
                    elif isinstance(part, ast.Constant):
                        texts.append(part.value)
    assert len(texts) > 40
    texts[texts.index("7: 7 in its figures, 7 in its records")] = "unseen: 7 in its figures, 7 in its records"
    texts = ["records" + text[1:] if text.startswith("7 of a mailbox that has no figures") else text for text in texts]
    assert [text for text in texts if verifying.kind_of(Finding(text, "", "")) == "other"] == []


@pytest.mark.parametrize(("octets", "digests", "known", "kind"), [
    (100, (b"a",), 100, "message-octets"), (99, (b"a",), 100, "message-cut"), (101, (b"a",), 100, "message-long"),
    (-1, None, 100, "message-unreadable"), (100, (b"a",), None, "message-stranger"),
    (100, (b"a", b"wanted"), 100, "message-misnamed"), (100, (b"wanted",), None, "message-misnamed"),
    (100, (b"there",), 100, "message-other"), (50, (b"there",), 100, "message-other"),
    (100, (b"there",), None, "message-stranger"),
])
def test_kinds_of_damaged_files(octets, digests, known, kind):
    found = verifying.damaged_file(verifying.Damaged(octets, digests), known, {b"wanted"}, {b"there"})
    assert found == (kind, b"wanted" if kind == "message-misnamed" else None)


def test_one_cause_and_what_follows():
    faults = [verifying.Fault(kind, where, "", "") for kind, where in (
        ("index-missing", "user/a/INBOX"), ("index-figures", "user/a/INBOX"), ("index-figures", "user/b/INBOX"),
        ("references-count", "message 0101"), ("references-count", "message 0202"), ("idx-records", "/a/store.idx"),
        ("message-cut", "message 03"), ("message-size", "message 03"), ("message-size", "message 04"),
        ("message-size", "message 04"), ("message-missing", "message 05"), ("message-missing", "message 06"))]
    found = verifying.with_causes(faults, {"user/a/INBOX": frozenset((b"\x01\x01",))}, {"/a/store.idx": "user/a/INBOX"},
                              {b"\x05": "/messages/x"})
    assert [(fault.kind, fault.where) for fault in found if not fault.follows] == [
        ("index-missing", "user/a/INBOX"), ("index-figures", "user/b/INBOX"), ("references-count", "message 0202"),
        ("message-cut", "message 03"), ("message-size", "message 04"), ("message-missing", "message 06")]
    assert [fault.follows for fault in found if fault.follows] == [
        "user/a/INBOX", "user/a/INBOX", "user/a/INBOX", "message 03", "/messages/x"]
    counts = {item["kind"]: item["count"] for item in verifying.classes(found)}
    assert list(counts)[:2] == ["message-missing", "message-cut"] and counts["index-figures"] == 1


HEAD = Head(id=7, name="user/alice/Archive", owner="alice", partition="primary", uidvalidity=1, uidnext=1,
            highestmodseq=1, quota_root="alice", acl={"bob": "lr"})


@pytest.mark.parametrize(("changed", "root", "kinds"), [
    ({}, "alice", []), ({}, None, []), ({}, "alice/Archive", ["idx-quota"]), ({"removed": 5}, "alice/Archive", []),
    ({"partition": "other"}, "alice", ["idx-partition"]), ({"acl": {"bob": "lrZ"}}, "alice", ["idx-rights"]),
])
def test_what_a_head_tells(changed, root, kinds):
    head = evolve(HEAD, **changed)
    source = Source("primary", Path("/p/store.idx"), head, MailboxName.parse(head.name), True)
    wrong = judged("store.idx", source, root)
    assert [fault.kind for fault in ([] if wrong is None else faults_of(wrong, "/p/store.idx"))] == kinds


@pytest.mark.parametrize(("changed", "path", "wrong"), [
    ({}, "users/ab/cd/alice/Archive/store.idx", False), ({}, "users/ab/ce/alice/Archive/store.idx", True),
    ({}, "users/ab/cd/alice/Other/store.idx", True), ({}, "users/deleted/7/store.idx", True),
    ({"removed": 5}, "users/deleted/7/store.idx", False), ({"removed": 5}, "users/deleted/8/store.idx", True),
    ({"name": "user/alice/INBOX"}, "users/ab/cd/alice/store.idx", False),
    ({"name": "public/news", "owner": ""}, "users/public/news/store.idx", False),
    ({"name": "public/news", "owner": ""}, "users/public/old/store.idx", True),
])
def test_where_a_file_belongs(changed, path, wrong):
    assert verifying.misplaced(Path("/p"), path, evolve(HEAD, **changed), lambda owner: f"ab/cd/{owner}") == wrong


def test_several_files_of_a_mailbox():
    places = [(("s", 1), "primary", 10, "a"), (("s", 1), "archive", 30, "b"), (("s", 1), "primary", 20, "c"),
              (("s", 2), "primary", 1, "d"), (("t", 1), "primary", 1, "e")]
    assert sorted(verifying.several(places)) == [("primary", "a", "b"), ("primary", "c", "b")]


@pytest.mark.parametrize(("texts", "kind"), [
    (["its UIDs do not ascend", "its section rows has lost 1 of 2 items"], "idx-uids"),
    (["its section rows has lost 1 of 2 items", "its head is lost"], "idx-rows"),
    (["one of the two copies of its head is damaged"], "idx-head"), (["it is not a store.idx"], "idx-damaged"),
    (["one of its two directories is damaged"], "idx-damaged"), (["cannot be read: gone"], "idx-damaged"),
])
def test_kinds_of_damaged_store_idx(texts, kind):
    start = MAGIC + bytes(488) + (1000).to_bytes(8, "little") + bytes(8)
    assert verifying.idx_kind(texts, start, 1000) == kind
    assert verifying.idx_kind(texts, start, 999) == "idx-cut"
    assert verifying.idx_kind(texts, start[:300], 300) == kind and verifying.idx_kind(texts, bytes(512), 600) == kind


def test_differences_between_records():
    def rows(*uids):
        found = np.zeros(len(uids), ROW)
        found["uid"], found["digest"] = uids, np.array([bytes([uid]) * 32 for uid in uids], "V32")
        return found

    want, have = rows(1, 2, 3, 5, 70), rows(1, 2, 4, 5)
    have["flags"][1] = 4
    found = comparing.difference(have, want, lambda uids: uids > 64)
    assert [uids.tolist() for uids in (found.missing, found.different, found.extra)] == [[3], [2], [4]]
    assert found.digests == {bytes([uid]) * 32 for uid in (2, 3, 4)}
    assert [fault.kind for fault in found.faults("primary", "x")] == ["index-missing", "index-different", "index-extra"]
    same = comparing.difference(want, want, lambda uids: uids < 0)
    assert list(same.faults("primary", "x")) == [] and same.digests == set()


def test_a_mailbox_with_an_older_file_elsewhere(whole, tmp_path):
    """As a rename leaves it that was cut off: of the two files the newer one counts, and the other one goes."""
    root = tmp_path / "store"
    shutil.copytree(whole, root)
    store = open_store(root, QUIET)
    partition = store.partitions["primary"]
    old = MailboxName.parse("user/user00001/Sent")
    path, kept = place(partition, old), tmp_path / "kept"
    shutil.copy(path, kept)
    namespace.rename_mailbox(store, old, MailboxName.parse("user/user00001/Posted"))
    store.close()
    path.parent.mkdir(exist_ok=True)
    shutil.copy(kept, path)
    found = found_in(root, tmp_path / "plan")
    assert own(found) == [("idx-id", str(path))]
    store = open_store(root, QUIET)
    mend(store, Plan(tmp_path / "plan"), found)
    assert check(store) == []
    store.close()
    assert not path.exists() and own(found_in(root, tmp_path / "again")) == []


@pytest.mark.parametrize("number", [0, 1])
def test_a_chunk_at_its_edges(tmp_path, number):
    """A chunk has the UIDs up to a multiple of 64: of the others no record is missing."""
    store = make_store(tmp_path / "store", ("alice",), QUIET)
    for count in range(66):
        deliver(store, b"Subject: %d\r\n\r\n" % count, "user/alice/INBOX")
    store.close()                               # which writes its store.idx
    store = open_store(tmp_path / "store", QUIET)
    partition, entry = store.partitions["primary"], store.entry(MailboxName.parse("user/alice/INBOX"))
    key = chunk_key(entry.id, number)
    value = partition.index.get(key)
    transact(partition.env, lambda txn: partition.index.put(key, value[:9] + b"\xff" + value[10:], txn))
    store.close()
    found = found_in(tmp_path / "store", tmp_path / "plan")
    assert own(found) == [("index-chunk", "user/alice/INBOX")]
    _mend(tmp_path / "store", tmp_path, found, [])
