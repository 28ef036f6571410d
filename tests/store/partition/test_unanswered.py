"""The disk gives no answer for a moment (EIO), or no descriptor is left (EMFILE): nothing is taken for missing then."""

import errno
import os
from collections.abc import Callable

import numpy as np
import pytest
from attrs import evolve

from mboxlist import privatefiles
from mboxlist.engine import damagemarks, logfiles
from mboxlist.engine.disk import is_unanswered
from mboxlist.engine.transact import transact
from mboxlist.names import INBOX, MailboxName
from store.accounts.apppasswords.accessfiles import AccessFiles
from store.accounts.apppasswords.accessrecord import Access
from store.check.wholecheck import check
from store.errors import Problem, StoreError
from store.events import receivers
from store.events.receivers import Receiver
from store.mailboxes import expunge
from store.mend import orphans
from store.partition import marks
from store.standby import purgedfiles
from store.tables.index import ROW
from store.tables.references import UNSEEN_TRACE
from store.userarea import directoryfile
from tests.support.stores.stores import deliver

pytestmark = pytest.mark.few_folders
TRACE = b"Return-Path: <first@example.org>\nReceived: from a\n\tby b with LMTP\n"
BODY = b"Subject: hello\r\n\r\nHello.\r\n"


@pytest.fixture
def silent(faults):
    """The disk says nothing about files whose path has the given text in it, until that is "" again."""
    about = [""]

    def is_asked(path: object, *_: object, **__: object) -> bool:
        return bool(about[0]) and isinstance(path, str | os.PathLike) and about[0] in os.fspath(path)

    for name in ("stat", "open"):
        faults.fail(os, name, OSError(errno.EIO, os.strerror(errno.EIO)), when=is_asked)
    return lambda text: about.__setitem__(0, text)


def unavailable(ask: Callable[[], object]) -> bool:
    with pytest.raises(StoreError) as refused:
        ask()
    return refused.value.problem is Problem.UNAVAILABLE


def test_what_says_nothing():
    assert all(is_unanswered(OSError(code, "")) for code in (errno.EIO, errno.EMFILE, errno.ESTALE))
    assert not any(is_unanswered(OSError(code, "")) for code in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP))


def test_a_message_is_rendered_when_its_file_can_be_read_and_not_otherwise(store, silent):
    """Its cache record would say that the trace header is a part of it: FETCH would show another message."""
    deliver(store, BODY, "user/alice/INBOX", trace=TRACE)
    partition = store.partitions["primary"]
    (digest, record), = partition.refs.all()
    before = partition.serials.cached([record.serial])[0]
    partition.files.drop_staged_names()
    transact(partition.env, lambda txn: partition.refs.write(digest, evolve(record, trace=UNSEEN_TRACE, size=0), txn))
    row = np.zeros(1, ROW)
    row["digest"], row["serial"] = digest, record.serial
    silent(digest.hex())
    assert unavailable(lambda: partition.serials.rebuild_cached(row[0]))
    assert unavailable(lambda: partition.look_at_file(digest)) and unavailable(lambda: partition.refs.find(digest))
    assert unavailable(lambda: partition.files.locate(digest, record.serial))
    assert partition.serials.committed_digest(record.serial) == digest
    assert [each.trace for _, each in partition.refs.all()] == [UNSEEN_TRACE]
    assert "its file cannot be read now" in {found.what for found in check(store)}
    silent("")
    assert partition.serials.rebuild_cached(row[0]).data == before.data and partition.look_at_file(digest) == record


def test_what_was_expunged_can_still_be_restored(store, silent):
    deliver(store, BODY, "user/alice/INBOX")
    expunge.remove(store, store.entry(MailboxName("alice", INBOX)), [1])
    partition = store.partitions["primary"]
    partition.files.drop_staged_names()
    (digest, _), = partition.refs.all()
    held = [item.key for item in partition.removed.held()]
    silent(digest.hex())
    assert held and expunge.drop_lost(partition) == 0
    silent("")
    assert [item.key for item in partition.removed.held()] == held
    os.unlink(partition.files.path(digest))
    assert expunge.drop_lost(partition) == 1


def test_a_file_that_cannot_be_read_is_not_replaced(store, silent, tmp_path):
    """The other one may have another trace header in front."""
    deliver(store, BODY, "user/alice/INBOX", trace=TRACE)
    partition = store.partitions["primary"]
    (digest, _), = partition.refs.all()
    right = partition.files.path(digest)
    partition.files.drop_staged_names()
    other = tmp_path / "other"
    other.write_bytes(BODY)
    message = orphans._read(partition, other)
    silent(digest.hex())
    with pytest.raises((OSError, StoreError)):
        orphans._give_place(partition, message)
    silent("")
    assert privatefiles.read(right) == TRACE + BODY and other.exists()


def test_a_login_without_the_second_factor_is_not_let_in(tmp_path, silent):
    access = AccessFiles(tmp_path)
    access.change("alice", lambda before: evolve(before, recovery=("x",)))
    silent(str(access.path("alice")))
    assert unavailable(lambda: access.of("alice"))
    silent("")
    assert access.of("alice") == Access("alice", recovery=("x",)) and access.of("bob") == Access("bob")


def test_the_receivers_of_events_stay(store, silent):
    receiver = Receiver("one")
    receivers.change(store.root, lambda before: [*before, receiver])
    silent(str(store.root / receivers.FILE))
    with pytest.raises(OSError):
        receivers.change(store.root, lambda before: before)
    silent("")
    assert receivers.read(store.root).all == (receiver,)
    (store.root / receivers.FILE).write_text("no list")         # of that nothing is lost
    receivers.change(store.root, lambda before: [*before, Receiver("two")])
    assert receivers.read(store.root).all == (Receiver("two"),)


@pytest.mark.parametrize(("name", "read", "nothing"), [
    ("users/epoch", marks.read_epoch, 0),
    ("users/directory", directoryfile.read, None),
    ("tables", damagemarks.known_tables, {}),
    (logfiles.KEPT_LOG, lambda folder: logfiles.LogFiles(folder, list).kept(), None),
    ("run/reading-copies", lambda root: list(purgedfiles.copies(root)), []),
])
def test_small_files_are_not_taken_for_missing_or_damaged(tmp_path, silent, name, read, nothing):
    """Of an older epoch UIDs are given out again, accounts are made of the directory's copy, an empty table is made for
    one that is not on record, and logs and message files go that somebody needs."""
    assert read(tmp_path) == nothing
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(b"\xff")
    assert read(tmp_path) == nothing
    silent(name)
    with pytest.raises(OSError):
        read(tmp_path)
