"""Nobody is told that a message is kept where its file has been lost or cut off, whatever records say: who has the
message in hand brings the file back, and everybody else is refused and changes nothing."""

import errno
import hashlib
import os

import numpy as np
import pytest

from mboxlist.names import MailboxName
from store import hosting, offload
from store.delivery.batch import one_by_one
from store.errors import Problem, StoreError
from store.mailboxes import crosspartition, firstuse, joining
from store.mailboxes.copymessages import copy_messages
from store.mailboxes.deletion import deleted_messages, undelete_messages
from store.mailboxes.expunge import remove
from store.migration.messageimport import Contents, Known, add, new_rows
from store.partitions import partitionmove, volumes
from store.rebuild.desired import new_mailbox
from store.snapshots import taking
from store.snapshots.snapshotcopy import bring_back
from store.snapshots.snapshotreader import readers_of
from store.tables.references import UNSEEN_TRACE
from store.values import InternalDate
from tests.store.usermove.test_usermove import move
from tests.support.stores.stores import deliver, unlist

BODY = b"Subject: one\r\n\r\n" + b"text " * 300
TRACE = b"Return-Path: <a@example.org>\r\nReceived: by one\r\n"
LONGER = TRACE + b"X-Longer: yes\r\n"
ALICE, BOB = MailboxName("alice", "INBOX"), MailboxName("bob", "INBOX")
MID = hashlib.blake2b(BODY, digest_size=32).digest()


@pytest.fixture
def two(store):
    """Alice's mailboxes are on one partition, bob's on another."""
    volumes.add(store, "second")
    partitionmove.move_owner(store, "bob", "second")
    return store


def harm(partition, digest=MID, *, cut=False):
    """Take the file away, or its second half; where it was, and its octets."""
    partition.files.drop_staged_names()
    path = partition.files.locate(digest, 0)
    octets = path.read_bytes()
    path.unlink()
    if cut:
        path.write_bytes(octets[:len(octets) // 2])
    return path, octets


def octets(store, name=BOB):
    mailbox, found = store.open_mailbox(store.entry(name)), []
    for row in mailbox.rows:
        with store.open_message(mailbox.entry, row) as file:
            found.append(file.read(0, file.size))
    return found


def copy(store, **options):
    return offload.now(crosspartition.copy_durably(
        store, store.entry(ALICE), store.entry(BOB), np.array([1], np.uint32), **options))


def refused(work):
    with pytest.raises(StoreError) as error:
        work()
    assert error.value.problem is Problem.CORRUPT
    return error.value


@pytest.mark.parametrize(("move", "cut"), [(False, True), (True, False)])
def test_a_copy_to_another_partition_brings_the_file_back(two, cut, move):
    for user in ("alice", "bob"):
        deliver(two, BODY, f"user/{user}/INBOX", trace=TRACE)
    harm(two.partitions["second"], cut=cut)
    assert copy(two, remove=move) == [2]
    assert octets(two) == [TRACE + BODY] * 2


def test_a_copy_that_cannot_stand_in_becomes_a_file_of_its_own(two):
    """It shows its trace header, which is longer than that of the lost file, which nothing can bring back."""
    deliver(two, BODY, "user/alice/INBOX", trace=LONGER)
    deliver(two, BODY, "user/bob/INBOX", trace=TRACE)
    path, kept = harm(two.partitions["second"])
    assert copy(two) == [2]
    path.write_bytes(kept)
    assert octets(two) == [TRACE + BODY, LONGER + BODY]


def test_a_copy_that_cannot_be_kept_is_refused(two):
    """It shows no trace header: its file would be that of the lost content."""
    deliver(two, BODY, "user/alice/INBOX")
    deliver(two, BODY, "user/bob/INBOX", trace=TRACE)
    path, kept = harm(two.partitions["second"])
    refused(lambda: copy(two, remove=True))
    assert two.status(two.entry(BOB)).messages == two.status(two.entry(ALICE)).messages == 1
    assert list(two.partitions["second"].files.staging.glob("*")) == []
    path.write_bytes(kept)
    assert copy(two, remove=True) == [2] and octets(two) == [TRACE + BODY, BODY]


def test_a_move_to_another_partition_brings_the_file_back(two):
    for user in ("alice", "bob"):
        deliver(two, BODY, f"user/{user}/INBOX", trace=TRACE)
    harm(two.partitions["second"])
    partitionmove.move_owner(two, "alice", "second")
    assert octets(two, ALICE) == octets(two) == [TRACE + BODY]


def test_what_the_disk_does_not_say_at_once_is_asked_again(store, faults):
    """The file has its place, and no staged name; three looks are made."""
    def fail(path, **_):
        if left and str(path) in looks:
            raise left.pop()

    deliver(store, BODY, "user/alice/INBOX")
    files, record = store.partitions["primary"].files, store.partitions["primary"].refs.find(MID)
    files.drop_staged_names()
    looks, left = (files.path(MID), files.staged_path(record.serial)), [OSError(errno.EIO, "no")]
    with faults:
        faults.before(os, "stat", fail)
        assert files.is_whole(MID, record.serial, record.size) and not left
        left += [OSError(errno.EIO, "no") for _ in range(6)]
        with pytest.raises(StoreError) as refused:
            files.is_whole(MID, record.serial, record.size)
        assert refused.value.problem is Problem.UNAVAILABLE
        assert not files.seems_whole(MID, record.serial, record.size) and not left


def test_what_was_expunged_and_has_no_file_does_not_keep_a_user_from_moving(two):
    deliver(two, BODY, "user/alice/INBOX", trace=TRACE)
    deliver(two, BODY + b"2", "user/alice/INBOX")
    remove(two, two.entry(ALICE), [1])
    harm(two.partitions["primary"])
    partitionmove.move_owner(two, "alice", "second")
    assert octets(two, ALICE) == [BODY + b"2"] and undelete_messages(two, two.entry(ALICE)) == []
    harm_done = two.partitions["primary"].refs.find(MID)        # what is left waits for its purge
    assert harm_done is not None and not harm_done.references
    unlist(two.partitions["primary"], MID)
    two.partitions["primary"].transact(lambda txn: txn.refs.forget([MID], lambda *_: True, txn.handle))


@pytest.mark.parametrize(("trace", "files", "cut"), [(TRACE, 1, True), (LONGER, 2, False)])
def test_a_user_who_comes_from_another_back_end_brings_the_file_back(ends, trace, files, cut):
    one, two = ends
    firstuse.inbox(two, two.directory.add("carol", "*"))
    deliver(one, BODY, "user/alice/INBOX", trace=trace)
    deliver(two, BODY, "user/carol/INBOX", trace=TRACE)
    path, kept = harm(two.partitions["primary"], cut=cut)
    move("alice", one, two)
    assert octets(two, ALICE) == [trace + BODY]
    assert files == len(list(two.partitions["primary"].refs.all()))
    if files == 2:
        path.write_bytes(kept)
    assert octets(two, MailboxName("carol", "INBOX")) == [TRACE + BODY]


def test_a_user_stays_where_the_mail_cannot_be_kept(ends):
    one, two = ends
    firstuse.inbox(two, two.directory.add("carol", "*"))
    deliver(one, BODY, "user/alice/INBOX")
    deliver(two, BODY, "user/carol/INBOX", trace=TRACE)
    path, kept = harm(two.partitions["primary"])
    refused(lambda: move("alice", one, two))
    assert hosting.is_here(one, one.directory.find("alice")) and octets(one, ALICE) == [BODY]
    path.write_bytes(kept)


@pytest.mark.parametrize(("trace", "cut"), [(TRACE, False), (LONGER, True)])
def test_a_backup_brings_the_file_back(store, trace, cut):
    shown = trace + BODY
    deliver(store, BODY, "user/bob/INBOX", trace=TRACE)
    path, kept = harm(store.partitions["primary"], cut=cut)
    contents = Contents(store.partitions["primary"], one_by_one)
    contents.store([trace + BODY], digest=MID, trace=len(trace))
    contents.keep()
    rows, _, had = new_rows(contents, [Known(MID, len(shown), InternalDate(1, 0))])
    added = add(store.partitions["primary"], store.entry(ALICE), new_mailbox(ALICE, rows))
    assert had == [True] and added.uids == {0: 1}
    if trace != TRACE:
        path.write_bytes(kept)
    assert octets(store, ALICE) == [shown] and octets(store) == [TRACE + BODY]


def test_an_import_that_cannot_be_kept_is_refused(store):
    deliver(store, BODY, "user/bob/INBOX", trace=TRACE)
    path, kept = harm(store.partitions["primary"])
    contents = Contents(store.partitions["primary"], one_by_one)
    refused(lambda: contents.store([BODY]))
    contents.store([BODY + b"2"])            # and others come
    contents.keep()
    assert contents.files == 1
    path.write_bytes(kept)
    staged = list(store.partitions["primary"].files.staging.glob("*"))
    store.partitions["primary"].files.drop_staged_names()
    assert len(staged) <= 1


def test_a_delivery_brings_a_file_back_that_was_cut_off(store):
    deliver(store, BODY, "user/alice/INBOX", trace=TRACE)
    harm(store.partitions["primary"], cut=True)
    deliver(store, BODY, "user/bob/INBOX", trace=TRACE)
    assert octets(store, ALICE) == octets(store) == [TRACE + BODY]
    store.partitions["primary"].files.drop_staged_names()
    assert list(store.partitions["primary"].files.staging.glob("*")) == []


OTHER = b"Return-Path: <b@example.org>\r\nReceived: by two\r\n"      # as long as TRACE


@pytest.mark.parametrize("header", [b"", b"Delivered-To: {}\r\n"])
def test_what_brings_a_file_back_changes_the_trace_header_and_nothing_else(store, header):
    """Another delivery has a trace header of its own: nobody has that of the lost file any more. Sizes, own header
    fields, cache records and whoever does not see a trace header are as they were."""
    deliver(store, BODY, "user/alice/INBOX", trace=TRACE, header=header)
    deliver(store, BODY, "user/alice/INBOX")                        # this one never had it
    before = store.open_mailbox(store.entry(ALICE))
    cached = store.cached(before.entry, before.rows)
    own = header.replace(b"{}", str(ALICE).encode())
    assert octets(store, ALICE) == [own + TRACE + BODY, BODY]
    harm(store.partitions["primary"])
    deliver(store, BODY, "user/bob/INBOX", trace=OTHER)
    after = store.open_mailbox(store.entry(ALICE))
    assert after.rows.tobytes() == before.rows.tobytes() and store.cached(after.entry, after.rows) == cached
    assert octets(store, ALICE) == [own + OTHER + BODY, BODY] and octets(store) == [OTHER + BODY]


@pytest.mark.parametrize("cut", [False, True])
def test_who_reads_while_a_file_is_brought_back_never_gets_some_of_both(store, cut):
    deliver(store, BODY, "user/alice/INBOX", trace=TRACE)
    mailbox = store.open_mailbox(store.entry(ALICE))
    with store.open_message(mailbox.entry, mailbox.rows[0]) as file:
        first = file.read(0, 20)
        path = store.partitions["primary"].files.locate(MID, 0)
        if cut:
            store.partitions["primary"].files.drop_staged_names()
            with path.open("r+b") as damaged:
                damaged.truncate(40)
        else:
            harm(store.partitions["primary"])
        deliver(store, BODY, "user/bob/INBOX", trace=OTHER)
        if cut:
            refused(lambda: file.read(20, file.size))
        else:
            assert first + file.read(20, file.size) == TRACE + BODY
    assert octets(store, ALICE) == [OTHER + BODY]


def test_a_damaged_name_in_staging_does_not_come_back(store):
    """The message has its place, and its first name still, when its file is cut off under both."""
    deliver(store, BODY, "user/alice/INBOX", trace=TRACE)
    partition = store.partitions["primary"]
    path = partition.files.locate(MID, 0)
    with path.open("r+b") as file:
        file.truncate(10)
    deliver(store, BODY, "user/bob/INBOX", trace=TRACE)
    record = partition.refs.find(MID)
    partition.files.recover(lambda serial: MID if serial == record.serial else None)     # as the next start would
    partition.files.drop_staged_names()
    assert octets(store, ALICE) == octets(store) == [TRACE + BODY]


def test_the_size_of_a_file_that_nobody_has_looked_at_tells_whether_it_fits(store):
    """After a remake a record may not say where the content begins; what came is as long as what there was."""
    deliver(store, BODY, "user/alice/INBOX", trace=TRACE)
    partition = store.partitions["primary"]
    path, kept = harm(partition)

    def unsee(txn):
        data = bytearray(txn.refs.find(MID, txn.handle).to_bytes())
        data[20:24] = UNSEEN_TRACE.to_bytes(4, "little")
        txn.refs.messages.put(MID, bytes(data), txn.handle)

    partition.transact(unsee)
    other, = deliver(store, BODY, "user/bob/INBOX", trace=LONGER)
    assert other.problem is Problem.CORRUPT and store.status(store.entry(BOB)).messages == 0
    deliver(store, BODY, "user/bob/INBOX", trace=TRACE)
    assert octets(store, ALICE) == octets(store) == [TRACE + BODY]
    partition.look_at_file(MID)


def test_what_was_expunged_comes_back_only_with_its_file(store):
    deliver(store, BODY, "user/alice/INBOX", "user/bob/INBOX", trace=TRACE)
    deliver(store, BODY + b"2", "user/bob/INBOX")
    remove(store, store.entry(BOB), [1, 2])
    path, kept = harm(store.partitions["primary"], cut=True)
    assert undelete_messages(store, store.entry(BOB)) == [3] and octets(store) == [BODY + b"2"]
    assert [message.uid for message in deleted_messages(store, store.entry(BOB))] == [1]
    path.write_bytes(kept)
    assert undelete_messages(store, store.entry(BOB)) == [4] and octets(store) == [BODY + b"2", TRACE + BODY]


def test_nothing_comes_out_of_the_past_without_its_file(store):
    deliver(store, BODY, "user/alice/INBOX", trace=TRACE)
    snapshot = taking.create(store)
    with readers_of(store).used(snapshot.name) as reader:
        source = reader.open_mailbox(reader.mailbox(store.entry(ALICE), "INBOX"))
        path, kept = harm(store.partitions["primary"])
        refused(lambda: bring_back(reader, source, store.entry(BOB), [1]))
        assert store.status(store.entry(BOB)).messages == 0
        path.write_bytes(kept)
        assert bring_back(reader, source, store.entry(BOB), [1]) == [1] and octets(store) == [TRACE + BODY]
    readers_of(store).tidy(0)


def test_messages_are_not_joined_to_a_content_that_has_lost_its_file(store):
    below = b"From: a@example.org\r\n\r\n" + b"0123456789" * 600
    for user in ("alice", "bob"):
        deliver(store, b"Received: for %s\r\n" % user.encode() + below, f"user/{user}/INBOX", trace=TRACE)
    deliver(store, below, "user/alice/INBOX", trace=TRACE)
    path, kept = harm(store.partitions["primary"], hashlib.blake2b(below, digest_size=32).digest())
    done = joining.join(store, store.partitions["primary"])
    assert (done.records, dict(done.left)) == (0, {"their content has lost its file": 2})
    path.write_bytes(kept)
    assert joining.join(store, store.partitions["primary"]).records == 2


def test_a_copy_within_a_partition_looks_at_no_file(store, faults):
    """Its records say no more than those of the mailbox that it comes from."""
    deliver(store, BODY, "user/alice/INBOX", trace=TRACE)
    files = store.partitions["primary"].files
    for look in ("is_whole", "locate", "open"):
        faults.forbid(files, look)
    copy_messages(store, store.entry(ALICE), store.entry(BOB), [1])
    faults.mend()
