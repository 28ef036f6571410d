"""The purge: a file goes when its last reference has been gone for the purge delay, and never before."""

import errno
import hashlib
import os
import shutil
import time
from pathlib import Path

import pytest

from mboxlist.engine.transact import transact
from mboxlist.names import MailboxName
from store.check.wholecheck import check
from store.errors import Problem, StoreError
from store.mailboxes import duepurge, expunge
from store.mailboxes.deletion import delete_mailbox
from store.mailboxes.expunge import due, purge_batch, remove
from store.mailboxes.namespace import create_mailbox
from store.partition import messagefiles
from store.rebuild.emptying import make_folders
from store.tables import references
from tests.support.faults.planted import Faults
from tests.support.stores.purging import purge
from tests.support.stores.stores import deliver, let_go

BODY = b"Subject: x\r\n\r\nhello\r\n"


def files(store):
    return list(store.partitions["primary"].files.folder.glob("?/??/*"))


def expunge_all(store, user="alice"):
    entry = store.entry(MailboxName(user, "INBOX"))
    remove(store, entry, store.open_mailbox(entry).rows["uid"])


def test_a_file_outlives_its_last_reference_by_the_delay(store):
    partition = store.partitions["primary"]
    deliver(store, BODY, "user/alice/INBOX", "user/bob/INBOX")
    expunge_all(store)
    late = time.time() + partition.settings.purge_delay + 10
    assert purge(partition, late) == 0              # bob has it
    expunge_all(store, "bob")
    assert purge(partition) == 0 and files(store)   # not yet
    assert purge(partition, late) == 1
    assert not files(store)
    assert list(partition.refs.all()) == []


def test_what_cannot_be_purged_is_told_and_what_was_is_counted(store):
    """The second of two deleted mailboxes, and then the files: the first one is counted, and the rest says why."""
    partition, late = store.partitions["primary"], time.time() + store.settings.purge_delay + 10
    names = [MailboxName("alice", name) for name in ("one", "two")]
    for name in names:
        create_mailbox(store, name)
        delete_mailbox(store, name)
    deliver(store, BODY, "user/alice/INBOX")
    expunge_all(store)
    asked = []
    with Faults() as faults:
        faults.fail(duepurge, "purge_mailbox", StoreError(Problem.DISK_FULL),
                    when=lambda *_: asked.append(1) or len(asked) == 2)
        faults.fail(duepurge, "purge_batch", OSError(errno.EIO, "Input/output error"))
        done = duepurge.purge_partition(store, partition, late, lambda seen: None, dry_run=False)
    assert (done.mailboxes, done.files, len(files(store))) == (1, 0, 1)
    assert [line.partition(": ")[2] for line in done.problems] == [
        StoreError(Problem.DISK_FULL).public, "Input/output error"]
    assert done.problems[0].startswith("user/alice/")
    done = duepurge.purge_partition(store, partition, late, lambda seen: None, dry_run=False)
    assert (done.mailboxes, done.files, done.problems, files(store)) == (1, 1, [], [])


def test_a_message_that_comes_again_is_not_purged(store):
    partition = store.partitions["primary"]
    deliver(store, BODY, "user/alice/INBOX")
    expunge_all(store)
    deliver(store, BODY, "user/bob/INBOX")
    assert purge(partition, time.time() + partition.settings.purge_delay + 10) == 0
    assert len(files(store)) == 1


def test_a_purge_cut_off_before_its_commit_loses_nothing_that_comes_later(store):
    partition = store.partitions["primary"]
    deliver(store, BODY, "user/alice/INBOX")
    expunge_all(store)
    partition.files.drop_staged_names()
    files(store)[0].unlink()                        # what a killed purge leaves: a record, and no file
    deliver(store, BODY, "user/bob/INBOX")
    entry = store.entry(MailboxName("bob", "INBOX"))
    with store.open_message(entry, store.open_mailbox(entry).rows[0]) as file:
        assert file.read(0, file.size) == BODY


@pytest.mark.parametrize("above", [False, True])
def test_a_message_whose_folder_is_missing(store, above):
    """As after a copy by a program that leaves out empty folders: it is made; nobody is refused, and a start starts."""
    partition = store.partitions["primary"]
    where = Path(partition.files.path(hashlib.blake2b(BODY, digest_size=32).digest()))
    lost = where.parents[1] if above else where.parent
    shutil.rmtree(lost)
    deliver(store, BODY, "user/alice/INBOX")
    assert where.exists() and {finding.what for finding in check(store)} <= {"the folder is missing"}
    partition.files.drop_staged_names()
    expunge_all(store)
    shutil.rmtree(lost)
    assert purge(partition, time.time() + partition.settings.purge_delay + 10) == 1
    assert list(partition.refs.all()) == []
    make_folders(partition.folder)


def many(store, count=20):
    """That many messages, expunged, whose files have their names and no others; a time at which they are due."""
    for number in range(count):
        deliver(store, BODY + b"%d\r\n" % number, "user/alice/INBOX")
    store.partitions["primary"].files.drop_staged_names()
    expunge_all(store)
    return time.time() + store.settings.purge_delay + 10


def meanwhile(faults, store, work):
    """Have something done when the files of a batch are gone, and their records are not."""
    faults.before(store.partitions["primary"].files, "sync_removed", lambda digests: work())


def cached(partition):
    return [key for key, _ in partition.serials._cache.scan()]


def read(store, user="bob"):
    entry = store.entry(MailboxName(user, "INBOX"))
    row, = store.open_mailbox(entry).rows
    with store.open_message(entry, row) as file:
        return file.read(0, file.size)


def test_many_go_together(store, faults):
    """The folders are synced once, or the file system is; and no file keeps its staged name."""
    partition, synced = store.partitions["primary"], faults.watch(messagefiles, "sync_file_system")
    late = many(store)
    synced.clear()
    batch, = due(partition, late)
    assert len(batch.files) == len(files(store)) == 20
    done = purge_batch(partition, batch.files)
    assert (done.files, done.octets, done.failed) == (20, 10 * len(BODY + b"1\r\n") + 10 * len(BODY + b"11\r\n"), {})
    assert synced == [partition.files.folder] and not files(store) and not cached(partition)
    assert list(partition.refs.all()) == list(due(partition, late)) == []
    deliver(store, BODY, "user/alice/INBOX")
    expunge_all(store)
    assert purge(partition, late) == 1 and len(synced) == 1             # a single folder is synced by itself
    assert not [name for name in partition.files.staging.iterdir() if name.stat().st_size]


def test_no_more_than_is_wanted(store):
    partition, late = store.partitions["primary"], many(store, 5)
    assert (purge(partition, late, most=3), purge(partition, late, most=3), purge(partition, late)) == (3, 2, 0)


def test_rows_are_not_locked_for_long(store, monkeypatch, faults):
    """A disk on which every file takes long: then few go in one transaction, and all do."""
    partition, late = store.partitions["primary"], many(store)
    rounds = []
    faults.around(expunge, "_unlink", lambda unlink, *words: rounds.append(unlink(*words)) or rounds[-1])
    monkeypatch.setattr(expunge, "HELD", -1.0)
    assert purge(partition, late) == 20 and rounds == [1] * 20
    assert not files(store)


def test_a_message_that_comes_while_its_file_goes(store, faults):
    """It has a file of its own, and nothing is left of the other one."""
    partition, late = store.partitions["primary"], many(store)
    meanwhile(faults, store, lambda: deliver(store, BODY + b"3\r\n", "user/bob/INBOX"))
    assert purge(partition, late) == 20
    partition.files.drop_staged_names()
    assert read(store) == BODY + b"3\r\n" and len(files(store)) == 1
    [(digest, record)] = partition.refs.all()
    assert record.references == 1 and cached(partition) == [record.serial.to_bytes(8, "big")]
    assert list(partition.refs.waiting(1 << 31)) == []


def test_a_message_that_comes_and_goes_while_its_file_goes(store, unix_time, faults):
    """Within the same second, so that it is on the list under the same key: its second file waits for itself."""
    partition = store.partitions["primary"]
    late = many(store)

    def work():
        deliver(store, BODY + b"3\r\n", "user/bob/INBOX")
        expunge_all(store, "bob")

    meanwhile(faults, store, work)
    assert purge(partition, late) == 20 and len(files(store)) == 1
    faults.mend()
    assert purge(partition, late) == 1 and not files(store) and not cached(partition)


def test_a_message_that_is_on_the_list_twice(store, monkeypatch, unix_time):
    """It went, came again, and went: one file, and nothing is left on the list, wherever transactions end."""
    partition, now = store.partitions["primary"], time.time()
    monkeypatch.setattr(expunge, "FORGOTTEN", 3)
    for later in range(3):
        unix_time.now = now + 10 * later
        late = many(store, 5)
        let_go(store)
    batch, = due(partition, late)
    assert len(batch.files) == 15 and len({digest for _, digest in batch.files}) == 5
    assert purge_batch(partition, batch.files).files == 5
    assert not files(store) and not cached(partition)
    assert list(partition.refs.all()) == list(partition.refs.waiting(1 << 31)) == []


def test_a_message_that_is_on_the_list_twice_and_due_once(store, unix_time):
    """It is the last time that counts."""
    partition, now = store.partitions["primary"], unix_time.now
    late = many(store, 3)
    let_go(store)
    unix_time.now = now + 100
    many(store, 3)
    let_go(store)
    assert purge(partition, late) == 0 and len(files(store)) == 3
    assert {when for when, _ in partition.refs.waiting(1 << 31)} == {int(now + 100)}
    assert purge(partition, late + 100) == 3 and not files(store)


def test_so_many_at_a_time(store):
    partition, late = store.partitions["primary"], many(store, 7)
    batches = list(due(partition, late, 3))
    assert [len(batch.files) for batch in batches] == [3, 3, 1]
    assert [digest for batch in batches for _, digest in batch.files] == [digest for _,
                                                                          digest in partition.refs.waiting(1 << 31)]
    assert [purge_batch(partition, batch.files).files for batch in batches] == [3, 3, 1]
    assert list(partition.refs.waiting(1 << 31)) == []


def test_what_two_purges_remove_at_the_same_time(store, faults):
    partition, late = store.partitions["primary"], many(store)
    batch, = due(partition, late)
    other = []
    faults.first(partition.files, "sync_removed",
                 lambda digests: other.append(purge_batch(partition, batch.files).failed))
    assert purge_batch(partition, batch.files).files == 20 and other == [{}]
    assert not files(store) and not cached(partition) and list(partition.refs.all()) == []


def test_names_that_may_still_be_on_disk_keep_their_records(store, faults):
    """After a sync that failed a crash could bring the files back: they must not be files of which nothing is known."""
    partition, late = store.partitions["primary"], many(store)
    faults.fail(messagefiles, "sync_file_system", OSError(5, os.strerror(5)))
    with pytest.raises(OSError):
        purge(partition, late)
    faults.mend()
    assert len(list(partition.refs.all())) == 20
    assert purge(partition, late) == 20 and list(partition.refs.all()) == []


@pytest.mark.parametrize("count", [3, 20])                  # synced folder by folder, and all together
def test_names_that_a_failed_sync_may_have_left_are_written_again(store, faults, count):
    """The folders count as written after the error (fsync(2)): a sync with nothing to write would say that all is well;
    the records would go, and the files come back with the next loss of power. Another process may purge then."""
    partition, late = store.partitions["primary"], many(store, count)
    folders = {os.path.dirname(partition.files.path(digest)) for digest, _ in partition.refs.all()}
    for name in ("sync_file_system", "sync_folder"):
        faults.fail(messagefiles, name, OSError(5, os.strerror(5)))
    with pytest.raises(OSError):
        purge(partition, late)
    faults.mend()
    for folder in folders:
        os.utime(folder, (0, 0))
    written = []
    for name in ("sync_file_system", "sync_folder"):
        faults.before(messagefiles, name, lambda *_: written.append(
            {folder for folder in folders if os.stat(folder).st_mtime}))
    assert purge(partition, late) == count and list(partition.refs.all()) == [] and not files(store)
    assert written[0] == folders


def test_what_a_crash_leaves_while_a_name_is_removed_again_is_no_message(store, faults):
    partition, late = store.partitions["primary"], many(store, 1)
    faults.fail(messagefiles, "sync_folder", OSError(5, os.strerror(5)))
    with pytest.raises(OSError):
        purge(partition, late)
    faults.mend()
    faults.fail(messagefiles, "remove_name", OSError(5, os.strerror(5)))
    with pytest.raises(OSError):
        purge(partition, late)
    faults.mend()
    left, = files(store)
    assert not left.stat().st_size
    deliver(store, BODY + b"0\r\n", "user/alice/INBOX")
    store.partitions["primary"].files.drop_staged_names()
    assert left.read_bytes().endswith(BODY + b"0\r\n") and purge(partition, late) == 0 and check(store) == []


def test_one_that_cannot_be_removed_stays_on_its_list(store, faults):
    partition, late = store.partitions["primary"], many(store, 5)
    let_go(store)
    [(_, digests)] = partition.refs.lists(1 << 31)
    assert len(digests) == 5
    faults.fail(partition.files, "remove", PermissionError(1, os.strerror(1)),
                when=lambda digest, serial: digest == digests[0])
    with pytest.raises(PermissionError):
        purge(partition, late)
    assert [digest for _, digest in partition.refs.waiting(1 << 31)] == digests[:1] and len(files(store)) == 1
    faults.mend()
    assert purge(partition, late) == 1 and not files(store)
    assert list(partition.refs.waiting(1 << 31)) == []


def test_two_lists_with_one_key(store, unix_time):
    """The one that arrived first comes again, and goes with another, all within a second: no file is forgotten."""
    partition = store.partitions["primary"]
    late = many(store, 5)
    let_go(store)
    [(key, digests)] = partition.refs.lists(1 << 31)
    with open(partition.files.path(digests[0]), "rb") as file:
        deliver(store, file.read(), "user/bob/INBOX")
    deliver(store, BODY, "user/bob/INBOX")
    expunge_all(store, "bob")
    let_go(store)
    [(again, more)] = partition.refs.lists(1 << 31)
    assert again == key and more[:5] == digests and len(more) == 6
    assert purge(partition, late) == 6 and not files(store)
    assert list(partition.refs.waiting(1 << 31)) == list(partition.refs.all()) == []


def test_a_list_of_an_older_version(store):
    """Its one digest is in its key, and there is no value (format 3)."""
    partition, late = store.partitions["primary"], many(store, 3)
    let_go(store)
    [(key, digests)] = partition.refs.lists(1 << 31)

    def older(txn):
        partition.refs.strike(key, digests, txn)
        for digest in digests:
            partition.refs._purge.put(key[:4] + digest, b"", txn)

    transact(partition.env, older)
    assert sorted(digest for _, digest in partition.refs.waiting(1 << 31)) == sorted(digests)
    assert purge(partition, late) == 3 and not files(store)
    assert list(partition.refs.waiting(1 << 31)) == list(partition.refs.all()) == []


def test_lists_are_no_longer_than_they_should_be_and_lie_as_messages_came(store, monkeypatch):
    partition = store.partitions["primary"]
    monkeypatch.setattr(references, "LISTED", 3)
    late = many(store, 7)
    let_go(store)
    lists = [[partition.refs.find(digest).serial for digest in digests] for _, digests in partition.refs.lists(1 << 31)]
    assert sorted(map(len, lists)) == [1, 3, 3]
    assert [serial for some in sorted(lists) for serial in some] == sorted(serial for some in lists for serial in some)
    assert purge(partition, late, most=3) == 3 and purge(partition, late) == 4
