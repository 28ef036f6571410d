"""Snapshots put back: exactly, up to a time, with all logs; what was shown is never given out again."""

import os
import shutil
import time

import pytest
from attrs import evolve

from mboxlist.names import MailboxName
from store.check.wholecheck import check
from store.errors import Problem, StoreError
from store.housekeeping.tasks import environments
from store.mailboxes import deletion, namespace
from store.mailboxes.expunge import remove
from store.opening import make_empty_store, open_store
from store.partitions import volumes
from store.partitions.partitionmove import move_owner
from store.recovery.userareacheck import reconcile
from store.snapshots import reset, retention, taking
from store.snapshots.reset import choose, restore
from tests.support.stores.purging import purge
from tests.support.stores.stores import SMALL, deliver, make_store

ALL = os.environ.get("RESTORE_CUTS") == "all"
ALICE, BOB = "user/alice/INBOX", "user/bob/INBOX"


def body(number):
    return b"Subject: %d\r\n\r\nHello %d.\r\n" % (number, number)


def uids(store, name=ALICE):
    return store.open_mailbox(store.entry(MailboxName.parse(name))).uids.tolist()


def read(store, name=ALICE):
    entry = store.entry(MailboxName.parse(name))
    found = []
    for row in store.open_mailbox(entry).rows:
        with store.open_message(entry, row) as file:
            found.append(file.read(0, file.size))
    return found


def state(store, name=ALICE):
    return store.status(store.entry(MailboxName.parse(name)))


@pytest.fixture
def used(tmp_path):
    """A store with a snapshot, and what came after that."""
    store = make_store(tmp_path / "store")
    for number in range(3):
        deliver(store, body(number), ALICE, BOB)
    retention.make(store)
    for number in range(3, 6):
        deliver(store, body(number), ALICE)
    remove(store, store.entry(MailboxName.parse(ALICE)), [1])
    namespace.create_mailbox(store, MailboxName.parse("user/bob/Later"))
    deliver(store, body(6), "user/bob/Later")
    store.partitions["primary"].flush()
    return store


def put_back(store, **how):
    """Leave it, restore it, open it."""
    root = store.root
    chosen = choose(root, SMALL, until=how.get("until"))
    done = restore(root, SMALL, chosen, **how)
    return open_store(root, SMALL), done


def test_with_all_logs_it_is_what_it_was(used):
    before = state(used)
    used.close()
    store, done = put_back(used)
    assert uids(store) == [2, 3, 4, 5, 6]
    assert read(store) == [body(number) for number in range(1, 6)]
    assert uids(store, "user/bob/Later") == [1]
    assert state(store).uidvalidity == before.uidvalidity
    assert state(store).uidnext > before.uidnext
    assert all(each.later for each in done.logs.values())
    assert check(store) == []
    store.close()


def test_with_all_logs_after_the_databases_were_lost(used):
    """As a process that is killed leaves it, and without its databases."""
    for env in environments(used).values():
        env.flush()
    root = used.root
    folders = [root / name for name in environments(used)]
    for folder in folders:
        shutil.copytree(folder, folder.with_name(folder.name + ".image"))
    used.close()
    for folder in folders:
        shutil.rmtree(folder)
        folder.with_name(folder.name + ".image").rename(folder)
        for path in folder.glob("*.db"):
            path.unlink()
    store, _ = put_back(used)
    assert uids(store) == [2, 3, 4, 5, 6]
    assert uids(store, "user/bob/Later") == [1]
    assert check(store) == []
    store.close()


def test_exactly(used):
    before = state(used)
    last = used.mailboxes.last_identity()
    serial = used.partitions["primary"].serials.next_serial()
    used.close()
    store, done = put_back(used, exact=True)
    assert uids(store) == uids(store, BOB) == [1, 2, 3]
    assert read(store) == [body(number) for number in range(3)]
    with pytest.raises(StoreError):
        store.entry(MailboxName.parse("user/bob/Later"))
    # nothing that was shown comes to mean something else
    assert state(store).uidvalidity == before.uidvalidity
    deliver(store, body(7), ALICE)
    assert uids(store)[-1] >= before.uidnext
    assert state(store).highestmodseq > before.highestmodseq
    assert namespace.create_mailbox(store, MailboxName.parse("user/bob/New")).id > last[0]
    assert store.partitions["primary"].serials.next_serial() > serial
    # and nothing was deleted
    aside = store.root / "partitions" / "primary" / done.aside
    assert done.files == {"primary": 4}
    assert sorted(path.read_bytes() for path in aside.glob("messages/?/??/*")) == [
        body(number) for number in (3, 4, 5, 6)]
    assert (store.root / done.aside / "mboxlist" / "mailboxes.db").exists()
    assert (aside / "index" / "index.db").exists()
    assert check(store) == []
    store.close()


def test_a_mailbox_that_ran_far_ahead_since_then_stays_ahead(used):
    """More UIDs than a mailbox skips after an unclean end."""
    partition = used.partitions["primary"]
    inbox = used.entry(MailboxName.parse(ALICE))

    def run_ahead(txn):
        txn.set_state(inbox.id, None, evolve(txn.state(inbox.id), uidnext=5_000_000, highestmodseq=1 << 40))

    partition.transact(run_ahead)
    used.close()
    store, _ = put_back(used, exact=True)
    assert state(store).uidnext >= 5_000_000
    assert state(store).highestmodseq >= 1 << 40
    store.close()


def test_a_mailbox_that_was_deleted_and_undeleted_since_then_goes_on_behind_both(used):
    """It has another UIDVALIDITY since, and may have shown UIDs under the earlier one after the snapshot."""
    old, shown = MailboxName.parse("user/bob/Old"), 5_000_000
    namespace.create_mailbox(used, old)
    deliver(used, body(1), "user/bob/Old")
    snapshot = retention.make(used)
    first = used.entry(old)
    used.partition_of(first).transact(lambda txn: txn.set_state(
        first.id, None, evolve(txn.state(first.id), uidnext=shown, highestmodseq=1 << 40)))
    deliver(used, body(2), "user/bob/Old")
    deletion.delete_mailbox(used, old)
    assert deletion.undelete_mailbox(used, old).uidvalidity > first.uidvalidity
    used.close()
    restore(used.root, SMALL, snapshot, exact=True)
    store = open_store(used.root, SMALL)
    assert check(store) == []
    there = state(store, "user/bob/Old")
    assert (there.uidvalidity, uids(store, "user/bob/Old")) == (first.uidvalidity, [1])
    assert there.uidnext > shown and there.highestmodseq > 1 << 40
    reconcile(store)
    assert check(store) == []
    store.close()


def test_a_mailbox_that_moved_to_another_partition_goes_on_behind_what_it_showed_there(used):
    snapshot = retention.make(used)
    volumes.add(used, "second")
    move_owner(used, "alice", "second")
    inbox = used.entry(MailboxName.parse(ALICE))
    used.partition_of(inbox).transact(lambda txn: txn.set_state(
        inbox.id, None, evolve(txn.state(inbox.id), uidnext=5_000_000, highestmodseq=1 << 40)))
    used.close()
    restore(used.root, SMALL, snapshot, exact=True)
    store = open_store(used.root, SMALL)
    assert store.entry(MailboxName.parse(ALICE)).partition == "primary"
    assert state(store).uidnext > 5_000_000 and state(store).highestmodseq > 1 << 40
    assert check(store) == []
    store.close()


def test_until_a_time(tmp_path):
    """The times of commits are those of the clock, in whole seconds; the archive has the logs."""
    settings = evolve(SMALL, log_archive=tmp_path / "archive", purge_delay=86400)
    store = make_store(tmp_path / "store", settings=settings)
    deliver(store, body(0), ALICE)
    made = retention.make(store)
    deliver(store, body(1), ALICE)
    wait_for_the_next_second()
    until = int(time.time())
    wait_for_the_next_second()
    remove(store, store.entry(MailboxName.parse(ALICE)), [1])
    deliver(store, body(2), ALICE)
    namespace.create_mailbox(store, MailboxName.parse("user/alice/Later"))
    store.close()
    done = restore(store.root, settings, choose(store.root, settings, until=until), until=until)
    assert done.snapshot.name == made.name
    store = open_store(store.root, settings)
    assert read(store) == [body(0), body(1)]
    assert [str(entry.name) for entry in store.names("alice")] == [ALICE]
    assert check(store) == []
    for number in range(10, 20):                            # the new life has its own logs
        deliver(store, body(number), ALICE)
    later = retention.make(store)
    deliver(store, body(20), ALICE)
    store.close()
    restore(store.root, settings, later)
    store = open_store(store.root, settings)
    assert read(store) == [body(number) for number in (0, 1, *range(10, 21))]
    assert check(store) == []
    store.close()


def wait_for_the_next_second():
    """Commits are told apart by second; the database takes theirs from a clock that is some milliseconds late."""
    second = int(time.time())
    while time.time() < second + 1.05:
        time.sleep(0.02)


def newer(store):
    """The snapshot that is there, and one that is made now, with a later time."""
    older = taking.listed(store.root / "snapshots")[0]
    when = older.time + 1000
    path = older.path.with_name(time.strftime(taking.NAME, time.gmtime(when)))
    made = retention.make(store)
    made.path.rename(path)
    (path / "manifest.json").write_bytes(evolve(made.manifest, time=when, moment=when).to_bytes())
    return older, path


def test_a_newer_snapshot_is_of_another_life_then(used):
    older, path = newer(used)
    used.close()
    restore(used.root, SMALL, choose(used.root, SMALL, name=older.name), exact=True)
    place = used.root / "snapshots"
    assert [each.name for each in taking.listed(place)] == [older.name]
    assert [each.superseded for each in taking.listed(place, every=True)] == [True, False]
    assert choose(used.root, SMALL).name == older.name
    store = open_store(used.root, SMALL)
    deliver(store, body(9), ALICE)
    assert store.mailboxes.env.logs.kept() == older.manifest.environments["mboxlist"].first_log
    store.close()
    restore(used.root, SMALL, choose(used.root, SMALL, name=path.name), exact=True)      # and back again
    store = open_store(used.root, SMALL)
    assert uids(store) == [2, 3, 4, 5, 6]
    assert uids(store, "user/bob/Later") == [1]
    wrong = [finding for finding in check(store) if "no message file" not in finding.what]
    assert len(wrong) <= 4, wrong           # of the message files that were set aside: they are still there
    store.close()


def test_a_dry_run_changes_nothing(used):
    used.close()

    def everything():
        return {str(path): path.read_bytes() for path in used.root.rglob("*")
                if path.is_file() and "run" not in path.parts}

    before = everything()
    done = restore(used.root, SMALL, choose(used.root, SMALL), dry_run=True, exact=True)
    assert done.files == {"primary": 4}
    assert everything() == before


def test_the_store_must_be_down(used):
    with pytest.raises(StoreError) as refused:
        put_back(used)
    assert refused.value.problem is Problem.STORE_IN_USE
    assert check(used) == []
    used.close()


def test_a_damaged_snapshot_is_not_put_back(used):
    used.close()
    chosen = choose(used.root, SMALL)
    path = chosen.path / "mboxlist" / "mailboxes.db"
    path.write_bytes(bytes(4096) + path.read_bytes()[4096:])
    with pytest.raises(StoreError, match="There is no snapshot"):
        choose(used.root, SMALL)
    with pytest.raises(StoreError, match="damaged: mboxlist: mailboxes.db"):
        choose(used.root, SMALL, name=chosen.name)
    with pytest.raises(StoreError, match="older snapshot"):
        choose(used.root, SMALL, until=chosen.time - 1)
    store = open_store(used.root, SMALL)
    assert uids(store) == [2, 3, 4, 5, 6]
    store.close()


class Cut(Exception):
    """The process ends here."""


def test_one_that_is_cut_off_is_done_once(used, faults):
    """At every rename: before the note nothing has changed, after it the next one finishes it."""
    used.close()
    root, before = used.root, [2, 3, 4, 5, 6]
    for stop in range(1, 30) if ALL else (1, 2, 4, 6, 30):
        left = iter(range(stop - 1))
        faults.fail(reset.Path, "rename", Cut, when=lambda path, target, left=left: (       # not of who comes in
            "run" not in path.parts and next(left, None) is None))
        try:
            restore(root, SMALL, choose(root, SMALL), exact=True)
            cut = False
        except Cut:
            cut = True
        faults.mend()
        if not cut:
            break
        if (root / "restoring.json").exists():
            with pytest.raises(StoreError, match="cut off"):
                open_store(root, SMALL)
            with pytest.raises(StoreError):
                make_empty_store(root)
            with reset.nobody_else(root):
                assert reset.finish(root)
            wanted = [1, 2, 3]
        else:
            wanted = before
        store = open_store(root, SMALL)
        assert uids(store) == wanted
        assert check(store) == []
        deliver(store, body(100 + stop), ALICE)
        before = uids(store)
        store.close()
    assert stop > 6


@pytest.mark.parametrize("removed", [False, True])
@pytest.mark.parametrize("decided", [False, True])
def test_a_newer_snapshot_of_one_that_is_cut_off(used, faults, decided, removed):
    """It is superseded when the older one is put back: not by a restore that is undone, and by one that is finished."""
    older, path = newer(used)
    used.close()
    if decided:
        faults.fail(reset, "finish", Cut, when=lambda root: (root / "restoring.json").exists())
    else:
        faults.fail(reset, "replace_file", Cut)
    with pytest.raises(Cut):
        restore(used.root, SMALL, choose(used.root, SMALL, name=older.name), exact=True)
    faults.mend()
    if removed:
        shutil.rmtree(path)
    with reset.nobody_else(used.root):
        assert reset.finish(used.root) is decided
        reset.undo(used.root)
    found = taking.listed(used.root / "snapshots", every=True)
    assert [each.superseded for each in found] == ([] if removed else [decided]) + [False]
    store = open_store(used.root, SMALL)
    assert uids(store) == ([1, 2, 3] if decided else [2, 3, 4, 5, 6]) and check(store) == []
    store.close()


def test_what_was_purged_after_the_snapshot_can_be_brought_back_no_more(tmp_path, unix_time):
    """The snapshot still has the expunged record, but not its file; the next message of that content is a new one."""
    now = unix_time.now
    store = make_store(tmp_path / "store")
    deliver(store, body(0), ALICE, trace=b"Return-Path: <a@example.org>\r\n")
    deliver(store, body(1), ALICE)
    unix_time.now = now - 100
    remove(store, store.entry(MailboxName.parse(ALICE)), [1, 2])
    unix_time.now = now
    deliver(store, body(1), BOB)
    retention.make(store)
    assert purge(store.partitions["primary"], now + store.settings.purge_delay) == 1
    store.close()
    store, _ = put_back(store, exact=True)
    assert check(store) == []
    reconcile(store)
    assert check(store) == []
    alice = store.entry(MailboxName.parse(ALICE))
    assert [message.uid for message in deletion.deleted_messages(store, alice)] == [2]
    trace = b"Return-Path: <longer.address@example.org>\r\n"
    deliver(store, body(0), ALICE, trace=trace)
    assert read(store) == [trace + body(0)] and read(store, BOB) == [body(1)]
    deletion.undelete_messages(store, alice)
    assert read(store) == [trace + body(0), body(1)]
    assert check(store) == []
    store.close()
