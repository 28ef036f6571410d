"""The files in the user area follow the mailboxes: after each round, after a crash, and with two who write."""

import multiprocessing
import os
import threading
import time
from base64 import b64encode

import numpy as np
import pytest
from attrs import evolve

from mboxlist.engine.transact import transact
from mboxlist.names import MailboxName
from store.check.wholecheck import check
from store.errors import Problem, StoreError
from store.housekeeping import tasks
from store.mailboxes import deletion, namespace, subscribing
from store.mailboxes.authorization import annotate, set_acl
from store.mailboxes.copymessages import copy_messages
from store.mailboxes.expunge import remove
from store.mailboxes.flagchanges import change_flags
from store.opening import open_store
from store.partition.marks import GENERATION, GENERATION_OF_LIST, behind_marker, mark_behind
from store.partition.partition import Partition
from store.quota import roots
from store.recovery.environments import recovery_of
from store.recovery.userareacheck import reconcile
from store.tables.index import chunk_key
from store.userarea import idxfile, idxreading, writing
from store.userarea.paths import Locks, place, place_of_deleted
from store.userarea.writing import write_changed, write_round
from store.values import Flag, FlagAction, Flags
from tests.support.stores.purging import purge_mailboxes
from tests.support.stores.stores import SMALL, deliver, make_store, reopen_after_crash

ONE, TWO = b"Subject: 1\r\n\r\none\r\n", b"Subject: 2\r\n\r\ntwo two\r\n"


def named(text):
    return MailboxName.parse(text)


def primary(store):
    return store.partitions["primary"]


def tree(store):
    """Every file in the user area, by its path without the hash folders."""
    users = primary(store).folder / "users"
    found = []
    for path in users.rglob("*"):
        if path.is_file() and path.name not in ("epoch", "directory", GENERATION, GENERATION_OF_LIST):
            parts = path.relative_to(users).parts
            found.append("/".join(parts if parts[0] in ("public", "deleted") else parts[2:]))
    return sorted(found)


def file_of(store, name):
    return idxreading.read(place(primary(store), named(name)))


def agrees(store, name):
    """Whether the file says what the store says."""
    entry = store.entry(named(name))
    mailbox, found = store.open_mailbox(entry), file_of(store, name)
    state, head = mailbox.state, found.head
    return (found.rows.tobytes() == mailbox.rows.tobytes() and head.records == len(mailbox.rows)
            and (head.id, head.name, head.owner) == (entry.id, name, entry.name.owner)
            and (head.uidvalidity, head.uidnext, head.highestmodseq, tuple(head.keywords), head.quota_root)
            == (state.uidvalidity, state.uidnext, state.highestmodseq, state.keywords, state.quota_root)
            and head.annotations == {note: {user: b64encode(value).decode()} for note, user, value
                                     in store.mailboxes.annotations.of(entry.id)}
            and (head.acl, head.special_use, head.created) == (entry.acl, entry.special_use, entry.created))


@pytest.fixture
def boxes(store):
    """INBOX with UIDs 1 to 3 and Archive, empty; their files are up to date."""
    for body in (ONE, TWO, ONE):
        deliver(store, body, "user/alice/INBOX")
    found = store.entry(named("user/alice/INBOX")), namespace.create_mailbox(store, named("user/alice/Archive"))
    write_changed(store)
    return found


def test_every_kind_of_change_is_written(store, boxes):
    inbox, archive = boxes
    changes = [
        lambda: deliver(store, TWO, "user/alice/INBOX", "user/bob/INBOX", flags=Flags(Flag.SEEN, ("$Junk",))),
        lambda: change_flags(store, inbox, [1, 2], FlagAction.ADD, Flags(Flag.FLAGGED, ("later",))),
        lambda: copy_messages(store, inbox, archive, [1, 2]),
        lambda: copy_messages(store, inbox, archive, [3], remove=True),
        lambda: remove(store, inbox, [1]),
        lambda: namespace.create_mailbox(store, named("user/alice/Sent"), special_use="\\Sent"),
        lambda: transact(store.mailboxes.env, lambda txn: store.mailboxes.write(
            evolve(store.entry(archive.name), acl={"bob": "lrs"}), txn)),
        lambda: annotate(store, inbox, "/shared/comment", b"\xff"),
    ]
    for change in changes:
        assert write_changed(store) == 0
        change()
        assert write_changed(store) > 0
        assert all(agrees(store, str(entry.name)) for entry in store.mailboxes.all())


def test_what_is_the_users_is_in_the_file_of_inbox(store, boxes):
    subscribing.subscribe(store, "alice", "Archive")
    roots.set_quota(store, "alice", 5_000_000, 300)
    write_changed(store)
    head = file_of(store, "user/alice/INBOX").head
    assert head.subscriptions == ["Archive"]
    assert head.limits["alice"] == [5_000_000, 300]
    subscribing.unsubscribe(store, "alice", "Archive")
    write_changed(store)
    assert file_of(store, "user/alice/INBOX").head.subscriptions == []


def test_limits_are_where_they_are_looked_for(store, boxes):
    """Of a user in INBOX, of a domain in an INBOX of it, of public mailboxes in each that the root covers."""
    for name in ("public/news/a", "public/news/b", "public/other"):
        namespace.create_mailbox(store, named(name))
    roots.set_quota(store, "alice/Archive", 4_000_000)
    roots.set_quota(store, "public/news", 6_000_000)
    roots.set_quota(store, "@example.org", 8_000_000)
    write_changed(store)
    inbox = file_of(store, "user/alice/INBOX").head.limits
    assert inbox["alice/Archive"][0] == 4_000_000
    assert inbox["@"][0] == 8_000_000
    assert file_of(store, "user/alice/Archive").head.quota_root == "alice/Archive"
    for name, limits in (("a", [6_000_000]), ("b", [6_000_000])):
        assert file_of(store, f"public/news/{name}").head.limits["public/news"][:1] == limits
    assert "public/news" not in file_of(store, "public/other").head.limits


def test_a_readers_own_flags_are_in_the_file(store, boxes):
    shared = set_acl(store, boxes[0].name, "bob", "lrs")
    change_flags(store, shared, [2], FlagAction.ADD, Flags(Flag.SEEN), reader="bob")
    write_changed(store)
    found = file_of(store, "user/alice/INBOX")
    assert found.head.readers == ["bob"]
    assert [(int(item["reader"]), int(item["chunk"]), np.flatnonzero(item["own"]["flags"]).tolist())
            for item in found.own] == [(0, 0, [1])]


def test_a_renamed_tree_has_its_files_elsewhere(store, boxes):
    namespace.create_mailbox(store, named("user/alice/Archive/2026/May"))
    namespace.create_mailbox(store, named("public/news"))
    write_changed(store)
    assert tree(store) == ["alice/Archive/2026/May/store.idx", "alice/Archive/store.idx", "alice/store.idx",
                           "bob/store.idx", "public/news/store.idx"]
    namespace.rename_mailbox(store, named("user/alice/Archive"), named("user/alice/Old"))
    write_changed(store)
    assert tree(store) == ["alice/Old/2026/May/store.idx", "alice/Old/store.idx", "alice/store.idx", "bob/store.idx",
                           "public/news/store.idx"]
    folder = primary(store).user_folder("alice")
    assert sorted(path.name for path in folder.iterdir()) == ["Old", "store.idx"]       # no empty folder is left


def test_a_deleted_mailbox_keeps_its_file_until_the_purge(store, boxes):
    archive = boxes[1]
    copy_messages(store, boxes[0], archive, [1])
    deletion.delete_mailbox(store, archive.name)
    write_changed(store)
    assert tree(store) == ["alice/store.idx", "bob/store.idx", f"deleted/{archive.id}/store.idx"]
    found = idxreading.read(place_of_deleted(primary(store), archive.id))
    assert (found.head.name, found.head.removed > 0, len(found.rows)) == ("user/alice/Archive", True, 1)
    deletion.undelete_mailbox(store, archive.name)
    write_changed(store)
    assert tree(store) == ["alice/Archive/store.idx", "alice/store.idx", "bob/store.idx"]
    assert agrees(store, "user/alice/Archive")
    deletion.delete_mailbox(store, archive.name)
    write_changed(store)
    purge_mailboxes(store, time.time() + 30 * 86400)
    write_changed(store)
    assert tree(store) == ["alice/store.idx", "bob/store.idx"]
    assert not (primary(store).folder / "users" / "deleted").exists()


def test_a_name_that_is_used_again_costs_no_mailbox_its_file(store, boxes):
    """Whoever renamed the first has not written it yet when another process writes the second."""
    old = boxes[1].id
    namespace.rename_mailbox(store, named("user/alice/Archive"), named("user/alice/Old"))
    namespace.create_mailbox(store, named("user/alice/Archive"))
    primary(store).unwritten.changed.discard(old)
    write_changed(store)
    assert tree(store) == ["alice/Archive/store.idx", "alice/store.idx", "bob/store.idx", f"deleted/{old}/store.idx"]
    assert idxreading.read(place_of_deleted(primary(store), old)).head.id == old
    primary(store).unwritten.changed.add(old)
    write_changed(store)
    assert tree(store) == ["alice/Archive/store.idx", "alice/Old/store.idx", "alice/store.idx", "bob/store.idx"]
    assert agrees(store, "user/alice/Archive") and agrees(store, "user/alice/Old")


def test_who_has_the_lock_reads_what_came_before_it(store, boxes, faults):
    """Another process changes the mailbox and writes its file at the moment before this one gets the lock."""
    done = []

    def change():
        deliver(store, TWO, "user/alice/INBOX")
        write_changed(store)

    def late(_, offset, *, wait):
        if offset == boxes[0].id and not done:
            done.append(threading.Thread(target=change))
            done[0].start()
            done[0].join()

    faults.before(Locks, "take", late)
    primary(store).unwritten.changed.add(boxes[0].id)
    write_changed(store)
    assert done
    assert agrees(store, "user/alice/INBOX")


def test_a_mailbox_that_another_writes_comes_again(store, boxes):
    deliver(store, TWO, "user/alice/INBOX", "user/bob/INBOX")
    with Locks(primary(store)) as locks:
        assert locks.take(boxes[0].id, wait=False)
        assert write_changed(store) == 1
    assert agrees(store, "user/bob/INBOX") and not agrees(store, "user/alice/INBOX")
    assert write_changed(store) == 1
    assert agrees(store, "user/alice/INBOX")


def work_in(root, number):
    store = open_store(root, SMALL)
    for count in range(25):
        deliver(store, b"Subject: %d\r\n\r\n%d\r\n" % (number, count), "user/alice/INBOX", "user/bob/INBOX")
        if count % 3 == number:
            write_changed(store)
    store.close()


def test_two_processes_write_the_same_files(store, boxes):
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=work_in, args=(store.root, number)) for number in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    assert len(file_of(store, "user/alice/INBOX").rows) == 53
    assert agrees(store, "user/alice/INBOX") and agrees(store, "user/bob/INBOX")


def test_a_mailbox_that_cannot_be_written_holds_up_no_other(store, boxes, caplog, faults):
    partition, inbox = primary(store), boxes[0]
    key = chunk_key(inbox.id, 0)
    good = partition.index.get(key)
    transact(partition.env, lambda txn: partition.index.put(key, b"x" + good[1:], txn))
    blocked = namespace.create_mailbox(store, named("user/alice/Blocked"))
    faults.fail(os, "replace", OSError(5, "Input/output error"), lambda source, *_, **__: "Blocked" in str(source))
    partition.unwritten.changed.update((inbox.id, boxes[1].id))
    for _ in range(2):
        assert write_changed(store) == 1 - _
        assert {inbox.id, blocked.id} == partition.unwritten.changed == set(partition.unwritten.failing)
    assert len([record for record in caplog.records if "cannot be written" in record.getMessage()]) == 2
    faults.mend()
    transact(partition.env, lambda txn: partition.index.put(key, good, txn))
    assert write_changed(store) == 2
    assert not partition.unwritten.failing and not partition.unwritten.changed
    assert agrees(store, "user/alice/INBOX") and agrees(store, "user/alice/Blocked")
    partition.damaged.clear()


@pytest.mark.parametrize("call", ["write", "replace", "fsync"])
def test_a_full_disk_leaves_everything_for_the_next_round(store, boxes, faults, call):
    deliver(store, TWO, "user/alice/INBOX", "user/bob/INBOX")
    before = file_of(store, "user/alice/INBOX").head
    faults.fail(os, call, OSError(28, "No space left on device"))
    assert write_changed(store) == 0
    faults.mend()
    assert file_of(store, "user/alice/INBOX").head == before
    assert tree(store) == ["alice/Archive/store.idx", "alice/store.idx", "bob/store.idx"]
    assert write_changed(store) == 2
    assert agrees(store, "user/alice/INBOX") and agrees(store, "user/bob/INBOX")


def test_many_share_their_syncs(store, faults):
    """More files than are synced one by one."""
    for number in range(13):
        namespace.create_mailbox(store, named(f"user/alice/{number}"))
    synced = faults.watch(writing, "sync_file_system")
    assert write_changed(store, batch=8) == 15
    assert len(synced) == 3             # one before the names of a batch, and one after all
    assert all(agrees(store, str(entry.name)) for entry in store.mailboxes.all())


def test_the_rate_gives_way_before_a_minute_has_passed(tmp_path, faults):
    store = make_store(tmp_path / "store", settings=evolve(SMALL, index_rate=1))
    for number in range(32):
        namespace.create_mailbox(store, named(f"user/alice/{number}"))
    pauses = []
    faults.around(primary(store).unwritten.stop, "wait", lambda _, seconds: pauses.append(seconds))
    write_changed(store, batch=8)
    assert pauses == [writing.PATIENCE]
    deliver(store, ONE, "user/alice/INBOX")
    write_changed(store, hurry=True)
    assert len(pauses) == 1
    store.close()


def many(root):
    """A store with more files to write than fit into a batch."""
    store = make_store(root)
    write_changed(store)
    for number in range(10):
        namespace.create_mailbox(store, named(f"user/alice/{number}"))
    return store


def test_a_round_is_left_off_between_two_batches_when_the_process_is_to_leave(tmp_path, faults):
    """Or a stop would wait until the files of thousands of mailboxes have been written."""
    store = many(tmp_path / "store")
    unwritten = primary(store).unwritten
    faults.before(writing, "sync_file_system", lambda folder: unwritten.stop.set())
    assert write_changed(store, batch=4) == 4 and len(unwritten.changed) == 6
    assert write_changed(store) == 0 and len(unwritten.changed) == 6
    store.close()
    store = open_store(tmp_path / "store", SMALL)
    assert all(agrees(store, str(entry.name)) for entry in store.mailboxes.all()) and check(store) == []
    store.close()


def test_what_there_is_no_time_to_write_is_left_to_reconcile(tmp_path):
    store = many(tmp_path / "store")
    store.close(within=0)
    store = open_store(tmp_path / "store", SMALL)
    assert recovery_of(store).events == {} and primary(store).epoch == 1 and len(tree(store)) == 2
    assert behind_marker(primary(store).folder).exists()
    reconcile(store)
    assert all(agrees(store, str(entry.name)) for entry in store.mailboxes.all()) and check(store) == []
    store.close()


def test_the_file_of_a_moved_mailbox_goes_when_the_new_one_is_there(tmp_path):
    root = tmp_path / "store"
    make_store(root).close()
    Partition.make(root / "partitions" / "second")
    store = open_store(root, SMALL)
    old, new = store.partitions["primary"], store.partitions["second"]
    entry = store.entry(named("user/alice/INBOX"))
    state = old.state(entry.id)
    new.transact(lambda txn: txn.set_state(entry.id, None, evolve(state, epoch=new.epoch)))
    transact(store.mailboxes.env, lambda txn: store.mailboxes.write(evolve(entry, partition="second"), txn))
    assert write_round(store, old) == 0
    assert place(old, entry.name).exists()
    assert write_round(store, new) == 1
    assert write_round(store, old) == 0
    assert not place(old, entry.name).exists()
    assert idxreading.read(place(new, entry.name)).head.partition == "second"
    store.close()


# After an unclean end

def test_what_a_killed_process_did_not_write_is_found(tmp_path):
    store = make_store(tmp_path / "store")
    archive = namespace.create_mailbox(store, named("user/alice/Archive"))
    gone = namespace.create_mailbox(store, named("user/alice/Gone"))
    write_changed(store)
    deliver(store, ONE, "user/alice/INBOX")
    namespace.rename_mailbox(store, archive.name, named("user/alice/Old"))
    transact(store.mailboxes.env, lambda txn: store.mailboxes.write(
        evolve(store.entry(named("user/bob/INBOX")), acl={"alice": "lr"}), txn))
    deletion.delete_mailbox(store, gone.name)
    purge_mailboxes(store, time.time() + 30 * 86400)
    store.mailboxes.env.flush()
    primary(store).unwritten.changed.clear()
    store = reopen_after_crash(store)
    assert tree(store) == ["alice/Archive/store.idx", "alice/Gone/store.idx", "alice/store.idx", "bob/store.idx"]
    assert reconcile(store) == 3
    assert tree(store) == ["alice/Old/store.idx", "alice/store.idx", "bob/store.idx"]
    assert all(agrees_but_for_the_epoch(store, str(entry.name)) for entry in store.mailboxes.all())
    assert not (primary(store).folder / "index" / "behind").exists()
    store.close()


def agrees_but_for_the_epoch(store, name):
    entry, head = store.entry(named(name)), file_of(store, name).head
    return (head.name == name and head.acl == entry.acl and head.records == len(store.open_mailbox(entry).rows)
            and head.uidnext <= store.status(entry).uidnext)


def test_an_unclean_end_alone_writes_nothing(tmp_path, faults):
    store = make_store(tmp_path / "store")
    deliver(store, ONE, "user/alice/INBOX")
    write_changed(store)
    store = reopen_after_crash(reopen_after_crash(store))
    written = faults.watch(idxfile, "prepare")
    reconcile(store)
    assert not written
    store.close()


def test_missing_damaged_and_newer_files_are_written_again(store, boxes):
    inbox = place(primary(store), boxes[0].name)
    inbox.unlink()
    place(primary(store), boxes[1].name).write_bytes(b"nonsense")
    bob = place(primary(store), named("user/bob/INBOX"))
    left = idxreading.read(bob)
    idxfile.write(bob, idxfile.Contents(evolve(left.head, highestmodseq=left.head.highestmodseq + 9), left.rows))
    assert reconcile(store) == 0            # nobody asked for it
    mark_behind(primary(store).folder)
    reconcile(store)
    assert agrees(store, "user/alice/INBOX") and agrees(store, "user/alice/Archive")
    assert file_of(store, "user/bob/INBOX").head.highestmodseq == left.head.highestmodseq + 9      # it is evidence
    for item in list(tasks._damaged(store)):
        tasks._repair(store, item)
    write_changed(store)
    for name in ("user/alice/INBOX", "user/alice/Archive", "user/bob/INBOX"):
        assert agrees(store, name)


def test_of_two_files_of_a_mailbox_the_old_one_goes(store, boxes):
    """The end came after the new file got its name, before the old one lost its own."""
    path = place(primary(store), boxes[1].name)
    data = path.read_bytes()
    namespace.rename_mailbox(store, boxes[1].name, named("user/alice/Old"))
    write_changed(store)
    path.parent.mkdir()
    path.write_bytes(data)
    (path.parent / "store.idx.9.1.1").write_bytes(b"half")
    mark_behind(primary(store).folder)
    with Locks(primary(store)) as locks:            # somebody is writing it
        locks.take(9, wait=True)
        reconcile(store)
    assert tree(store) == ["alice/Archive/store.idx.9.1.1", "alice/Old/store.idx", "alice/store.idx", "bob/store.idx"]
    mark_behind(primary(store).folder)
    reconcile(store)
    assert tree(store) == ["alice/Old/store.idx", "alice/store.idx", "bob/store.idx"]
    assert not path.parent.exists()


def test_the_file_of_another_list_stays(store, boxes):
    """The list of mailboxes was lost and begun anew: these files are all that is left of the old mailboxes."""
    path = place(primary(store), named("user/alice/Kept"))
    path.parent.mkdir()
    head = evolve(file_of(store, "user/alice/INBOX").head, name="user/alice/Kept", store="another", id=2)
    idxfile.write(path, idxfile.Contents(head, file_of(store, "user/alice/INBOX").rows))
    mark_behind(primary(store).folder)
    reconcile(store)
    assert path.exists()


def test_what_could_not_be_written_at_the_end_is_looked_for_at_the_next_start(tmp_path, faults):
    store = make_store(tmp_path / "store")
    write_changed(store)
    deliver(store, ONE, "user/alice/INBOX")
    faults.fail(idxfile, "prepare", StoreError(Problem.DISK_FULL))
    store.close()
    faults.mend()
    store = open_store(store.root, SMALL)
    assert not agrees(store, "user/alice/INBOX")
    reconcile(store)
    assert agrees(store, "user/alice/INBOX")
    store.close()
