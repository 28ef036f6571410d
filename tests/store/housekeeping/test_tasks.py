"""Rounds of housekeeping: what fails is reported once and comes last; and what each task does to a store."""

import logging
import os
from types import SimpleNamespace

import pytest
from attrs import evolve, fields

from mboxlist import privatefiles
from mboxlist.names import MailboxName
from store.check.wholecheck import check
from store.housekeeping import tasks
from store.housekeeping.tasks import Round, Task, one_process
from store.mailboxes import deletion, namespace
from store.mailboxes.expunge import remove
from store.settings import Settings
from store.users import lifecycle, restorable
from store.values import LONGEST_TIME, Flags
from tests.support.stores.stores import SMALL, deliver, make_store

pytestmark = pytest.mark.few_folders


def rounds(task, rate=0):
    return Round(task, SimpleNamespace(settings=Settings(housekeeping_rate=rate)))


def finish(round):
    """Go through all items once."""
    while round.step() is not None:
        pass


class Work:
    """Items of which some fail."""

    def __init__(self, *bad):
        self.bad = set(bad)
        self.called = []

    def __call__(self, store, item):
        self.called.append(item)
        if item in self.bad:
            raise ValueError(f"{item} is damaged")
        return 1


def test_a_bad_item_is_reported_once_and_comes_last(caplog):
    work = Work("b", "d")
    round = rounds(Task("test", 1, lambda store: "abcde", work))
    finish(round)
    assert work.called == list("abcde")                 # nobody knew
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR] == [
        "housekeeping: test: b failed: ValueError: b is damaged",
        "housekeeping: test: d failed: ValueError: d is damaged"]
    caplog.clear()
    work.called.clear()
    finish(round)
    assert work.called == list("acebd")
    assert not [record for record in caplog.records if record.levelno == logging.ERROR]
    status = round.status()
    assert (status.rounds, status.done, status.failures, status.bad) == (2, 6, 4, 2)
    work.bad.clear()
    work.called.clear()
    finish(round)
    finish(round)
    assert work.called == list("acebdabcde")
    assert round.status().bad == 0


def test_what_is_no_longer_there_is_forgotten():
    items = ["a", "b"]
    round = rounds(Task("test", 1, lambda store: items, Work("b")))
    finish(round)
    assert round.status().bad == 1
    items.pop()
    finish(round)
    assert round.status().bad == 0


def test_items_that_cannot_be_found_end_the_round_and_not_the_task(caplog):
    def items(store):
        yield "a"
        raise OSError("the list is damaged")

    work = Work()
    round = rounds(Task("test", 1, items, work))
    finish(round)
    finish(round)
    assert work.called == ["a", "a"]
    assert [record.getMessage() for record in caplog.records] == [
        "housekeeping: test: the list of its items failed: OSError: the list is damaged"]


def test_a_round_that_was_left_off_goes_on():
    work = Work()
    round = rounds(Task("test", 1, lambda store: range(5), work))
    assert round.step(lambda: len(work.called) == 3) is None
    assert work.called == [0, 1, 2]
    assert round.status().running
    finish(round)
    assert work.called == [0, 1, 2, 3, 4]


def test_the_rate_limit_counts_what_was_done():
    round = rounds(Task("test", 1, lambda store: range(5), lambda store, item: 500, limited=True), 1000)
    pause = round.step()
    assert pause is not None and 0 < pause <= 0.5
    unlimited = rounds(Task("test", 1, lambda store: range(5), lambda store, item: 500), 1000)
    assert unlimited.step() is None


def task(store, name):
    return next(task for task in tasks.every_process(store) + one_process(store) if task.name == name)


def run(store, name):
    round = Round(task(store, name), store)
    finish(round)
    return round.status()


@pytest.fixture
def store(tmp_path):
    store = make_store(tmp_path / "store", settings=evolve(SMALL, purge_delay=0))
    yield store
    assert check(store) == []
    store.close()


def test_all_tasks_run_on_a_store(store):
    deliver(store, b"Subject: x\r\n\r\nx\r\n", "user/alice/INBOX")
    for each in tasks.every_process(store) + one_process(store):
        assert run(store, each.name).failures == 0


def test_flushes_every_second_where_anything_is_synced():
    def names(sync):
        return [task.name for task in one_process(SimpleNamespace(settings=Settings(sync=sync)))]

    assert "flush" in names("messages") and "flush" in names("everything")
    assert "flush" not in names("none")


def test_a_message_that_cannot_be_purged_holds_up_no_other(store, unix_time, faults, caplog):
    entry = store.entry(MailboxName("alice", "INBOX"))
    for number in range(3):
        deliver(store, b"Subject: %d\r\n\r\nx\r\n" % number, "user/alice/INBOX", flags=Flags())
    partition = store.partition_of(entry)
    rows = store.open_mailbox(entry).rows
    bad = bytes(rows[1]["digest"])
    for uid in (1, 2, 3):
        remove(store, entry, [uid])
    faults.fail(partition.files, "remove", OSError(5, "Input/output error"), when=lambda digest, _: digest == bad)
    unix_time.now += 10
    round = Round(task(store, "purge"), store)
    finish(round)
    finish(round)
    assert round.status().bad == 1 and round.status().done == 1        # one batch, and what stayed of it
    assert [os.path.exists(partition.files.path(bytes(row["digest"]))) for row in rows] == [False, True, False]
    assert sum("failed" in record.getMessage() and bad.hex() in record.getMessage() for record in caplog.records) == 1
    faults.mend()
    unix_time.now += 10
    finish(round)
    assert round.status().bad == 0
    assert not os.path.exists(partition.files.path(bad))


# staging/

def staged_names(store):
    """But those that are made ready: they are empty."""
    return sorted(path.name for path in store.partitions["primary"].files.staging.iterdir() if path.stat().st_size)


def sweep(partition, age=0):
    """What is found twice."""
    assert partition.sweep(age) == 0
    return partition.sweep(age)


def test_what_a_session_forgot_is_swept_and_what_it_receives_is_not(store):
    partition = store.partitions["primary"]
    partition.files.drop_staged_names()
    receiving, forgotten = partition.stage(), partition.stage()
    for staged in (receiving, forgotten):
        staged.write(b"Subject: half\r\n\r\n")
        staged.spill()
    assert len(staged_names(store)) == 2
    assert sweep(partition) == 0
    forgotten.close()
    del forgotten, staged
    assert sweep(partition, 3600) == 0                  # not yet
    assert sweep(partition) == 1
    assert staged_names(store) == [f"{receiving.serial:016x}"]
    receiving.abort()


def test_the_file_of_another_process_is_not_swept(store):
    partition = store.partitions["primary"]
    other = partition.serials.next_serial() + 100_000
    path = partition.files.staging / f"{other:016x}"
    path.write_bytes(b"received by another process")
    assert sweep(partition) == 0
    path.unlink()


def test_a_committed_message_that_did_not_get_its_place_gets_it(store, faults):
    partition = store.partitions["primary"]
    faults.around(partition.files, "place", lambda *_: None)
    deliver(store, b"Subject: lost\r\n\r\nbody\r\n", "user/alice/INBOX")
    faults.mend()
    row, = store.open_mailbox(store.entry(MailboxName("alice", "INBOX"))).rows
    final = partition.files.path(bytes(row["digest"]))
    assert not os.path.exists(final)
    assert sweep(partition) == 1
    assert os.path.exists(final)
    partition.files.drop_staged_names()
    assert staged_names(store) == []


# Logs

def logs(folder):
    return sorted(path.name for path in folder.glob("log.*"))


def fill_logs(store):
    """More than one file of log."""
    env = store.partitions["primary"].env
    table = env.table("filler.db")
    for number in range(80):
        txn = env.begin()
        table.put(b"%d" % number, os.urandom(1 << 20), txn)
        txn.commit()
    env.flush()


@pytest.mark.long
def test_much_log_is_a_checkpoint_early(store, monkeypatch):
    folder = store.partitions["primary"].folder / "index"
    fill_logs(store)                                    # some 80 MB
    before = logs(folder)
    run(store, "early checkpoint")
    run(store, "logs")
    assert logs(folder)[0] == before[0]
    monkeypatch.setattr(tasks, "LOG_VOLUME", 40 << 20)
    run(store, "early checkpoint")
    run(store, "logs")
    assert logs(folder) == before[-1:]


@pytest.mark.long
def test_logs_that_are_no_longer_needed_are_removed(store):
    folder = store.partitions["primary"].folder / "index"
    fill_logs(store)
    before = logs(folder)
    assert len(before) > 2
    assert run(store, "logs").failures == 0
    assert logs(folder)[0] == before[0]                 # recovery would need them
    run(store, "checkpoint")
    run(store, "logs")
    assert logs(folder) == before[-1:]


@pytest.mark.long
def test_logs_are_archived(tmp_path, faults):
    archive = tmp_path / "archive"
    store = make_store(tmp_path / "store", settings=evolve(SMALL, log_archive=archive))
    folder = store.partitions["primary"].folder / "index"
    fill_logs(store)
    before = {path.name: path.read_bytes() for path in folder.glob("log.*")}
    run(store, "checkpoint")
    faults.fail(privatefiles, "copy", OSError(28, "No space left on device"))
    assert run(store, "logs").failures == 1
    faults.mend()
    assert logs(folder) == sorted(before)               # none is lost
    assert run(store, "logs").failures == 0
    kept = archive / "partitions" / "primary" / "index"
    assert logs(folder) == sorted(before)[-1:]
    assert {path.name: path.read_bytes() for path in kept.iterdir()} == {
        name: octets for name, octets in before.items() if name not in logs(folder)}
    assert check(store) == []
    store.close()


@pytest.mark.long
def test_another_log_of_that_name_is_not_overwritten(tmp_path):
    archive = tmp_path / "archive"
    store = make_store(tmp_path / "store", settings=evolve(SMALL, log_archive=archive))
    fill_logs(store)
    folder = store.partitions["primary"].folder / "index"
    first = logs(folder)[0]
    kept = archive / "partitions" / "primary" / "index"
    kept.mkdir(parents=True)
    (kept / first).write_bytes(b"of an earlier store")
    run(store, "checkpoint")
    assert run(store, "logs").failures == 1
    assert (kept / first).read_bytes() == b"of an earlier store"
    assert first in logs(folder)
    store.close()


def test_delays_that_began_before_there_was_unix_time(tmp_path):
    """Who wants to keep everything for a hundred years sets that."""
    longest = {each.name: int(LONGEST_TIME) for each in fields(type(SMALL))
               if each.metadata.get("type") == "duration"}
    store = make_store(tmp_path / "store", ["alice", "bob", "carol"], evolve(SMALL, **longest, housekeeping_rate=0))
    deliver(store, b"Subject: x\r\n\r\n", "user/alice/INBOX")
    remove(store, store.entry(MailboxName("alice", "INBOX")), [1])
    namespace.create_mailbox(store, MailboxName("alice", "Old"))
    deletion.delete_mailbox(store, MailboxName("alice", "Old"))
    lifecycle.remove_user(store, "bob")
    restorable.forget_user(store, "carol")
    for each in tasks.every_process(store) + one_process(store):
        round = Round(each, store)
        finish(round)
        assert round.status().bad == 0, each.name
    assert deletion.due_mailboxes(store) == [] and list(lifecycle.due(store)) == []
    assert check(store) == []
    store.close()
