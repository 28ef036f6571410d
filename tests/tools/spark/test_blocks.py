"""What Spark cuts into blocks and pieces, so that nothing grows with a mailbox or with those who hold a message, comes
to the same as what is taken whole. (Both engines: test_engines.)"""

import os
import random
import re
import signal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from store.check.wholecheck import check
from store.finishing.cutoperations import Finishing
from store.opening import open_store
from store.operations import operationrecord
from store.tables.index import CHUNK, ROW
from tests.support.stores.stores import SMALL, deliver, make_store
from tests.tools.spark.test_driver import JOBS, ROOM
from tools.spark.rebuild import planrows, plantasks
from tools.spark.rebuild.plan import MID, Plan
from tools.spark.verify import comparing, sparkcompare
from tools.spark.verify.sparkcompare import BLOCK


def mailbox(chance, uids):
    rows = np.zeros(len(uids), ROW)
    rows["uid"] = uids
    rows["digest"] = np.array([chance.randbytes(32) for _ in uids], MID)
    return rows


def blocks(name, rows):
    """What the executors make of records: of store.idx by `_cut`, of the index by chunks."""
    row = {"partition": "primary", "id": 7, "rows": rows.tobytes(), "unused": b""}
    batch = pa.RecordBatch.from_pylist([row])
    return {found["block"]: {name: found["want"]} for made in sparkcompare._cut(iter([batch]))
            for found in made.to_pylist()}


@pytest.mark.parametrize("seed", range(3))
def test_a_mailbox_is_compared_by_blocks_as_it_is_whole(seed):
    """Records at the edges of blocks, blocks that one side alone has, chunks that cannot be read."""
    chance = random.Random(seed)
    edges = [edge + step for edge in (BLOCK, 2 * BLOCK, 4 * BLOCK) for step in (-CHUNK, -1, 0, 1, 2, CHUNK)]
    uids = sorted({*edges, *chance.sample(range(1, 3 * BLOCK), 200), 9 * BLOCK})
    want = mailbox(chance, uids)
    have = want[[chance.random() < 0.8 for _ in uids]].copy()
    have["flags"][::7] ^= 1
    have = np.concatenate([have, mailbox(chance, [5 * BLOCK, 9 * BLOCK + 1])])
    broken = [(uid - 1) // CHUNK for uid in chance.sample(uids, 5)]
    have = have[~comparing.in_chunks(broken, have["uid"])]
    whole = comparing.difference(have, want, lambda uids: comparing.in_chunks(broken, uids))
    sides = (blocks("have", have), blocks("want", want))
    counts, digests = {}, set()
    for block in set(sides[0]) | set(sides[1]):
        row = {"partition": "primary", "id": 7, "block": block, "have": sides[0].get(block, {}).get("have"),
               "want": [sides[1][block]["want"]] if block in sides[1] else None,
               "broken": [number for number in broken if number * CHUNK // BLOCK == block]}
        for found in sparkcompare._difference(row):
            counts[found["kind"]] = counts.get(found["kind"], 0) + found["count"]
            digests |= set(found.get("digests", ()))
    assert {kind: count for kind, count in counts.items() if kind} == {
        kind: len(found) for kind, found in whole.kinds()}
    assert digests == whole.digests and len(counts) == 4


def test_digests_of_a_piece_are_asked_for_once():
    """However many of its records have one: what is joined does not grow with a message that somebody has often."""
    rows = mailbox(random.Random(1), range(1, 1001))
    rows["digest"][10:] = rows["digest"][0]
    batch = pa.RecordBatch.from_pylist([{"partition": "primary", "number": 3, "rows": rows.tobytes()}])
    made, = planrows.named(iter([batch]))
    assert made.num_rows == 10 and set(made["digest"].to_pylist()) == {
        digest.tobytes() for digest in rows["digest"][:10]}
    counted = plantasks.counted("primary", 7, rows)
    assert counted.num_rows == 10 and sum(counted["references"].to_pylist()) == 1000


@pytest.mark.parametrize("place", JOBS)
def test_no_window_is_over_the_holders_of_a_message(place):
    text = Path(ROOM / place).read_text(encoding="utf-8")
    assert re.findall(r"PARTITION BY[^)]*digest|Window\.", text) == []


def test_a_killed_check_leaves_no_snapshot(tmp_path, faults):
    """That which it reads would keep message files from the purge: it is on record, and the next start removes it
    (issue 25)."""
    root = tmp_path / "store"
    store = make_store(root, ("alice",))
    deliver(store, b"Subject: x\r\n\r\n", "user/alice/INBOX")
    store.close()
    faults.before(sparkcompare, "_compare", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    child = os.fork()
    if not child:
        sparkcompare.compare(None, open_store(root, SMALL), Plan(tmp_path / "plan"))
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    assert [path for path in (root / "snapshots").iterdir() if path.name.endswith("Z")]
    assert [operation.kind for operation in operationrecord.under_way(root)[1]] == ["check"]
    store = open_store(root, SMALL)
    try:
        Finishing().at_start(store)
        assert not [path for path in (root / "snapshots").iterdir() if path.name.startswith("2")]
        assert operationrecord.under_way(root) == ([], []) and check(store) == []
    finally:
        store.close()
