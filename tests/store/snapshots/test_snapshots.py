"""Snapshots: of one moment, whole or not there, verified, kept as long as they are needed."""

import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
from attrs import evolve

from mboxlist.names import MailboxName
from store.check.wholecheck import check
from store.errors import Problem, StoreError
from store.housekeeping.tasks import environments
from store.mailboxes import deletion, namespace
from store.mailboxes.expunge import remove
from store.mailboxes.flagchanges import change_flags
from store.opening import open_store
from store.snapshots import retention, taking
from store.snapshots.comparison import differences, opened
from store.snapshots.taking import Manifest
from store.values import Flag, FlagAction, Flags
from tests.support import ROOT
from tests.support.stores.purging import purge
from tests.support.stores.stores import SMALL, deliver, make_store

ALICE, BOB = "user/alice/INBOX", "user/bob/INBOX"
KILLS = int(os.environ.get("SNAPSHOT_KILLS", "2"))
LOADED = int(os.environ.get("SNAPSHOTS_UNDER_LOAD", "1"))


def body(number):
    return b"Subject: %d\r\n\r\nHello %d.\r\n" % (number, number)


def folder(store):
    return taking.folder(store.root, store.settings)


def rename(snapshot, seconds):
    """As if it had been made so much earlier."""
    when = snapshot.time - seconds
    path = snapshot.path.with_name(time.strftime(taking.NAME, time.gmtime(when)))
    snapshot.path.rename(path)
    manifest = evolve(snapshot.manifest, time=when, moment=snapshot.manifest.moment - seconds)
    (path / "manifest.json").write_bytes(manifest.to_bytes())
    return next(each for each in taking.listed(path.parent) if each.path == path)


def test_what_was_acknowledged_is_in_it_and_what_comes_later_is_not(store):
    for number in range(3):
        deliver(store, body(number), ALICE, BOB)
    made = taking.create(store)
    deliver(store, body(3), ALICE)
    assert taking.verify(made) == []
    assert [each.name for each in taking.listed(folder(store))] == [made.name]
    with opened(made, SMALL) as then:
        assert then.open_mailbox(then.entry(MailboxName.parse(ALICE))).uids.tolist() == [1, 2, 3]
        assert then.open_mailbox(then.entry(MailboxName.parse(BOB))).uids.tolist() == [1, 2, 3]
    assert sorted(path.name for path in folder(store).iterdir()) == [".scratch", made.name, "lock"]
    assert not list((folder(store) / ".scratch").iterdir())


LOAD = """
import signal, sys
from pathlib import Path
from mboxlist.names import MailboxName
from store.mailboxes import deletion, namespace
from store.opening import open_store
from tests.support.stores.stores import SMALL, deliver
signal.alarm(1200)
store = open_store(Path(sys.argv[1]), SMALL)
number = 0
while not (store.root / "stop").exists():
    number += 1
    if number % 20 == 0:
        name = MailboxName.parse(f"user/alice/{number}")
        namespace.create_mailbox(store, name)
        if number > 40:
            deletion.delete_mailbox(store, MailboxName.parse(f"user/alice/{number - 40}"))
    # the same message to both, so they must always be equal; and to a mailbox that is made and deleted
    deliver(store, b"Subject: %d\\r\\n\\r\\n%d\\r\\n" % (number, number), "user/alice/INBOX", "user/bob/INBOX",
            *([f"user/alice/{number // 20 * 20}"] if number >= 20 else []))
    print(number, flush=True)
store.close()
"""


def test_a_snapshot_under_load_is_the_store_at_one_moment(tmp_path):
    store = make_store(tmp_path / "store")
    child = subprocess.Popen([sys.executable, "-c", LOAD, str(store.root)], stdout=subprocess.PIPE, cwd=ROOT)
    try:
        for _ in range(LOADED):
            for _ in range(50):
                last = int(child.stdout.readline())
            made = taking.create(store)
            assert taking.verify(made) == []
            with opened(made, SMALL) as then:
                boxes = {name: then.open_mailbox(then.entry(MailboxName.parse(name))).uids.tolist()
                         for name in (ALICE, BOB)}
                assert boxes[ALICE] == boxes[BOB] == list(range(1, len(boxes[ALICE]) + 1))
                assert len(boxes[ALICE]) >= last                   # it had been acknowledged before
                wrong = [finding for finding in check(then) if not _is_of_message_files(finding)]
                assert wrong == []
                newest = len(boxes[ALICE]) // 20 * 20       # the list and the partition are of the same moment
                others = {str(entry.name) for entry in then.names("alice")} - {ALICE}
                assert {f"user/alice/{newest}"} <= others
                there = then.open_mailbox(then.entry(MailboxName.parse(f"user/alice/{newest}"))).uids
                assert len(there) == len(boxes[ALICE]) - newest + 1
    finally:
        (store.root / "stop").touch()           # killed, it could leave a lock that the others wait for
        child.stdout.read()
        child.stdout.close()
        assert child.wait() == 0
    assert check(store) == []
    store.close()


def _is_of_message_files(finding):
    """Those of a copy that has none."""
    return "message" in finding.where or "message file" in finding.what or "missing" in finding.what \
        or "store.idx" in finding.what or "store.idx" in finding.where


MAKE = """
from store.opening import open_store
import sys
from pathlib import Path
from store.snapshots import taking
from store.store import Store
from tests.support.stores.stores import SMALL
store = open_store(Path(sys.argv[1]), SMALL)
for _ in range(100):
    for old in taking.listed(store.root / "snapshots"):
        taking.remove(old)
        print("removed", flush=True)
    taking.create(store, lambda *given: print(*given, flush=True))
    print("made", flush=True)
"""


def test_one_that_is_cut_off_is_not_there(tmp_path):
    store = make_store(tmp_path / "store")
    for number in range(20):
        deliver(store, body(number), ALICE)
    store.close()
    for number in range(KILLS):
        child = subprocess.Popen([sys.executable, "-c", MAKE, str(store.root)], stdout=subprocess.PIPE, cwd=ROOT)
        place = store.root / "snapshots"
        for _ in range(1 + number * 17 % 60):           # a snapshot says some 28 lines
            child.stdout.readline()
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        child.stdout.close()
        for each in taking.listed(place):
            assert taking.verify(each) == []
        assert set(taking.unreadable(place)) == set()
        store = open_store(store.root, SMALL)
        made = taking.create(store)
        assert not [path.name for path in place.iterdir() if path.name.endswith((".part", ".gone"))]
        taking.remove(made)
        taking.keep_what_is_needed(store)
        assert check(store) == []
        store.close()


@pytest.mark.parametrize("name", ["mboxlist/mailboxes.db", "partitions/primary/index/index.db",
                                  "partitions/primary/index/log.0000000001"])
@pytest.mark.parametrize("harm", ["bit", "short", "gone"])
def test_a_damaged_one_is_told(snapshot_of_three, name, harm):
    path = snapshot_of_three.path / name
    octets = path.read_bytes()
    if harm == "gone":
        path.unlink()
    else:
        at = len(octets) // 2
        path.write_bytes(octets[:at] if harm == "short" else octets[:at] + bytes([octets[at] ^ 4]) + octets[at + 1:])
    found = taking.verify(snapshot_of_three)
    assert len(found) == 1
    assert found[0].startswith(name.rpartition("/")[0] + ": " + name.rpartition("/")[2])


@pytest.fixture
def snapshot_of_three(store):
    for number in range(3):
        deliver(store, body(number), ALICE)
    return taking.create(store)


def test_a_copy_that_cannot_be_walked_is_told_though_its_digests_agree(snapshot_of_three):
    name = "partitions/primary/index"
    path = snapshot_of_three.path / name / "index.db"
    octets = bytearray(path.read_bytes())
    octets[32768 + 20:32768 + 40] = bytes(range(100, 120))  # in the root page: how many items it has, and where
    path.write_bytes(octets)
    part = snapshot_of_three.manifest.environments[name]
    files = tuple(evolve(file, digest=taking.hotcopy.digest(path)) if file.name == "index.db" else file
                  for file in part.files)
    manifest = evolve(snapshot_of_three.manifest, environments={name: evolve(part, files=files)})
    found = taking.verify(evolve(snapshot_of_three, manifest=manifest))
    assert found
    assert found[0].startswith(f"{name}: ")


def test_a_damaged_manifest_is_told(store, snapshot_of_three):
    path = snapshot_of_three.path / "manifest.json"
    data = path.read_bytes()
    for changed in (data.replace(b'"first_log": 1', b'"first_log": 2'), data[:-9], b"{}", b"[]", b"\xff"):
        with pytest.raises(ValueError):
            Manifest.from_bytes(changed)
        path.write_bytes(changed)
        assert taking.listed(folder(store)) == []
        assert list(taking.unreadable(folder(store))) == [snapshot_of_three.name]


# Retention and logs

def keep(store, kept):
    store.settings = evolve(store.settings, snapshots_kept=kept)


def test_the_housekeeper_makes_one_when_it_is_due_and_removes_the_oldest(store):
    keep(store, 2)
    now = time.time()
    assert list(retention.due(store, now)) == []              # the store has just been opened
    names = []
    for age in (30, 20, 10):
        assert list(retention.due(store, now + retention.BEGIN)) != []
        retention.make_due(store, "a test")
        newest = rename(taking.listed(folder(store))[0], age * 86400)
        names.insert(0, newest.name)
    retention.make_due(store, "a test")
    assert [each.name for each in taking.listed(folder(store))][1:] == names[:1]
    assert list(retention.due(store, now + 86000)) == []
    assert list(retention.due(store, now + 86500)) == ["the newest is old"]
    keep(store, 0)
    assert list(retention.due(store, now + 90000)) == []


def test_a_clock_that_has_been_set_back_keeps_none_from_being_made(store):
    keep(store, 2)
    retention.make_due(store, "a test")
    rename(taking.listed(folder(store))[0], -365 * 86400)
    ahead = time.time() + 365 * 86400
    (folder(store) / retention.FAILED).touch()
    os.utime(folder(store) / retention.FAILED, (ahead, ahead))
    assert list(retention.due(store)) == ["those that there are were made by a clock that was wrong"]
    retention.make_due(store, "a test")
    assert list(retention.due(store)) == [] and len(taking.listed(folder(store))) == 2
    assert list(retention.due(store, time.time() + 86500)) == ["the newest is old"]


def test_a_failed_one_is_reported_and_replaces_none(store, faults):
    keep(store, 1)
    deliver(store, body(1), ALICE)
    retention.make_due(store, "a test")
    good = rename(taking.listed(folder(store))[0], 86400 * 3)
    faults.around(taking, "verify", lambda *_, **__: ["index.db: damaged"])
    with pytest.raises(StoreError, match="index.db: damaged"):
        retention.make_due(store, "a test")
    assert taking.listed(folder(store)) == [good]
    assert "damaged" in (folder(store) / retention.FAILED).read_text()
    assert store.mailboxes.env.logs.kept() == good.manifest.environments["mboxlist"].first_log
    assert list(retention.due(store)) == []                   # not again at once
    faults.mend()
    assert list(retention.due(store, time.time() + retention.AGAIN)) == ["the newest is old"]
    retention.make_due(store, "a test")
    assert good not in taking.listed(folder(store))
    assert not (folder(store) / retention.FAILED).exists()


def test_the_last_good_one_is_never_removed(store):
    good = taking.create(store)
    broken = folder(store) / time.strftime(taking.NAME, time.gmtime(time.time() + 100))
    broken.mkdir()                                          # newer, and without a manifest
    assert taking.retain(store, good, kept=0) == []
    assert taking.listed(folder(store)) == [good]


def test_logs_since_the_newest_stay_when_the_store_is_left(store, snapshot_of_three):
    taking.keep_what_is_needed(store)
    first = {name: part.first_log for name, part in snapshot_of_three.manifest.environments.items()}
    for name, env in environments(store).items():
        assert env.logs.kept() == first[name]
    taking.remove(snapshot_of_three)
    taking.keep_what_is_needed(store)
    assert store.mailboxes.env.logs.kept() is None


def test_many_logs_make_one_early(store, snapshot_of_three, faults):
    keep(store, 1)
    faults.around(type(store.mailboxes.env.logs), "kept_volume", lambda *_: 5 << 30)
    assert list(retention.due(store)) == ["there are many logs"]


def test_two_at_a_time_are_not_made(store):
    with taking._locked(folder(store)), pytest.raises(StoreError) as refused:
        taking.create(store)
    assert refused.value.problem is Problem.BUSY


def test_no_room(store, faults):
    faults.around(retention.shutil, "disk_usage", lambda *_: SimpleNamespace(free=1000))
    with pytest.raises(StoreError) as refused:
        retention.make(store)
    assert refused.value.problem is Problem.DISK_FULL
    assert "room" in (folder(store) / retention.FAILED).read_text()


# Message files

@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_message_file_goes_only_after_the_snapshot(tmp_path, elsewhere):
    settings = evolve(SMALL, purge_delay=0, snapshot_folder=tmp_path / "volume" if elsewhere else None)
    store = make_store(tmp_path / "store", settings=settings)
    deliver(store, body(1), ALICE)
    entry = store.entry(MailboxName.parse(ALICE))
    made = retention.make(store)
    remove(store, entry, [1])
    partition = store.partitions["primary"]
    assert purge(partition, time.time() + 9) == 0
    part = made.path.rename(made.path.with_name(made.name + ".part"))       # also while it is being made
    assert purge(partition, time.time() + 9) == 0
    part.rename(made.path)
    if elsewhere:
        (tmp_path / "volume").rename(tmp_path / "gone")                     # its volume is missing
        assert purge(partition, time.time() + 9) == 0
        (tmp_path / "gone").rename(tmp_path / "volume")
    taking.remove(made)
    taking.keep_what_is_needed(store)
    assert purge(partition, time.time() + 9) == 1
    assert check(store) == []
    store.close()


# Differences

def test_differences(store):
    box = {name: namespace.create_mailbox(store, MailboxName.parse(f"user/alice/{name}")) for name in ("Stays", "Old",
                                                                                                       "Goes")}
    for number in range(4):
        deliver(store, body(number), ALICE, "user/alice/Old", "user/alice/Goes")
    made = taking.create(store)
    inbox = store.entry(MailboxName.parse(ALICE))
    deliver(store, body(9), ALICE)
    change_flags(store, inbox, [2], FlagAction.ADD, Flags(Flag.SEEN, ("$Work",)))
    remove(store, inbox, [1])
    namespace.rename_mailbox(store, box["Old"].name, MailboxName.parse("user/alice/New"))
    deletion.delete_mailbox(store, box["Goes"].name)
    namespace.create_mailbox(store, MailboxName.parse("user/bob/Made"))
    with opened(made, SMALL) as then:
        found = {(each.before, each.after): each for each in differences(then, store)}
        assert set(found) == {(ALICE, ALICE), ("user/alice/Old", "user/alice/New"), ("user/alice/Goes", ""),
                              ("", "user/bob/Made")}
        changed = found[ALICE, ALICE]
        assert (changed.added, changed.gone, changed.flags) == ([5], [1], [2])
        assert found["user/alice/Goes", ""].gone == [1, 2, 3, 4]
        renamed = found["user/alice/Old", "user/alice/New"]
        assert (renamed.added, renamed.gone, renamed.flags) == ([], [], [])
        assert [each.user for each in differences(then, store, "bob")] == ["bob"]
        assert list(differences(then, then)) == []
