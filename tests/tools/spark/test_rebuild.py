"""The plan of a rebuild. (That Spark makes the same: test_engines, and on a cluster test_cluster, test_death.)"""

import random
import shutil

import pytest

from store.errors import Problem, StoreError
from store.opening import open_store
from store.reconstruct.wholestore import rebuild
from store.userarea.writing import write_changed
from tests.support.stores.stores import SMALL, deliver, make_store
from tests.support.stores.whole import ONE, TRACE, TWO, USERS, everything, lose_databases, random_store
from tools.spark.generate.generator import Shape, generate
from tools.spark.rebuild import plantasks
from tools.spark.rebuild.localplan import Local
from tools.spark.rebuild.plan import SCHEMAS, BadPlan, Plan
from tools.spark.rebuild.planload import apply_down
from tools.spark.rebuild.rebuildjob import make_plan
from tools.spark.rebuild.sparkplan import Spark


def contents(plan):
    """All tables of a plan, in an order of their own."""
    found = {}
    for table in SCHEMAS:
        rows = [repr(sorted(row.items())) for row in plan.rows(table)]
        found[table] = sorted(rows)
    return found


@pytest.fixture(scope="module")
def damaged(tmp_path_factory):
    """A store without databases in which some files are damaged; what is to be found."""
    root = tmp_path_factory.mktemp("damaged") / "store"
    generate(root, Shape(300, 8, 5, seed=2, small=True))
    store = open_store(root, SMALL)
    deliver(store, ONE, "user/user00001/INBOX", trace=TRACE)
    store.close()
    lose_databases(root)
    chance, partition = random.Random(4), root / "partitions/primary"
    files = sorted((partition / "messages").glob("?/??/*"))
    broken, cut, missing = chance.sample(files, 3)
    broken.write_bytes(broken.read_bytes()[:-5] + b"XXXXX")
    cut.write_bytes(cut.read_bytes()[:40])
    missing.unlink()
    (partition / "messages/0/00/stranger").write_bytes(b"x")
    (partition / "staging/00000000000fffff").write_bytes(TRACE + TWO)
    boxes = sorted(path for path in (partition / "users").glob("*/*/*/*/store.idx") if path.stat().st_size > 3000)
    boxes[0].write_bytes(b"nonsense")
    data = bytearray(boxes[1].read_bytes())
    data[len(data) // 2] ^= 1
    boxes[1].write_bytes(data)
    return root, [broken, cut, missing], boxes[:2]


def test_what_is_damaged_is_said(damaged, tmp_path):
    root, files, boxes = damaged
    local = Plan(tmp_path / "local")
    make_plan(root, local.folder, Local())
    told = {(finding.where, finding.what) for finding in local.findings()}
    for path in files[:2]:
        assert any(where.endswith(path.name) and "digest" in what for where, what in told)
    for path in files:
        assert any(path.name in what and ", UID " in where for where, what in told)
    for path in boxes:
        assert any(where == str(path.relative_to(root / "partitions/primary")) for where, _ in told)
    assert any(where.endswith("/stranger") for where, _ in told)


def test_without_tasks_there_is_nothing_to_do(tmp_path):
    plan = Plan(tmp_path)
    Spark(None).run(plan, "pieces", [], plantasks.messages)
    assert list(plan.rows("pieces")) == []


# Without Spark

@pytest.mark.parametrize("seed", range(4))
def test_a_plan_that_is_applied_gives_what_a_rebuild_gives(tmp_path, seed, monkeypatch):
    """Also when a mailbox has many pieces, as a large one has."""
    if seed % 2:
        monkeypatch.setattr(plantasks, "RECORDS_IN_A_ROW", 5)
    root, other = tmp_path / "store", tmp_path / "other"
    store = random_store(root, seed)
    write_changed(store)
    before = everything(store)
    store.close()
    lose_databases(root)
    shutil.copytree(root, other)
    make_plan(root, tmp_path / "plan", Local())
    done = apply_down(root, Plan(tmp_path / "plan"), SMALL, users=USERS)
    simple = rebuild(other, SMALL, users=USERS)
    assert (done.mailboxes, done.records, done.messages) == (simple.mailboxes, simple.records, simple.messages)
    for each in (root, other):
        store = open_store(each, SMALL)
        assert everything(store) == before
        store.close()


@pytest.mark.parametrize("trace", [TRACE, b""])
def test_what_is_in_staging_is_in_the_plan(tmp_path, trace):
    store = make_store(tmp_path / "store")
    deliver(store, ONE, "user/alice/INBOX", trace=trace)
    write_changed(store)
    shutil.copytree(store.root, tmp_path / "copy")
    store.close()
    lose_databases(tmp_path / "copy")
    for path in (tmp_path / "copy/partitions/primary/messages").glob("?/??/*"):
        path.unlink()
    manifest = make_plan(tmp_path / "copy", tmp_path / "plan", Local())
    assert (manifest.total.records, manifest.total.octets >= len(trace + ONE)) == (1, True)


def test_work_that_was_cut_off_goes_on(tmp_path, faults):
    root = tmp_path / "store"
    generate(root, Shape(60, 3, 2, small=True))
    make_plan(root, tmp_path / "whole", Local())
    faults.fail(plantasks, "pieces", KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        make_plan(root, tmp_path / "plan", Local())
    faults.mend()
    with pytest.raises(BadPlan, match="not completed"):
        Plan(tmp_path / "plan").read_manifest()
    faults.forbid(plantasks, "messages")            # these have been read
    make_plan(root, tmp_path / "plan", Local())
    assert contents(Plan(tmp_path / "plan")) == contents(Plan(tmp_path / "whole"))


def test_a_plan_goes_into_a_folder_of_its_own(tmp_path):
    root = tmp_path / "store"
    generate(root, Shape(2, 1, 1, small=True))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter").write_text("dear")
    with pytest.raises(BadPlan, match="not empty"):
        make_plan(root, tmp_path / "full", Local())
    make_plan(root, tmp_path / "plan", Local())
    with pytest.raises(BadPlan, match="a plan already"):
        make_plan(root, tmp_path / "plan", Local())
    with pytest.raises(StoreError) as refusal:
        make_plan(tmp_path / "nowhere", tmp_path / "other", Local())
    assert refusal.value.problem is Problem.NO_STORE
