"""Databases of a partition that were made anew, where there is more than that to come to terms with: message files that
are missing, files with strange names, a mailbox that is damaged as well, another place."""

import os
import shutil

import pytest

from mboxlist.engine import damage
from mboxlist.names import MailboxName
from store.check import scrub
from store.check.wholecheck import check
from store.errors import Problem, StoreError
from store.opening import open_store
from store.recovery import knownfiles
from store.recovery.environments import recovery_of
from store.recovery.partitionfill import PartitionFill
from store.snapshots import taking
from store.snapshots.snapshotreader import readers_of
from store.tables.references import UNSEEN_TRACE
from store.userarea import writing
from tests.crash import harm
from tests.support.stores.stores import SMALL, deliver, make_store

pytestmark = pytest.mark.few_folders

ALICE = MailboxName("alice", "INBOX")
TRACE = b"Return-Path: <sender@example.org>\r\nReceived: from a\r\n"


@pytest.fixture
def root(tmp_path):
    """alice has a message that came with a trace header; all is in its store.idx."""
    store = make_store(tmp_path / "store")
    deliver(store, b"Subject: 1\r\n\r\n1\r\n", str(ALICE), trace=TRACE)
    store.close()
    return tmp_path / "store"


def message_file(root):
    path, = root.glob("partitions/primary/messages/?/??/" + "[0-9a-f]" * 64)
    return path


def cache_all(store):
    for item in list(knownfiles.uncached(store)):
        knownfiles.cache_one(store, item)


@pytest.mark.parametrize("harmed", [None, b"what is left of it"])
def test_a_file_that_is_brought_back_is_what_it_was(root, harmed):
    """Housekeeping came by while it was missing, or damaged, and cannot know where its trace header ends."""
    path = message_file(root)
    octets = path.read_bytes()
    path.unlink()
    if harmed is not None:
        path.write_bytes(harmed)
    shutil.rmtree(root / harm.INDEX)
    store = open_store(root, SMALL)
    cache_all(store)
    with pytest.raises(StoreError) as refused:
        store.partitions["primary"].look_at_file(bytes.fromhex(path.name))
    assert refused.value.problem is Problem.CORRUPT
    path.unlink(missing_ok=True)
    path.write_bytes(octets)
    folder = next(scrub.scrub(store.partitions["primary"], scrub.Pace(), first=int(path.name[:3], 16)))
    assert folder.findings == []
    record = store.partitions["primary"].look_at_file(bytes.fromhex(path.name))
    assert (record.trace, record.size) == (len(TRACE), len(octets))
    rows = store.open_mailbox(store.entry(ALICE)).rows
    assert store.cached(store.entry(ALICE), rows)[0].trace == len(TRACE)
    assert check(store) == []
    store.close()


def test_a_snapshot_that_was_made_before_the_files_were_looked_at_shows_messages_as_they_are(root):
    """It has no cache records, and its messages.db does not say where trace headers end: the files do."""
    store = open_store(root, SMALL)
    before = store.cached(store.entry(ALICE), store.open_mailbox(store.entry(ALICE)).rows)
    store.close()
    shutil.rmtree(root / harm.INDEX)
    store = open_store(root, SMALL)
    snapshot = taking.create(store)
    assert {record.trace for _, record in store.partitions["primary"].refs.all(raw=True)} == {UNSEEN_TRACE}
    cache_all(store)
    with readers_of(store).used(snapshot.name) as reader:
        entry = reader.mailbox(store.entry(ALICE), "INBOX")
        assert reader.cached(entry, reader.open_mailbox(entry).rows) == before
    assert check(store) == []
    store.close()


def test_what_cannot_be_written_for_now_is_not_called_damaged(root, faults, caplog):
    shutil.rmtree(root / harm.INDEX)
    store = open_store(root, SMALL)
    partition = store.partitions["primary"]
    faults.fail(partition, "transact", StoreError(Problem.DISK_FULL))
    cache_all(store)
    faults.mend()
    assert "backup" not in caplog.text
    rows = store.open_mailbox(store.entry(ALICE)).rows
    assert store.cached(store.entry(ALICE), rows)[0].trace == len(TRACE) and check(store) == []
    store.close()


@pytest.mark.parametrize("strange", ["ab " * 20 + "abcd", "AB" * 32, "ä" * 64], ids=["blanks", "capitals", "letters"])
def test_files_with_strange_names_are_nobodys(root, strange):
    """Some pass for hexadecimal digits, but are no digests. Nobody's mail is harmed by them, nor the start."""
    path = message_file(root)
    shutil.rmtree(root / harm.INDEX)
    path.with_name(strange).write_bytes(b"")
    store = open_store(root, SMALL)
    cache_all(store)
    assert list(harm.ledger(store)[str(ALICE)]) == [1] and "file" not in str(recovery_of(store).events)
    path.with_name(strange).unlink()
    assert check(store) == []
    store.close()


def test_a_mailbox_that_cannot_be_completed_does_not_keep_the_store_from_starting(root, faults):
    """A record is missing that only messages.db knows of, and the chunk that it belongs into is damaged."""
    tried = []

    def damaged(_, refill, mailbox, found, state, txn):
        tried.append((mailbox, [uid for uid, _, _ in found]))
        raise StoreError(Problem.CORRUPT)

    faults.around(writing, "write_what_is_left", lambda *_: None)
    store = open_store(root, SMALL)
    deliver(store, b"Subject: 2\r\n\r\n2\r\n", str(ALICE), trace=TRACE)
    alice = store.entry(ALICE).id
    store.close()
    faults.mend()
    for path in (root / harm.INDEX / "index.db", *root.glob(f"{harm.INDEX}/log.*")):
        path.unlink()
    faults.around(PartitionFill, "_add", damaged)
    store = open_store(root, SMALL)
    assert tried == [(alice, [2])] and list(harm.ledger(store)[str(ALICE)]) == [1]
    store.close()


def test_a_start_that_was_cut_off_is_begun_anew_where_the_store_is_now(root, tmp_path):
    """Its volume is mounted at another place by then. What had been set aside is what the databases are made from."""
    before, path = message_file(root), root / harm.INDEX / "index.db"
    path.unlink()
    pid = os.fork()
    if pid == 0:                        # this process dies when everything has been set aside
        damage.mend = lambda *_, **__: os._exit(7)
        open_store(root, SMALL)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7 and not path.exists()
    root = root.rename(tmp_path / "elsewhere")
    harm.let_go(root)
    store = open_store(root, SMALL)
    event = recovery_of(store).events[harm.INDEX]
    assert "index.db" in event.found and "its own log" in event.source and event.exact
    assert list(harm.ledger(store)[str(ALICE)]) == [1] and message_file(root).name == before.name
    assert check(store) == []
    store.close()
