"""What the start makes of a list and partitions that do not agree: the list decides, but no mail is lost for it."""

import logging
import multiprocessing
import os
import shutil
import signal
from pathlib import Path

import pytest

from mboxlist import pending
from mboxlist.engine.btree import Txn
from mboxlist.engine.transact import transact
from mboxlist.names import INBOX, MailboxName
from store.accounts.base import Status
from store.check.wholecheck import check
from store.housekeeping import tasks
from store.mailboxes import namespace
from store.mend import correctionrounds
from store.opening import open_store
from store.quota import roots
from store.rebuild import recount
from store.rebuild.outcome import Outcome
from store.recovery.reconciliation import agree
from store.store import Store
from store.tables.index import chunk_key
from store.tables.state import state_key
from store.userarea import writing
from store.values import Flags
from tests.support.faults.killing import Moments
from tests.support.faults.planted import Faults
from tests.support.stores.stores import SMALL, deliver, make_store

ARCHIVE = MailboxName("alice", "Archive")


def test_a_mailbox_that_was_being_made_goes(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store")
    made = namespace.create_mailbox(store, ARCHIVE)
    transact(store.mailboxes.env, lambda txn: store.mailboxes.remove(ARCHIVE, txn))     # as if it had not got there yet
    store.close()
    store = open_store(tmp_path / "store", SMALL)
    assert made.id not in {mailbox for mailbox, _ in store.partitions["primary"].all_states()}
    assert check(store) == []
    store.close()


@pytest.mark.long
def test_mail_outlives_a_list_that_was_lost(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = make_store(tmp_path / "store")
    deliver(store, b"Subject: 1\r\n\r\nText\r\n", "user/alice/INBOX", flags=Flags())
    inbox = store.entry(MailboxName("alice", "INBOX"))
    store.close()
    shutil.rmtree(tmp_path / "store" / "mboxlist")
    (tmp_path / "store" / "mboxlist").mkdir()
    with caplog.at_level(logging.ERROR):
        store = open_store(tmp_path / "store", SMALL)
    assert "mboxlist is damaged (it is empty)" in caplog.text
    assert store.entry(MailboxName("alice", "INBOX")) == inbox      # from its store.idx
    assert len(store.open_mailbox(inbox).rows) == 1
    record, = (record for _, record in store.partitions["primary"].refs.all())
    assert record.references == 1
    assert check(store) == []
    account = store.directory.find("alice")
    assert account is not None and account.status is Status.ACTIVE      # from there, too
    made = namespace.create_mailbox(store, ARCHIVE)
    assert made.id > inbox.id and made.uidvalidity > inbox.uidvalidity
    assert len(store.open_mailbox(inbox).rows) == 1 and not len(store.open_mailbox(made).rows)
    store.close()


@pytest.mark.parametrize("with_records", [True, False])
def test_a_mailbox_whose_figures_are_lost_is_not_made_anew(with_records: bool, tmp_path: Path) -> None:
    """Its `store.idx` stands, and has its messages."""
    store = make_store(tmp_path / "store")
    for number in range(3):
        deliver(store, b"Subject: %d\r\n\r\n" % number, "user/alice/INBOX")
    writing.write_changed(store, hurry=True)
    inbox, partition = store.entry(MailboxName("alice", "INBOX")), store.partitions["primary"]
    before = store.open_mailbox(inbox).rows["digest"].tolist()
    transact(partition.env, lambda txn: partition.states.delete(state_key(inbox.id), txn))
    if not with_records:
        transact(partition.env, lambda txn: partition.index.delete(chunk_key(inbox.id, 0), txn))
    assert agree(store, wholly=True)
    assert store.entry(inbox.name) == inbox
    view = store.open_mailbox(inbox)
    assert view.rows["digest"].tolist() == before and view.uids.tolist() == [1, 2, 3] and view.state.uidnext > 4
    writing.write_changed(store, hurry=True)
    assert check(store) == []
    store.close()


@pytest.mark.parametrize("wholly", [True, False])
def test_many_lost_mailboxes_have_the_partition_counted_once(wholly: bool, tmp_path: Path, faults: Faults) -> None:
    """Else the time of a start grows with the square of what was lost."""
    store = make_store(tmp_path / "store")
    partition = store.partitions["primary"]
    made = [namespace.create_mailbox(store, MailboxName("alice", f"Archive/{number}")) for number in range(5)]
    for entry in made:
        deliver(store, b"Subject: 1\r\n\r\nText\r\n", str(entry.name), flags=Flags())
    writing.write_changed(store, hurry=True)
    for entry in made:
        transact(partition.env, lambda txn, entry=entry: partition.states.delete(   # type: ignore[misc]
            state_key(entry.id), txn))
    transact(store.mailboxes.env, lambda txn: store.mailboxes.pending.note([entry.id for entry in made], txn))
    counted = [faults.watch(recount, name) for name in ("recount_references", "recount_quota")]
    assert agree(store, wholly=wholly) is wholly
    assert [len(calls) for calls in counted] == [1, 1]
    assert all(len(store.open_mailbox(entry).rows) == 1 for entry in made)
    writing.write_changed(store, hurry=True)
    assert check(store) == []
    store.close()


@pytest.mark.long
@pytest.mark.parametrize("wholly", [True, False])
def test_a_start_that_is_killed_while_it_puts_figures_back(wholly: bool, tmp_path: Path) -> None:
    """Before each of its transactions: what the next start leaves is what one start in peace does. What came after
    store.idx was written is nowhere but in the records, and quota still counts what nobody has any more."""
    store = make_store(tmp_path / "store")
    partition = store.partitions["primary"]
    made = [namespace.create_mailbox(store, MailboxName("alice", f"Archive/{number}")) for number in range(3)]
    for entry in made:
        deliver(store, b"Subject: 1\r\n\r\nText\r\n", str(entry.name), flags=Flags())
    writing.write_changed(store, hurry=True)
    for number, entry in enumerate(made):
        deliver(store, b"Subject: %d\r\n\r\nMore\r\n" % number, str(entry.name), flags=Flags())
        transact(partition.env, lambda txn, entry=entry: partition.states.delete(   # type: ignore[misc]
            state_key(entry.id), txn))
        if not number:
            last = chunk_key(entry.id, 0)
            transact(partition.env, lambda txn, key=last: partition.index.delete(key, txn))     # type: ignore[misc]
    transact(store.mailboxes.env, lambda txn: store.mailboxes.pending.note([entry.id for entry in made], txn))
    if wholly:
        transact(store.mailboxes.env, lambda txn: store.mailboxes.pending._table.delete(pending._COMPLETE, txn))
    store.close()
    moments = _killed(tmp_path, "store", 0)
    assert moments > 10
    for at in range(1, moments + 1):
        shutil.copytree(tmp_path / "store", tmp_path / "killed", symlinks=True)
        assert _killed(tmp_path, "killed", at) == -signal.SIGKILL
        store = open_store(tmp_path / "killed", SMALL)
        found = [finding.what for finding in check(store)]          # of the message whose record was lost
        assert found == ["nothing refers to it, and it does not wait for the purge"], f"killed before {at} of {moments}"
        assert [len(store.open_mailbox(entry).rows) for entry in made] == [1, 2, 2]
        assert roots.quota(store, "alice").messages == 5
        store.close()
        shutil.rmtree(tmp_path / "killed")


def _killed(folder: Path, name: str, at: int) -> int:
    """Open a store in another process, which is killed before that transaction (from 1): what it ended with. 0: it goes
    on, on a copy; how many transactions there are."""
    if not at:
        shutil.copytree(folder / name, folder / "whole", symlinks=True)
        name = "whole"
    context = multiprocessing.get_context("fork")
    told = context.SimpleQueue()
    process = context.Process(target=_open, args=(folder / name, at, told))
    process.start()
    process.join()
    assert process.exitcode is not None
    return process.exitcode if at else int(told.get())


def _open(root: Path, at: int, told: "multiprocessing.SimpleQueue[int]") -> None:
    with Moments(at, transactions=True) as seen:
        open_store(root, SMALL)
        told.put(seen.passed)
    os._exit(0)


def test_housekeeping_counts_what_a_killed_command_did_not(store: Store) -> None:
    """What is put back while it counts is counted by the next round."""
    partition = store.partitions["primary"]
    deliver(store, b"Subject: 1\r\n\r\nText\r\n", "user/alice/INBOX")
    task, = (each for each in tasks.one_process(store) if each.name == "uncounted")
    assert list(task.items(store)) == []
    partition.transact(recount.note_uncounted)
    transact(partition.env, lambda txn: partition.quotas.charge("alice", 100, 3, txn, enforce=False))
    name, = task.items(store)
    task.work(store, name)
    assert list(task.items(store)) == [] and roots.quota(store, "alice").messages == 1


@pytest.mark.parametrize("at_start", [True, False])
def test_a_damaged_chunk_of_a_mailbox_that_has_lost_its_figures_comes_back(at_start: bool, tmp_path: Path) -> None:
    """From store.idx, and what came after it from what is left: no message is lost, and all is counted."""
    store = make_store(tmp_path / "store")
    partition, entry = store.partitions["primary"], store.entry(MailboxName("alice", INBOX))
    for number in range(70):
        deliver(store, b"Subject: %d\r\n\r\nText\r\n" % number, str(entry.name), flags=Flags())
    writing.write_changed(store, hurry=True)
    deliver(store, b"Subject: later\r\n\r\nText\r\n", str(entry.name), flags=Flags())
    key = chunk_key(entry.id, 0)
    value = bytearray(partition.index.get(key) or b"")
    value[500] ^= 255

    def spoil(txn: Txn) -> None:
        partition.states.delete(state_key(entry.id), txn)
        partition.index.put(key, bytes(value), txn)

    transact(partition.env, spoil)
    transact(store.mailboxes.env, lambda txn: store.mailboxes.pending.note([entry.id], txn))
    if at_start:
        store.close()
        store = open_store(tmp_path / "store", SMALL)
    else:
        correctionrounds.mend(store, check, Outcome())
    assert check(store) == [] and not recount.is_uncounted(store.partitions["primary"])
    assert store.open_mailbox(entry).uids.tolist() == list(range(1, 72))
    assert roots.quota(store, "alice").messages == 71
    store.close()
