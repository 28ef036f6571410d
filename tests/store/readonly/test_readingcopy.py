"""The copy for reading: where it may be, when it is there, and what it shows."""

import os
import shutil
import time
from functools import partial
from pathlib import Path

import pytest
from attrs import evolve

from mboxlist import privatefiles
from mboxlist.engine.transact import transact
from mboxlist.names import MailboxName
from store.backup.archive import Archive, Scope
from store.backup.creation import Making
from store.backup.restore import Choice, Restoring
from store.check.scrub import Pace, Scrubbed, scrub_all
from store.check.wholecheck import check
from store.errors import Problem, StoreError
from store.mailboxes import firstuse
from store.mailboxes.authorization import set_acl
from store.mailboxes.expunge import remove
from store.opening import make_empty_store, open_store
from store.partition import processes
from store.partition.marks import READ_ONLY
from store.partition.messagereading import verified
from store.partitions import partitionmove, volumes
from store.readonly import place, readingcopy, volumestate
from store.snapshots import retention, taking
from store.store import Store
from store.tables.references import UNSEEN_TRACE
from store.users import renaming, restorable
from tests.support.faults.planted import Faults
from tests.support.stores.stores import HASH, SMALL, deliver, reopen
from tests.support.stores.withoutpower import left_in_journal

INBOX = MailboxName("alice", "INBOX")
MAIL = b"Subject: 1\r\n\r\nText\r\n"
TRACE = b"Return-Path: <sender@example.org>\r\n"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The places are those of this test alone."""
    for name in ("memory", "temporary"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(place, "MEMORY", str(tmp_path / "memory"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    return tmp_path


def test_it_shows_what_the_store_had_and_no_skip(store: Store) -> None:
    """UIDs and MODSEQs skip ahead when the store itself is opened again after the unclean end: a client that has seen
    the skip in the copy already would miss what comes next (RFC 7162 §3.1.1)."""
    deliver(store, MAIL, str(INBOX))
    before = store.status(store.entry(INBOX))
    for _ in range(2):                  # and not when the copy is opened again after a kill either
        copied = open_store(readingcopy.make(store.root, SMALL.cache), SMALL)
        after = copied.status(copied.entry(INBOX))
        assert (after.uidnext, after.highestmodseq, after.messages) == (
            before.uidnext, before.highestmodseq, before.messages)
        view = copied.open_mailbox(copied.entry(INBOX))
        with copied.open_message(view.entry, view.rows[0]) as file:
            assert file.read(0, 1000) == MAIL
        copied.close()
        privatefiles.touch(copied.root / "partitions" / "primary" / "index" / "unclean")


def test_what_only_a_file_journal_has_is_read_there(store: Store, tmp_path: Path) -> None:
    """Nobody writes it to the files, which are empty, or full of zeros; the check does not call them damaged."""
    mail = [b"Subject: %d\r\n\r\nText %d\r\n" % (number, number) for number in range(3)]
    deliver(store, MAIL, str(INBOX))
    left_in_journal(store, INBOX, mail, tmp_path / "crashed", TRACE)
    copied = open_store(readingcopy.make(tmp_path / "crashed", SMALL.cache), SMALL)
    view = copied.open_mailbox(copied.entry(INBOX))
    for row, body in zip(view.rows, (MAIL, *mail), strict=True):
        with verified(copied.open_message(view.entry, row), bytes(row["digest"]), "alice") as file:
            assert file.read(0, 1000).endswith(body)
        assert copied.partitions["primary"].files.beginning(bytes(row["digest"]), int(row["serial"]), 20) is not None
    scrubbed = Scrubbed()
    for _ in scrub_all(list(copied.partitions.values()), Pace(), scrubbed, first=0, sweep=False, stop=lambda: False):
        pass
    assert check(copied, with_layout=False) == []
    assert {finding.what for finding in scrubbed.findings} <= {"the folder is missing"}        # few are made in tests
    making = Making(copied, Scope())
    with (tmp_path / "archive").open("wb") as file:
        making.write(file.write)
    assert making.findings == []
    copied.close()
    assert len(list((tmp_path / "crashed/partitions/primary/staging").glob("journal-*"))) == 1
    opened = open_store(tmp_path / "crashed", SMALL)            # for writing: the files have it all
    assert opened.partitions["primary"].files.journalled is None and check(opened) == []
    opened.close()


def test_all_that_only_reads_goes_on(store: Store) -> None:
    """The check, QRESYNC (RFC 7162 §3.2.5), and a message whose file nobody has looked at since a rebuild."""
    deliver(store, MAIL, str(INBOX), trace=b"Received: x\r\n")
    deliver(store, MAIL, str(INBOX))
    remove(store, store.entry(INBOX), [2])
    copied = open_store(readingcopy.make(store.root, SMALL.cache), SMALL)
    assert check(copied, with_layout=False) == []           # no copy has a store.idx, and none is missing there
    assert copied.vanished(copied.entry(INBOX), 0).tolist() == [2]
    partition, = copied.partitions.values()
    (digest, record), = partition.refs.all(raw=True)
    unseen = evolve(record, trace=UNSEEN_TRACE, size=0).to_bytes()
    transact(partition.env, lambda txn: partition.refs.messages.put(digest, unseen, txn), reads=True)
    assert partition.look_at_file(digest) == record
    with copied.open_message(copied.entry(INBOX), copied.open_mailbox(copied.entry(INBOX)).rows[0]) as file:
        assert file.read(0, 1000) == b"Received: x\r\n" + MAIL
    copied.close()


def test_it_goes_where_there_is_room(store: Store, elsewhere: Path, faults: Faults) -> None:
    real = os.statvfs
    full: list[str] = [str(elsewhere / "memory")]

    def figures(path: str | Path) -> os.statvfs_result:
        found = list(real(path))
        if any(str(path).startswith(each) for each in full):
            found[4] = 0                # f_bavail
        return os.statvfs_result(found)

    faults.around(os, "statvfs", lambda _, path: figures(path))
    assert str(readingcopy.make(store.root, SMALL.cache)).startswith(str(elsewhere / "temporary"))
    full.append(str(elsewhere / "temporary"))
    with pytest.raises(StoreError) as refused:
        readingcopy.make(store.root, SMALL.cache)
    assert refused.value.problem is Problem.UNAVAILABLE
    assert "MiB" in refused.value.public
    assert not [path for each in ("memory", "temporary") for path in (elsewhere / each).glob("*/*")]    # nor the first


def test_only_one_that_a_server_serves_is_found(store: Store) -> None:
    copy = readingcopy.make(store.root, SMALL.cache)
    assert readingcopy.find(store.root) is None         # left by a server that was killed
    claim = processes.claim(copy / "run" / "server.pid")
    assert readingcopy.find(store.root) == copy
    privatefiles.write(copy / READ_ONLY, "/another/store")
    assert readingcopy.find(store.root) is None
    os.close(claim)


def test_what_somebody_else_has_put_there_is_not_believed(store: Store, elsewhere: Path) -> None:
    copy = readingcopy.make(store.root, SMALL.cache)
    claim = processes.claim(copy / "run" / "server.pid")
    copy.parent.chmod(0o755)
    assert readingcopy.find(store.root) is None
    with pytest.raises(PermissionError):
        readingcopy.make(store.root, SMALL.cache)
    os.close(claim)
    shutil.rmtree(copy.parent)
    copy.parent.symlink_to(elsewhere)
    with pytest.raises(PermissionError):
        readingcopy.make(store.root, SMALL.cache)


def test_while_the_volume_is_not_mounted_no_message_counts_as_lost(store: Store) -> None:
    deliver(store, MAIL, str(INBOX))
    copied = open_store(readingcopy.make(store.root, SMALL.cache), SMALL)
    away = store.root.rename(store.root.with_name("away"))
    view = copied.open_mailbox(copied.entry(INBOX))
    assert copied.cached(view.entry, view.rows)
    with pytest.raises(StoreError) as refused:
        copied.open_message(view.entry, view.rows[0])
    assert refused.value.problem is Problem.UNAVAILABLE
    away.rename(store.root)
    copied.close()


def test_a_volume_that_takes_writes_is_not_called_read_only(store: Store) -> None:
    assert not volumestate.is_read_only(store.root)
    assert not volumestate.why_not_writable(store.root)


@pytest.mark.parametrize(("line", "expected"), [
    (b"36 28 %d:%d / /m rw,relatime - ext4 /dev/vda rw,errors=remount-ro,emergency_ro", True),
    (b"36 28 %d:%d / /emergency_ro rw,relatime - ext4 /dev/vda rw", False),
    (b"36 28 9%d:%d / /m rw,relatime - ext4 /dev/vda rw,emergency_ro", False)])
def test_an_ext4_that_has_met_an_error(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: bytes,
                                       expected: bool) -> None:
    """proc(5), /proc/pid/mountinfo: the third field is the device, the last has the options of the file system."""
    device = store.root.stat().st_dev
    (tmp_path / "mounts").write_bytes(line % (os.major(device), os.minor(device)) + b"\n")
    monkeypatch.setattr(volumestate, "MOUNTS", tmp_path / "mounts")
    assert volumestate.is_read_only(store.root) is expected


def test_who_has_nothing_on_a_partition_that_takes_no_writes(store: Store) -> None:
    """Is renamed, removed and had back, while bob, and carol who may read his mail, are refused as they are."""
    for user in ("carol", "dave"):
        firstuse.inbox(store, store.directory.add(user, HASH))
    volumes.add(store, "second")
    partitionmove.move_owner(store, "bob", "second")
    set_acl(store, MailboxName("bob", "INBOX"), "carol", "lr")
    deliver(store, MAIL, "user/dave/INBOX", "user/bob/INBOX")
    store.close()
    copies = readingcopy.make_some(store.root, SMALL.cache, ["second"])
    with Faults() as failing:
        failing.around(readingcopy, "some", lambda *_: copies)
        reopen(store)
        assert list(store.writable) == ["primary"]
        before = {user: (store.directory.user(user), store.names(user)) for user in ("bob", "carol")}
        for user in before:
            for what in (partial(renaming.rename_user, store, user, "other"), partial(
                    restorable.forget_user, store, user)):
                with pytest.raises(StoreError) as refused:
                    what()
                assert refused.value.problem is Problem.READ_ONLY
        assert before == {user: (store.directory.user(user), store.names(user)) for user in before}
        renaming.rename_user(store, "dave", "david")
        restorable.forget_user(store, "david")
        assert not store.names("david")
        assert restorable.undelete_user(store, "david").mailboxes == 1
        with pytest.raises(StoreError):
            deliver(store, MAIL, "user/bob/INBOX")
        store.close()
    reopen(store)
    assert store.status(store.entry(MailboxName("david", "INBOX"))).messages == 1 and check(store) == []


def restored_from(archive: Path, root: Path) -> dict[str, int]:
    """Messages in each INBOX."""
    make_empty_store(root)
    other = open_store(root, SMALL)
    Restoring(other, [Archive(archive)], Choice()).run()
    found = {entry.name.owner: other.status(entry).messages for entry in other.mailboxes.all()}
    other.close()
    return found


def due(store: Store, now: float) -> list[str]:
    store.follow(evolve(store.settings, snapshots_kept=3))
    return list(retention.due(store, now))


def test_a_snapshot_is_of_the_whole_or_not_made(store: Store, elsewhere: Path) -> None:
    """Issue 23. Without the partition it would be the newest: the logs that the last whole one needs would go. The
    refusal says which partition it is; a backup copies all that is there; one is made as soon as all take writes."""
    volumes.add(store, "second")
    partitionmove.move_owner(store, "bob", "second")
    deliver(store, MAIL, "user/alice/INBOX", "user/bob/INBOX")
    whole = retention.make(store)
    deliver(store, MAIL + b"after it", "user/alice/INBOX", "user/bob/INBOX")
    late = time.time() + store.settings.snapshot_interval
    store.close()
    copies = readingcopy.make_some(store.root, SMALL.cache, ["second"])
    with Faults() as failing:
        failing.around(readingcopy, "some", lambda *_: copies)
        reopen(store)
        deliver(store, MAIL + b"meanwhile", "user/alice/INBOX")
        for make in (retention.make, taking.create):
            with pytest.raises(StoreError) as refused:
                make(store)
            assert refused.value.problem is Problem.READ_ONLY
            assert "second" in refused.value.public and whole.name in refused.value.public
        assert due(store, late) == []
        archive = elsewhere / "meanwhile"
        Making(store, Scope()).write_file(archive)
        assert restored_from(archive, elsewhere / "other") == {"alice": 3, "bob": 2}
        store.close()
    reopen(store)
    assert due(store, late) == ["the newest is old"]
    assert taking.verify(retention.make(store)) == [] and check(store) == []
