"""Several messages to one mailbox: all or none, in one transaction (RFC 3502 §6.3.11)."""

import os

import pytest

from mboxlist.names import MailboxName
from store import offload
from store.delivery import durable, severalmessages
from store.delivery.commit import Target
from store.errors import Problem, StoreError
from store.mailboxes import deletion, namespace
from store.quota import roots
from store.values import Flag, Flags, InternalDate
from tests.support.stores.stores import deliver, reopen_after_crash

BODY = b"From: a@example.org\r\nSubject: %d\r\n\r\nhello\r\n"
MANY = durable.FEW + 10
DATE = InternalDate(1_000_000_000, 60)


def inbox(store):
    return store.entry(MailboxName("alice", "INBOX"))


def staged_names(store):
    return sorted(os.listdir(store.partitions["primary"].files.staging))


def stage(store, body):
    staged = store.stage(inbox(store))
    staged.write(body)
    return staged


def deliver_all(store, bodies, flags=Flags()):
    messages = [(stage(store, body), Target(inbox(store), flags, appended=True), DATE) for body in bodies]
    return offload.now(severalmessages.deliver_all(store, messages))


def contents(store):
    mailbox = store.open_mailbox(inbox(store))
    found = []
    for row in mailbox.rows:
        with store.open_message(mailbox.entry, row) as file:
            found.append(file.read(0, file.size))
    return found


@pytest.mark.parametrize("count", [1, 3, MANY])
def test_they_come_in_their_order(store, count):
    bodies = [BODY % number for number in range(count)]
    assert deliver_all(store, bodies, Flags(Flag.SEEN, ("$Label",))) == list(range(1, count + 1))
    assert contents(store) == bodies
    rows = store.open_mailbox(inbox(store)).rows
    assert set(rows["flags"].tolist()) == {int(Flag.SEEN)} and set(rows["received"].tolist()) == {DATE.seconds}
    assert roots.quota(store, "alice").messages == count


def test_their_cache_records_fill_the_pages(store):
    """They go in the order of their serials: a row that does not come last leaves two pages half full."""
    for first in range(0, 4 * MANY, MANY):
        deliver_all(store, [b"Subject: %d %b\r\n\r\n" % (number, b"x" * 500) for number in range(first, first + MANY)])
    found = store.partitions["primary"].serials._cache._db.stat()
    assert found["leaf_pg"] >= 4 and found["leaf_pgfree"] < 0.15 * found["leaf_pg"] * 16384


class DiskAtWork(durable.Durability):
    """Says whether the structure of each message was known when its sync began, and when that has ended."""

    def __init__(self):
        self.began, self.ended = [], []

    def staged(self, staged, partition):
        """The sync begins now, and is over when somebody waits for it."""
        staged.spill()
        self.began.append(hasattr(staged, "cached"))

        async def rest():
            self.ended.append(hasattr(staged, "cached"))
            await super(DiskAtWork, self).staged(staged, partition)

        return rest()


def test_their_structures_are_made_while_their_files_go_to_disk(store):
    disk = DiskAtWork()
    store.owned.put(durable.Durability, disk)
    bodies = [BODY % number for number in range(3)]
    deliver_all(store, bodies)
    assert (disk.began, disk.ended) == ([False] * 3, [True] * 3)
    deliver_all(store, [bodies[1]])             # which is there: it is spared
    assert len(disk.began) == 3 and contents(store) == [*bodies, bodies[1]]


def test_the_same_content_twice_and_once_more_is_one_file(store):
    deliver(store, BODY % 1, "user/bob/INBOX", trace=b"Return-Path: <list@example.org>\r\n")
    bodies = [BODY % 2, BODY % 1, BODY % 2, BODY % 1, BODY % 3]
    deliver_all(store, bodies)
    assert contents(store) == bodies
    store.partitions["primary"].files.drop_staged_names()
    assert len(list(store.partitions["primary"].files.folder.glob("?/??/*"))) == 3
    assert staged_names(store) == []


@pytest.mark.parametrize("limit", [{"octets": 2 * len(BODY % 1)}, {"messages": 2}])
def test_without_room_for_all_none_comes(store, limit):
    roots.set_quota(store, "alice", **limit)
    with pytest.raises(StoreError) as refused:
        deliver_all(store, [BODY % number for number in range(3)])
    assert refused.value.problem is Problem.OVER_QUOTA
    assert contents(store) == [] and staged_names(store) == []
    assert roots.quota(store, "alice").messages == roots.quota(store, "alice").octets == 0
    assert deliver_all(store, [BODY % 0, BODY % 1])[0] == store.open_mailbox(inbox(store)).rows["uid"][0]


def test_the_mailbox_has_gone_meanwhile(store):
    namespace.create_mailbox(store, MailboxName("alice", "Work"))
    entry = store.entry(MailboxName("alice", "Work"))
    messages = [(stage(store, BODY % 1), Target(entry, appended=True), None) for _ in range(2)]
    deletion.delete_mailbox(store, entry.name)
    with pytest.raises(StoreError) as refused:
        offload.now(severalmessages.deliver_all(store, messages))
    assert refused.value.problem is Problem.NO_MAILBOX
    assert staged_names(store) == []


def test_what_is_secured_before_takes_no_file_and_no_memory(store):
    files = [stage(store, BODY % number) for number in range(MANY)]
    partition = store.partitions["primary"]
    offload.now(severalmessages.secure(store, partition, files))
    assert all(one.on_disk and one._file < 0 and not one.held for one in files)
    messages = [(one, Target(inbox(store), appended=True), None) for one in files]
    offload.now(severalmessages.deliver_all(store, messages))
    assert contents(store) == [BODY % number for number in range(MANY)]


def test_a_disk_that_is_full_leaves_nothing(store, faults):
    from store.partition.staged import Staged
    left = iter(range(2))
    faults.fail(Staged, "sync", StoreError(Problem.DISK_FULL), when=lambda _: next(left, None) is None)
    with pytest.raises(StoreError) as refused:
        deliver_all(store, [BODY % number for number in range(4)])
    assert refused.value.problem is Problem.DISK_FULL
    assert contents(store) == [] and staged_names(store) == []


def test_they_outlive_a_crash_as_soon_as_they_are_acknowledged(tmp_path):
    from store.check.wholecheck import check
    from tests.support.stores.stores import make_store
    store = make_store(tmp_path / "store")
    bodies = [BODY % number for number in range(3)]
    deliver_all(store, bodies)
    assert len(staged_names(store)) == 3            # the names that are on disk stay until the others are
    store = reopen_after_crash(store)
    assert contents(store) == bodies
    assert check(store) == []
    store.close()


def test_to_give_up_a_message_that_was_delivered_leaves_the_name_that_is_on_disk(store):
    staged = stage(store, BODY % 1)
    offload.now(durable.deliver(store, staged, [Target(inbox(store))], None))
    staged.abort()
    assert len(staged_names(store)) == 1
