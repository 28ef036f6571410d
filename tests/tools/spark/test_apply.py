"""A plan is applied to a store that is down, whole or not at all, and to one in use, where it puts damage right."""

import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
import zlib
from pathlib import Path

import numpy as np
import pytest
from attrs import evolve

from mboxlist.names import MailboxName
from store.accounts.builtin import User
from store.check.wholecheck import check
from store.errors import Problem, StoreError
from store.mailboxes import deletion, namespace
from store.mailboxes.copymessages import copy_messages
from store.mailboxes.expunge import remove
from store.mailboxes.flagchanges import change_flags
from store.opening import open_store
from store.partition.marks import is_down
from store.rebuild.livecorrection import MOVED_ON
from store.tables.index import chunk_key, decode
from store.tables.state import state_key
from store.userarea import idxreading
from store.userarea.paths import place
from store.userarea.writing import write_changed
from store.values import FlagAction, Flags
from tests.support import ROOT
from tests.support.faults.planted import Faults
from tests.support.stores.messages import changed
from tests.support.stores.stores import SMALL, deliver, make_store
from tests.support.stores.whole import TRACE, USERS, everything, lose_databases, random_store, unused
from tools.spark.generate.generator import Shape, generate
from tools.spark.rebuild import planlive, planload
from tools.spark.rebuild.localplan import Local
from tools.spark.rebuild.plan import BadPlan, Plan
from tools.spark.rebuild.planlive import apply_live
from tools.spark.rebuild.planload import SCRATCH, apply_down
from tools.spark.rebuild.rebuildjob import make_plan

NAMES = ("user/alice/INBOX", "user/alice/Archive", "user/bob/INBOX")


def planned(root, folder):
    make_plan(root, folder, Local())
    return Plan(folder)


@pytest.fixture
def down(tmp_path):
    """A generated store without databases, a plan of it, and all that was in it."""
    root = tmp_path / "store"
    generate(root, Shape(150, 5, 4, seed=9, small=True))
    store = open_store(root, SMALL)
    before = everything(store)
    accounts = list(store.directory.all())
    store.close()
    lose_databases(root)
    return root, planned(root, tmp_path / "plan"), before, [User(account, "*") for account in accounts]


def is_back(root, before):
    """The store is there with all that was in it, and nothing else."""
    store = open_store(root, SMALL)
    assert check(store) == []
    assert everything(store) == before
    store.close()
    assert files_of(root) == {"generations", "mboxlist", "partitions", "run"}


def files_of(root):
    return {path.name for path in root.iterdir()} - {"tls"}


# A store that is down

def test_everything_comes_back(down):
    root, plan, before, users = down
    (root / "mboxlist").mkdir()
    (root / "mboxlist" / "__db.001").write_bytes(b"of the old one")
    assert is_down(root)
    done = apply_down(root, plan, SMALL, users=users)
    assert done.findings == [] and not is_down(root)
    is_back(root, before)
    with pytest.raises(StoreError) as refusal:
        apply_down(root, plan, SMALL)
    assert refusal.value.problem is Problem.STORE_IN_USE


def test_uids_and_modseqs_skip_ahead_of_what_may_have_been_shown(down):
    root, plan, _, _ = down
    heads = {row["id"]: json.loads(row["head"]) for row in plan.rows("mailboxes")}
    apply_down(root, plan, SMALL)
    store = open_store(root, SMALL)
    for mailbox, state in store.partitions["primary"].all_states():
        assert state.uidnext > heads[mailbox]["uidnext"] and state.highestmodseq > heads[mailbox]["highestmodseq"]
        assert state.uidvalidity == heads[mailbox]["uidvalidity"]
    store.close()


@pytest.mark.parametrize("seed", range(3))
def test_after_a_stop_anywhere_it_goes_on(tmp_path, seed):
    """Whatever was done last: nobody can open what is not complete, and in the end all of it is there."""
    root = tmp_path / "store"
    store = random_store(root, seed)
    write_changed(store)
    before = everything(store)
    strangers = unused(store.partitions["primary"])
    store.close()
    lose_databases(root)
    plan = planned(root, tmp_path / "plan")
    stops = 0
    for after in range(3 + seed, 400, 4):
        left = iter(range(after))
        with Faults() as faults:
            faults.fail(planload.Partition, "transact", KeyboardInterrupt,
                        when=lambda *_, left=left, **__: next(left, None) is None)
            try:
                apply_down(root, plan, SMALL, users=USERS)
                break
            except KeyboardInterrupt:
                stops += 1
        if not is_down(root):
            break                           # it was complete, but for the new store.idx
        with pytest.raises(StoreError):
            open_store(root, SMALL)
    assert stops > 2
    store = open_store(root, SMALL)
    assert everything(store) == before
    assert {finding.where[-64:] for finding in check(store)} == strangers
    store.close()


KILLED = """
import os, signal, sys
from pathlib import Path
from tests.support.stores.stores import SMALL
from tools.spark.rebuild import planload
from tools.spark.rebuild.plan import Plan

def show(what, done, total):
    if what == "mailboxes" and done == 20:
        os.kill(os.getpid(), signal.SIGKILL)

planload.apply_down(Path(sys.argv[1]), Plan(Path(sys.argv[2])), SMALL, progress=show)
"""


def test_after_a_kill_it_goes_on(down):
    root, plan, before, users = down
    done = subprocess.run([sys.executable, "-c", KILLED, root, plan.folder], cwd=ROOT, check=False)
    assert done.returncode == -signal.SIGKILL and (root / SCRATCH).is_dir() and is_down(root)
    apply_down(root, plan, SMALL, users=users)
    store = open_store(root, SMALL)
    assert check(store) == []
    assert everything(store)[:4] == before[:4]
    store.close()


def test_two_at_once_are_refused(down):
    root, plan, _, _ = down
    refused = []

    def show(what, done, total):
        if not refused and what == "mailboxes":
            with pytest.raises(StoreError) as refusal:
                apply_down(root, plan, SMALL)
            refused.append(refusal.value.problem)

    apply_down(root, plan, SMALL, progress=show)
    assert refused == [Problem.STORE_IN_USE]


def test_a_store_that_has_moved_on_gets_another_plan(down):
    root, plan, _, _ = down
    path = next((root / "partitions/primary/users").glob("*/*/*/store.idx"))
    data = path.read_bytes()
    path.write_bytes(data)                      # the same, and later
    os.utime(path, ns=(0, time.time_ns()))
    with pytest.raises(BadPlan, match="has been written since"):
        apply_down(root, plan, SMALL)
    path.unlink()
    with pytest.raises(BadPlan, match="cannot be found"):
        apply_down(root, plan, SMALL)
    shutil.copytree(root / "partitions/primary", root / "partitions/other")
    with pytest.raises(BadPlan, match="partitions primary"):
        apply_down(root, plan, SMALL)
    assert files_of(root) == {"generations", "partitions", "run"}


def test_a_message_that_is_still_in_staging_gets_its_place(tmp_path):
    store = make_store(tmp_path / "store")
    for number in range(3):
        deliver(store, b"Subject: %d\r\n\r\n" % number, "user/alice/INBOX", trace=TRACE)
    write_changed(store)
    root = tmp_path / "copy"
    shutil.copytree(store.root, root)
    before = everything(store)
    store.close()
    lose_databases(root)
    for path in (root / "partitions/primary/messages").glob("?/??/*"):
        path.unlink()
    apply_down(root, planned(root, tmp_path / "plan"), SMALL, users=USERS)
    store = open_store(root, SMALL)
    assert everything(store)[:4] == before[:4] and check(store) == []
    store.close()


# One that is in use

@pytest.fixture
def live(tmp_path):
    """An open store, 150 messages in alice's INBOX and two other mailboxes, and a plan of it."""
    store = make_store(tmp_path / "store", ("alice", "bob"))
    namespace.create_mailbox(store, MailboxName.parse("user/alice/Archive"))
    for number in range(150):
        deliver(store, b"Subject: %d\r\n\r\n%d\r\n" % (number, number), *NAMES[:1 + 2 * (number % 3 == 0)], trace=TRACE,
                header=b"Delivered-To: {}\r\n" if number % 10 == 0 else b"")
    change_flags(store, box(store), range(1, 40), FlagAction.ADD, Flags(keywords=("later",)))
    write_changed(store)
    plan = planned(store.root, tmp_path / "plan")
    found = [store, plan]
    yield found
    found[0].close()


def box(store, name=NAMES[0]):
    return store.entry(MailboxName.parse(name))


def records(store):
    """The records of all mailboxes, without MODSEQs, which a repair raises."""
    found = {}
    for name in NAMES:
        rows = store.open_mailbox(box(store, name)).rows.copy()
        rows["modseq"] = 0
        found[name] = rows.tobytes()
    return found


def changed_rows(store, change, name=NAMES[0]):
    """Have the records of the first chunk be others, with a right checksum, behind the back of all else."""
    partition, mailbox = store.partitions["primary"], box(store, name).id

    def work(txn):
        key = chunk_key(mailbox, 0)
        value = partition.index.get_to_change(key, txn.handle)
        rows = change(decode(value))
        data = rows.tobytes()
        partition.index.put(key, data + struct.pack("<I", zlib.crc32(data)), txn.handle)

    partition.transact(work)


def _set(field, value):
    def change(rows):
        rows[field][3] = value
        return rows
    return lambda store, plan: changed_rows(store, change)


def _damaged_chunk(store, plan):
    partition, key = store.partitions["primary"], chunk_key(box(store).id, 1)
    partition.transact(lambda txn: partition.index.put(key, partition.index.get(key, txn.handle)[:-9] + bytes(9),
                                                       txn.handle))


def _lost_chunk(store, plan):
    partition = store.partitions["primary"]
    partition.transact(lambda txn: partition.index.delete(chunk_key(box(store).id, 1), txn.handle))


def _state(**values):
    def work(store, plan):
        partition, mailbox = store.partitions["primary"], box(store).id
        partition.transact(lambda txn: partition.states.put(state_key(mailbox), evolve(
            txn.any_state(mailbox), **values).to_bytes(), txn.handle))
    return work


def _message(change):
    def work(store, plan):
        partition = store.partitions["primary"]
        digest = bytes(store.open_mailbox(box(store)).rows["digest"][6])
        partition.transact(lambda txn: change(partition, digest, partition.refs.find(digest, txn.handle), txn.handle))
    return work


def _cached(**values):
    def change(partition, digest, record, txn):
        cached, = partition.serials.cached([record.serial])
        partition.serials.write_cached(record.serial, changed(cached, **values), txn)
    return _message(change)


FAULTS = {
    "a damaged chunk": _damaged_chunk,
    "a lost chunk": _lost_chunk,
    "a lost record": lambda store, plan: changed_rows(store, lambda rows: np.delete(rows, 5)),
    "other flags": _set("flags", 31),
    "another message": _set("digest", b"x" * 32),
    "another date": _set("received", 77),
    "another size": _set("size", 5),
    "another serial": _set("serial", 3),
    "other figures": _state(messages=7, octets=3, unseen=1),
    "other quota use": lambda store, plan: store.partitions["primary"].transact(
        lambda txn: txn.charge_root("alice", 1000, 3, enforce=False)),
    "a wrong count of references": _message(
        lambda partition, digest, record, txn: partition.refs.write(digest, evolve(record, references=9), txn)),
    "a wrong check value": _message(
        lambda partition, digest, record, txn: partition.refs.write(digest, evolve(record, check=1), txn)),
    "a wrong size of a file": _message(
        lambda partition, digest, record, txn: partition.refs.write(digest, evolve(record, size=record.size + 1), txn)),
    "no record of a file": _message(
        lambda partition, digest, record, txn: partition.refs.messages.delete(digest, txn)),
    "no cache record": _message(
        lambda partition, digest, record, txn: partition.serials.forget_cached(record.serial, txn)),
    "another envelope": _cached(envelope=b"(NIL)"),
    "another's cache record": _cached(digest=b"y" * 32),
    "no store.idx": lambda store, plan: place(store.partitions["primary"], box(store).name).unlink(),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_damage_is_put_right(live, fault):
    store, plan = live
    before = records(store)
    uses = dict(store.partitions["primary"].quotas.all())
    cached = [store.cached(box(store), store.open_mailbox(box(store)).rows)]
    FAULTS[fault](store, plan)
    seen = apply_live(store, plan, change=False)
    assert seen.left == [] and (seen.corrections or check(store))
    damage = check(store)
    assert apply_live(store, plan).left == []
    assert check(store) == [], damage
    store.close()
    live[0] = again = open_store(store.root, SMALL)          # with nothing in memory
    assert records(again) == before
    assert dict(again.partitions["primary"].quotas.all()) == uses
    assert [again.cached(box(again), again.open_mailbox(box(again)).rows)] == cached
    assert apply_live(again, plan).corrections == []            # and once more
    assert check(again) == []


def test_repaired_records_have_a_new_modseq(live):
    """RFC 7162 §3.1: a client that resynchronizes looks at them again."""
    store, plan = live
    highest = store.status(box(store)).highestmodseq
    FAULTS["other flags"](store, plan)
    apply_live(store, plan)
    rows = store.open_mailbox(box(store)).rows
    assert np.flatnonzero(rows["modseq"] > highest).tolist() == [3]
    assert store.status(box(store)).highestmodseq == int(rows["modseq"][3])


def test_a_record_that_should_not_be_there_goes(live, tmp_path):
    store, _ = live
    remove(store, box(store, NAMES[1]), [7])
    write_changed(store)
    plan, before = planned(store.root, tmp_path / "second"), records(store)

    def back(rows):
        more = rows[6:7].copy()
        more["uid"] = 7
        return np.concatenate((rows[:6], more, rows[6:]))

    changed_rows(store, back, NAMES[1])
    assert check(store)
    applied = apply_live(store, plan)
    assert applied.left == [] and applied.corrections[0].where == NAMES[1]
    assert records(store) == before and check(store) == []


def test_a_mailbox_that_has_moved_on_is_left(live):
    store, plan = live
    new = deliver(store, b"Subject: new\r\n\r\nnew\r\n", NAMES[0])
    change_flags(store, box(store), [2], FlagAction.ADD, Flags(keywords=("now",)))
    before = records(store)
    applied = apply_live(store, plan)
    assert [(finding.where, finding.what) for finding in applied.left] == [(NAMES[0], MOVED_ON)]
    assert applied.corrections == [] and records(store) == before
    assert store.open_mailbox(box(store)).rows["uid"][-1] == new[0].uid
    assert check(store) == []


def test_one_that_has_moved_on_keeps_its_damage_and_the_others_do_not(live):
    store, plan = live
    copy_messages(store, box(store), box(store, NAMES[1]), [1])
    before = records(store)
    FAULTS["other flags"](store, plan)
    changed_rows(store, lambda rows: np.delete(rows, 5), NAMES[2])
    applied = apply_live(store, plan)
    assert [finding.where for finding in applied.left] == [NAMES[1]]
    assert records(store) == before and check(store) == []


def test_what_is_not_there_any_more_is_left(live):
    store, plan = live
    deletion.delete_mailbox(store, box(store, NAMES[1]).name)
    applied = apply_live(store, plan)
    assert {finding.where for finding in applied.left} == {NAMES[1]} and applied.corrections == []
    assert check(store) == []


def test_records_of_messages_that_the_plan_could_not_read_stay(live, tmp_path):
    """Their files may come back; and nothing but a restore can bring them."""
    store, _ = live
    digest = bytes(store.open_mailbox(box(store)).rows["digest"][4])
    path = Path(store.partitions["primary"].files.path(digest))
    data = path.read_bytes()
    path.write_bytes(b"broken")
    plan = planned(store.root, tmp_path / "second")
    assert plan.findings()
    path.write_bytes(data)
    before = records(store)
    applied = apply_live(store, plan)
    assert (applied.left, applied.corrections) == ([], []) and records(store) == before
    assert check(store) == []


def test_a_damaged_store_idx_takes_nothing_from_its_mailbox(live, tmp_path):
    store, _ = live
    path = place(store.partitions["primary"], box(store).name)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    plan, before = planned(store.root, tmp_path / "second"), records(store)
    applied = apply_live(store, plan)
    assert [correction.where for correction in applied.corrections] == [NAMES[0]] and applied.left == []
    assert records(store) == before and check(store) == []
    assert idxreading.read(path).head.records == 150


def test_only_some(live):
    store, plan = live
    FAULTS["other flags"](store, plan)
    changed_rows(store, lambda rows: np.delete(rows, 5), NAMES[2])
    applied = apply_live(store, plan, only={box(store, NAMES[2]).id})
    assert {correction.where for correction in applied.corrections} == {NAMES[2]}
    assert apply_live(store, plan).corrections and check(store) == []


def test_a_crash_between_two_repairs(live, faults):
    """Each is whole; the plan applied once more does the rest."""
    store, plan = live
    before = records(store)
    for name in (NAMES[0], NAMES[2]):
        changed_rows(store, lambda rows: np.delete(rows, 5), name)
    faults.fail(planlive, "correct_cached", KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        apply_live(store, plan)
    faults.mend()
    assert apply_live(store, plan).left == []
    assert records(store) == before and check(store) == []


def _interrupt(*arguments, **options):
    raise KeyboardInterrupt


def test_a_store_in_use_is_no_store_that_is_down(live):
    store, plan = live
    with pytest.raises(StoreError) as refusal:
        apply_down(store.root, plan, SMALL)
    assert refusal.value.problem is Problem.STORE_IN_USE
