"""Mailboxes of a snapshot: what was in them is read as it was, and comes back without a second file."""

import fcntl
import os
import shutil
import struct
import subprocess
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest
from attrs import evolve

from mboxlist.names import MailboxName
from store import offload
from store.errors import Problem, StoreError
from store.mailboxes import crosspartition, namespace
from store.mailboxes.expunge import remove
from store.mailboxes.flagchanges import change_flags
from store.partitions import partitionmove, volumes
from store.quota import roots
from store.snapshots import opened, taking
from store.snapshots.opened import Prepared
from store.snapshots.snapshotcopy import bring_back
from store.snapshots.snapshotreader import MOST, readers_of
from store.values import Flag, FlagAction, Flags, InternalDate
from tests.support import ROOT
from tests.support.stores.purging import purge
from tests.support.stores.stores import deliver

BODIES = [b"Subject: %d\r\n\r\n" % n + b"x" * (97 * n) for n in range(4)]
TRACE = b"Return-Path: <a@example.org>\r\nReceived: by one\r\n"


def name(path="INBOX", user="alice"):
    return MailboxName(user, path)


def fill(store):
    """Messages as they come by all ways: with and without a trace header, and with header fields of the mailbox's."""
    deliver(store, BODIES[0], "user/alice/INBOX", "user/bob/INBOX", trace=TRACE, received=InternalDate(10**9, 60))
    deliver(store, BODIES[1], "user/alice/INBOX")
    deliver(store, BODIES[2], "user/alice/INBOX", "user/bob/INBOX", trace=TRACE, header=b"Delivered-To: {}\r\n")
    deliver(store, BODIES[0], "user/alice/INBOX", trace=TRACE.replace(b"<a@", b"<b@"))     # beside the file
    change_flags(store, store.entry(name()), [2, 3], FlagAction.ADD, Flags(Flag.FLAGGED, ("$Junk",)))


def contents(readable, mailbox):
    """What a reader sees, without the UIDs and MODSEQs."""
    found = []
    for row in mailbox.rows:
        with readable.open_message(mailbox.entry, row) as file:
            found.append((file.read(0, file.size), int(row["size"]), int(row["flags"]),
                          mailbox.keyword_names(int(row["keywords"])), int(row["received"])))
    return found


def now(store, path="INBOX"):
    return contents(store, store.open_mailbox(store.entry(name(path))))


def everything_goes(store):
    for entry in list(store.mailboxes.all()):
        remove(store, entry, store.open_mailbox(entry).uids)
    for partition in store.partitions.values():
        partition.files.drop_staged_names()
        purge(partition, time.time() + 10 * store.settings.purge_delay)


def files(partition):
    return {path.name for path in partition.files.folder.glob("?/??/*")}


def earlier(snapshot, seconds=1000):
    """As if it had been made so much earlier."""
    path = snapshot.path.with_name(time.strftime(taking.NAME, time.gmtime(snapshot.time - seconds)))
    snapshot.path.rename(path)
    manifest = evolve(snapshot.manifest, time=snapshot.time - seconds)
    (path / taking.MANIFEST).write_bytes(manifest.to_bytes())
    return next(each for each in taking.listed(path.parent) if each.path == path)


@pytest.fixture
def made(store):
    """A store with messages, and a snapshot of it that is some time old; nothing of the past is left over."""
    fill(store)
    yield earlier(taking.create(store))
    readers_of(store).tidy(0)
    assert not readers_of(store)._open
    assert not list((store.root / "snapshots").glob("*.past*"))


def test_what_was_there_is_read_and_comes_back(store, made):
    before, kept = now(store), files(store.partition("primary"))
    rows = store.open_mailbox(store.entry(name())).rows
    everything_goes(store)
    assert now(store) == [] and files(store.partition("primary")) == kept
    with readers_of(store).used(made.name) as snapshot:
        mailbox = snapshot.open_mailbox(snapshot.mailbox(store.entry(name()), "INBOX"))
        assert contents(snapshot, mailbox) == before
        assert np.array_equal(mailbox.rows, rows)
        assert snapshot.open_mailbox(snapshot.mailbox(store.entry(name()), "INBOX")) is mailbox
        target = namespace.create_mailbox(store, name("Back"))
        assert bring_back(snapshot, mailbox, target, [4, 2, 1], reader="alice") == [1, 2, 3]
        assert now(store, "Back") == [before[0], before[1], before[3]]
        assert bring_back(snapshot, mailbox, target, [3], reader="alice") == [4]
        with pytest.raises(StoreError) as refused:
            bring_back(snapshot, mailbox, target, [3, 9], reader="alice")
        assert refused.value.problem is Problem.GONE
        assert bring_back(snapshot, mailbox, target, []) == []
    assert now(store, "Back") == [before[0], before[1], before[3], before[2]]
    assert files(store.partition("primary")) == kept
    assert roots.quota(store, "alice").octets == sum(size for _, size, *_ in before)


@pytest.mark.parametrize("moved", [False, True])
def test_header_fields_are_those_of_then_though_their_numbers_are_of_others_now(store, made, moved):
    """heads.db has been made anew from what is there still, and gives the same numbers to others' fields."""
    before, partition = now(store), store.partition("primary")
    everything_goes(store)

    def made_anew(txn):
        for key, _ in list(partition.private_headers._table.scan(txn=txn.handle, hold=True)):
            partition.private_headers._table.delete(key, txn.handle)

    partition.transact(made_anew)
    for number in range(3):
        deliver(store, BODIES[3], "user/bob/INBOX", header=b"Delivered-To: another%d\r\n" % number)
    if moved:
        volumes.add(store, "second")
        partitionmove.move_owner(store, "alice", "second")
    with readers_of(store).used(made.name) as snapshot:
        mailbox = snapshot.open_mailbox(snapshot.mailbox(store.entry(name()), "INBOX"))
        assert mailbox.rows["head"].tolist() == [0, 0, 1,
                                                 3] and partition.private_headers.find(1) != snapshot.partition(
            "primary").private_headers.find(1)
        assert contents(snapshot, mailbox) == before
        target = namespace.create_mailbox(store, name("Back"))
        assert bring_back(snapshot, mailbox, target, [1, 2, 3, 4], reader="alice") == [1, 2, 3, 4]
    assert now(store, "Back") == before


def test_a_cache_record_that_was_lost_is_made_anew(store, made):
    entry = store.entry(name())
    rows = store.open_mailbox(entry).rows
    before = [cached.envelope for cached in store.cached(entry, rows)]
    with readers_of(store).used(made.name) as snapshot:
        mailbox = snapshot.open_mailbox(snapshot.mailbox(entry, "INBOX"))
        other = mailbox.rows.copy()
        other["serial"] += 1000                     # under which there is none
        assert [cached.envelope for cached in snapshot.cached(mailbox.entry, other)] == before
        assert [cached.envelope for cached in snapshot.cached(mailbox.entry, mailbox.rows)] == before


def test_the_user_has_been_moved_to_another_partition_since(store, made):
    """The files lie where they lay then; what comes back is copied to where the user is now, once."""
    before = now(store)
    volumes.add(store, "second")
    partitionmove.move_owner(store, "alice", "second")
    everything_goes(store)
    with readers_of(store).used(made.name) as snapshot:
        mailbox = snapshot.open_mailbox(snapshot.mailbox(store.entry(name()), "INBOX"))
        assert mailbox.entry.partition == "primary" and contents(snapshot, mailbox) == before
        assert store.entry(name()).partition == "second"
        assert bring_back(snapshot, mailbox, store.entry(name()), [1, 2, 3, 4], reader="alice") == [5, 6, 7, 8]
        assert bring_back(snapshot, mailbox, store.entry(name()), [1], reader="alice") == [9]
    assert now(store) == [*before, before[0]]
    assert len(files(store.partition("second"))) == 3


def test_quota_is_looked_at_before_and_nothing_comes_then(store, made):
    everything_goes(store)
    roots.set_quota(store, "alice", len(BODIES[1]) - 1)
    with readers_of(store).used(made.name) as snapshot:
        mailbox = snapshot.open_mailbox(snapshot.mailbox(store.entry(name()), "INBOX"))
        with pytest.raises(StoreError) as refused:
            bring_back(snapshot, mailbox, store.entry(name()), [2], reader="alice")
    assert refused.value.problem is Problem.OVER_QUOTA and now(store) == []


def test_ids_of_the_past_are_none_of_the_store(store, made):
    """Whatever is tried with such a mailbox by mistake, no mailbox of the store is meant."""
    before = now(store)
    with readers_of(store).used(made.name) as snapshot:
        entry = snapshot.mailbox(store.entry(name()), "INBOX")
        for work in (lambda: store.open_mailbox(entry), lambda: remove(store, entry, [1]),
                     lambda: change_flags(store, entry, [1], FlagAction.ADD, Flags(Flag.SEEN)),
                     lambda: offload.now(crosspartition.copy_durably(
                         store, entry, store.entry(name()), np.array([1], np.uint32)))):
            with pytest.raises((StoreError, OverflowError, struct.error)):
                work()
    assert now(store) == before


def test_where_there_is_no_room_it_is_not_opened(store, made, faults):
    faults.around(shutil, "disk_usage", lambda *_: SimpleNamespace(free=made.size // 1000))
    with readers_of(store).used(made.name) as snapshot, pytest.raises(StoreError) as refused:
        snapshot.mailboxes(store.entry(name()))
    assert refused.value.problem is Problem.DISK_FULL
    faults.mend()
    with readers_of(store).used(made.name) as snapshot:
        assert [entry.name.path for entry in snapshot.mailboxes(store.entry(name()))] == ["INBOX"]


def damage(path):
    data = bytearray(path.read_bytes())
    for at in range(100, len(data), 512):
        data[at] ^= 0x55
    path.write_bytes(bytes(data))


@pytest.mark.parametrize("file", ["mboxlist/mailboxes.db", "partitions/primary/index/index.db", "manifest.json",
                                  "mboxlist/log.0000000001", "partitions/primary/index/log.0000000001"])
def test_a_damaged_snapshot_is_refused_or_mended_by_its_log(store, made, file):
    """Whatever is wrong with it, nothing else is shown than what there was, and the store goes on."""
    before, found = now(store), None
    damage(made.path / file)
    try:
        with readers_of(store).used(made.name) as snapshot:
            mailbox = snapshot.open_mailbox(snapshot.mailbox(store.entry(name()), "INBOX"))
            found = contents(snapshot, mailbox)
    except StoreError as error:
        assert error.problem in (Problem.UNAVAILABLE, Problem.CORRUPT, Problem.NO_MAILBOX)
    assert found in (None, before) and now(store) == before


@pytest.mark.parametrize("file", ["mboxlist/mailboxes.db", "mboxlist/names.db", "partitions/primary/index/index.db",
                                  "partitions/primary/index/state.db", "partitions/primary/index/messages.db"])
def test_a_damaged_folder_of_the_past_is_refused(store, made, file):
    entry, held = store.entry(name()), Prepared.of(made.path)
    with readers_of(store).used(made.name) as snapshot:
        snapshot.open_mailbox(snapshot.mailbox(entry, "INBOX"))
    readers_of(store).tidy(0)
    damage(held.path / file)
    with pytest.raises(StoreError) as refused, readers_of(store).used(made.name) as snapshot:
        mailbox = snapshot.open_mailbox(snapshot.mailbox(entry, "INBOX"))
        snapshot.cached(mailbox.entry, _lost(mailbox.rows))
    assert refused.value.problem in (Problem.UNAVAILABLE, Problem.CORRUPT)
    readers_of(store).tidy(0)
    held.release()
    assert len(now(store)) == 4


def _lost(rows):
    """As if their cache records were lost: then the table of message files is asked."""
    rows = rows.copy()
    rows["serial"] += 1000
    return rows


def test_one_that_has_been_removed(store, made):
    with readers_of(store).used(made.name) as snapshot:
        mailbox = snapshot.open_mailbox(snapshot.mailbox(store.entry(name()), "INBOX"))
        taking.remove(made)
        assert not snapshot.is_there()
        with pytest.raises(StoreError) as refused, readers_of(store).used(made.name):
            pass
        assert refused.value.problem is Problem.NO_MAILBOX
        assert len(contents(snapshot, mailbox)) == 4        # who reads may come to an end
    readers_of(store).tidy(3600)
    assert not readers_of(store)._open


def test_the_one_unused_for_longest_makes_room(store, made):
    names = [earlier(taking.create(store), 2000 + 10_000 * number).name for number in range(MOST)]
    for each in names:
        with readers_of(store).used(each) as snapshot:
            snapshot.mailboxes(store.entry(name()))
    with readers_of(store).used(made.name):
        assert list(readers_of(store)._open) == [*names[1:], made.name]
    assert not (store.root / "snapshots" / f"{names[0]}.past").exists()


def test_nobody_opens_a_folder_of_the_past_that_another_is_taking_away(tmp_path):
    one, two = Prepared.of(tmp_path / "s"), Prepared.of(tmp_path / "s")
    filled = []
    for each in (one, two):
        folder = each.environment("partitions/a/index", lambda target: filled.append((target / "x").write_text("1")))
        assert (folder / "x").read_text() == "1"
    assert len(filled) == 1                         # the second found what the first had made
    one.release()
    opened.sweep(tmp_path)
    assert (tmp_path / "s.past" / "partitions" / "a" / "index" / "x").exists()      # in use
    two.release()
    assert list(tmp_path.iterdir()) == []


def test_a_fill_that_fails_leaves_nothing(tmp_path):
    held = Prepared.of(tmp_path / "s")

    def fails(target):
        (target / "half").write_text("")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError):
        held.environment("mboxlist", fails)
    assert held.environment("mboxlist", lambda target: None).is_dir()
    assert list((held.path / "mboxlist").iterdir()) == []
    held.release()


KILLED = """
import os, signal, sys
from pathlib import Path
from store.snapshots.opened import Prepared
held = Prepared.of(Path(sys.argv[1]))
held.environment("mboxlist", lambda target: None)
held.environment("other", lambda target: os.kill(os.getpid(), signal.SIGKILL))
"""


def test_what_a_killed_process_left_goes_with_the_next_snapshot(store, made):
    """Its lock is free. What another process uses stays."""
    done = subprocess.run([sys.executable, "-P", "-c", KILLED, made.path], env={**os.environ, "PYTHONPATH": str(ROOT)},
                          check=False)
    assert done.returncode == -9
    left = made.path.with_name(made.name + ".past")
    assert left.is_dir()
    handle = os.open(left / "lock", os.O_RDWR)
    fcntl.flock(handle, fcntl.LOCK_SH)
    taking.create(store)
    assert left.is_dir()
    os.close(handle)
    time_of = earlier(next(iter(taking.listed(made.path.parent))), 5000)
    taking.create(store)
    assert not left.exists() and time_of.path.exists()
