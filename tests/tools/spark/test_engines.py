"""One answer of both engines: the same plan of whatever is left of mailboxes, the same JSON of damaged stores.
And which engine is taken when none is asked for.

Each run plays another seed, and a failure names it. (Of one example Hypothesis always takes the simplest one, 0.)
"""

import json
import os
import random
import time
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from mboxlist.engine.transact import transact
from mboxlist.names import MailboxName
from store.opening import open_store
from store.rebuild.outcome import Outcome
from store.tables.index import ROW
from store.userarea.idxfile import Head
from store.userarea.writing import write_changed
from tests.support.faults.spark_faults import Planter
from tests.support.stores.stores import SMALL
from tests.support.stores.whole import random_store
from tests.tools.spark.conftest import LOCAL
from tools.spark import engines
from tools.spark.rebuild import plan as plans
from tools.spark.rebuild.localplan import Local
from tools.spark.rebuild.plan import SCHEMAS, Plan
from tools.spark.rebuild.rebuildjob import Scope
from tools.spark.rebuild.sparkplan import Spark
from tools.spark.report import reportjob, reportlocal
from tools.spark.report.lists import Against
from tools.spark.report.totals import Terms, lost, oddities, report
from tools.spark.source import reading
from tools.spark.verify.sparksuspects import SparkLooking
from tools.spark.verify.verifyjob import verify

REPORTED = Against(datetime.now(UTC) + timedelta(40), 5)
DIGESTS = [random.Random(number).randbytes(31) + bytes([number % 3]) for number in range(12)]      # NULs at ends, too
NAMES = ["user/alice/INBOX", "user/alice/Archive", "user/alice/Archive/2026", "user/alice/Archive (7)",
         "user/bob/INBOX", "user/bob/" + "long " * 12 + "name", "public/news", "public/news/more", "user/öl/Grüße"]
ROOTS = ["alice", "alice/Archive", "alice/Archive/2026", "bob", "@", "@example.com", "public/news", "öl"]


def contents(plan):
    """All tables of a plan, each in an order of its own but the findings, which have one."""
    found = {table: [repr(sorted(row.items())) for row in plan.rows(table)] for table in SCHEMAS}
    return {table: rows if table == "findings" else sorted(rows) for table, rows in found.items()}


def heads(chance):
    """What is left of mailboxes: ids, names, times and lists are drawn from few, so that many are the same."""
    for number in range(chance.randrange(1, 40)):
        name, found = chance.choice(NAMES), chance.random() < 0.8
        owner = MailboxName.parse(name).owner
        head = Head(id=chance.randrange(1, 12) if found else 1, name=name, owner=owner, partition="primary",
                    uidvalidity=chance.randrange(3), uidnext=99, highestmodseq=9, removed=chance.choice([0, 0, 0, 5]),
                    written=chance.randrange(4) if found else 0, store=chance.choice("ST") if found else "",
                    limits={root: [chance.randrange(-2, 9), chance.randrange(-2, 9)]
                            for root in chance.sample(ROOTS, chance.randrange(3))})
        yield chance.choice(["primary", "second"]), f"users/x/{number}/store.idx", found, head


def pieces(chance):
    """Rows of `pieces`, and of `messages`."""
    messages = [{"partition": partition, "path": f"messages/{digest.hex()}", "digest": digest, "octets": 10, "trace": 0,
                 "staged": False, "cached": b"c", "findings": []}
                for partition in ("primary", "second") for digest in DIGESTS if chance.random() < 0.8]
    rows = []
    for partition, path, found, head in heads(chance):
        for piece in range(chance.choice([1, 1, 2])):
            records = np.zeros(chance.randrange(4), ROW)
            records["uid"] = np.arange(len(records)) + 1 + 10 * piece
            there = [row["digest"] for row in messages if row["partition"] == partition]
            for record in records:
                record["digest"] = np.frombuffer(chance.choice(there), "V32")[0]
                record["serial"] = chance.randrange(1 << 40)
            rows.append({
                "partition": partition, "path": path, "piece": piece, "head": head.to_bytes(), "name": head.name,
                "found": found, "damaged": not found, "rows": records.tobytes(), "records": len(records),
                "octets": 7 * len(records), "unused": bytes(ROW.itemsize * chance.randrange(3)), "own": b"",
                "uidls": b"", "fields": [], "size": 1, "modified": 2, "findings": [
                    {"what": "lost", "place": path, "repair": "none"}] if chance.random() < 0.2 else []})
    rows.append({"partition": "primary", "path": "users/lost", "findings": [
        {"what": "no telling", "place": "users/lost", "repair": "none"}]})
    return {"messages": messages, "pieces": rows}


@pytest.mark.parametrize("spark", [LOCAL], indirect=True, scope="session")
def test_both_make_the_same_of_what_is_left(spark, tmp_path):
    """Ids and names that several have, heads that are lost, roots that several tell of, records that end in NULs."""
    seed = random.SystemRandom().randrange(1 << 30)
    made = {}
    for engine in (Local(), Spark(spark)):
        plan = Plan(tmp_path / engine.name)
        for table, rows in pieces(random.Random(seed)).items():
            plan.write(table, rows)
        plans.facts.cache_clear()
        figures = engine.fill(plan, Scope("/srv/mail", ("primary", "second"), 1.0))
        made[engine.name] = (contents(plan), figures)
    assert made["spark"] == made["local"], f"seed {seed}"


def damage(root, chance):
    """Some files are gone, cut, changed, in another's place, or nobody's."""
    partition = root / "partitions/primary"
    for path in chance.sample(files := sorted((partition / "messages").glob("?/??/*")), 6):
        spoil(path, chance, files)
    for path in chance.sample(boxes := sorted((partition / "users").rglob("store.idx")), 4):
        spoil(path, chance, boxes)


def misplace(partition):
    """Files lie where they do not belong, and a folder is gone, as long as nobody opens the store: the ends of what
    findings of them name."""
    messages = partition / "messages"
    path = min(path for path in messages.glob("?/??/*") if len(path.name) > len("stranger"))
    path.with_name("copy").write_bytes(path.read_bytes())
    (messages / "0/00/stray").touch()
    left = partition / "staging/00000000000fffff"
    left.write_bytes(b"Subject: left over\r\n\r\n")
    os.utime(left, (time.time() - 7200,) * 2)
    empty = max(folder for folder in messages.glob("?/??") if not any(folder.iterdir()))
    empty.rmdir()
    return "/0/00/stray", f"/staging/{left.name}", f"/messages/{empty.parent.name}/{empty.name}"


def spoil_index(root, chance):
    """Records of some mailboxes are gone or changed, at times a chunk cannot be read, and a row of the list is lost."""
    store = open_store(root, SMALL)
    planter = Planter(store, chance.randrange(1 << 30))
    for kind in chance.sample(["index-missing", "index-different", "index-chunk", "references-count", "idx-place",
                               "message-other", "message-misnamed"], chance.randrange(2, 5)):
        planter.plant(kind)
    for _, entry in list(store.mailboxes.deleted.all())[:1]:
        transact(store.mailboxes.env, lambda txn, entry=entry: store.mailboxes.deleted.remove(entry.id, txn))
    store.close()


def spoil(path, chance, others):
    """Something of that happens to a file."""
    octets = bytearray(path.read_bytes()) if path.exists() else bytearray(1)
    octets[chance.randrange(len(octets))] ^= 1
    for target, content in chance.choice([
            [(path, None)], [(path, octets[:len(octets) // 2])], [(path, octets)],
            [(chance.choice(others), path.read_bytes() if path.exists() else b"")],
            [(path.with_name("stranger"), octets)]]):
        if content is None:
            path.unlink(missing_ok=True)
        else:
            target.write_bytes(content)


@pytest.mark.parametrize("spark", [LOCAL], indirect=True, scope="session")
def test_both_say_the_same_of_a_store(spark, tmp_path):
    """The plan, of `check` and of `reconstruct --plan` the JSON, and all that `quota report` makes its own of."""
    seed = random.SystemRandom().randrange(1 << 30)
    root = tmp_path / "store"
    store = random_store(root, seed)
    write_changed(store)
    store.close()
    chance = random.Random(seed)
    spoil_index(root, chance)       # while all files are there
    damage(root, chance)
    said = []
    for engine, parts in ((Local(), {}), (Spark(spark), {"by": SparkLooking(spark)})):
        folder = tmp_path / engine.name
        store = open_store(root, SMALL)
        places = misplace(root / "partitions/primary")
        found = verify(root, folder, engine, store, **parts)
        store.close()
        total = found.manifest.total
        outcome = Outcome(total.mailboxes, total.records, total.messages, findings=Plan(folder).findings())
        said.append((json.dumps(found.summary()), outcome, found.faults, contents(Plan(folder))))
        assert [place for place in places if not any(fault.where.endswith(place) for fault in found.faults)] == []
    assert said[1] == said[0], f"seed {seed}"
    one, other = reportjob.read(spark, [str(root)], "example.org", None, REPORTED), reportlocal.read(
        [str(root)], "example.org", None, REPORTED)
    assert told(one) == told(other), f"seed {seed}"


def told(found):
    """The report that is made of what was read."""
    made = report(found.held, found, Terms(SMALL, REPORTED.now))
    return made, found.lists, sorted(lost(found)), sorted(oddities(found))


# Which one is taken

@pytest.mark.parametrize(("master", "cores"), [
    ("local", 1), ("local[1]", 1), ("local[4]", 4), ("local[4,2]", 4), ("spark://host:7077", None), ("yarn", None)])
def test_the_cores_of_a_master(master, cores):
    assert engines.cores_of(master) == cores


@pytest.mark.parametrize(("messages", "master", "missing", "engine", "said"), [
    (0, "local[2]", "", "local", "this process"), (900_000, "local[2]", "", "local", "2 cores"),
    (1_300_000, "local[2]", "", "spark", "1,300,000 messages"), (1_300_000, "local[1]", "", "local", "1 core)"),
    (150_000, "local[8]", "", "spark", "8 cores"), (150_000, "local[8]", "no Java", "local", "no Java"),
    (1, "spark://host:7077", "", "spark", "spark://host:7077")])
def test_the_engine_goes_by_size_and_cores(faults, messages, master, missing, engine, said):
    faults.around(reading, "estimated_messages", lambda *_: messages)
    choice = engines.choose("/srv/mail", master, missing)
    assert choice.engine == engine and said in choice.why


def test_how_many_messages_a_store_has(tmp_path):
    """A quarter of its folders has four, the others two: 10,240, give or take."""
    for number in range(1 << 12):
        name = f"{number:03x}"
        folder = tmp_path / "partitions/primary/messages" / name[0] / name[1:]
        if number % 64 == 0:
            folder.mkdir(parents=True)
            for file in range(4 if number % 256 == 0 else 2):
                (folder / str(file)).touch()
    assert reading.estimated_messages(str(tmp_path)) == 64 * 160
