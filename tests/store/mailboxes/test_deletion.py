"""Removal in three steps, and the ways back: expunged messages, deleted mailboxes, the purge, snapshots, crashes."""

import time
from functools import partial

import pytest
from attrs import evolve

from mboxlist.engine.transact import transact
from mboxlist.names import MailboxName
from store.errors import Problem, StoreError
from store.mailboxes import deletion, namespace
from store.mailboxes.authorization import set_acl
from store.mailboxes.deletion import deleted_messages, undelete_mailbox, undelete_messages
from store.mailboxes.expunge import expunge, remove
from store.mailboxes.flagchanges import change_flags
from store.partition.partition import snapshot_time
from store.quota import roots
from store.users import lifecycle
from store.values import Flag, FlagAction, Flags
from tests.support.stores.purging import purge, purge_mailboxes
from tests.support.stores.stores import HASH, deliver, reopen_after_crash

BODIES = [b"Subject: %d\r\n\r\nmessage %d\r\n" % (number, number) for number in range(4)]
ARCHIVE = MailboxName("alice", "Archive")


@pytest.fixture
def clock(unix_time):
    unix_time.now = 1_900_000_000
    return unix_time


@pytest.fixture
def archive(store, clock):
    """Archive with UIDs 1 to 4."""
    entry = namespace.create_mailbox(store, ARCHIVE)
    for body in BODIES:
        deliver(store, body, str(ARCHIVE), flags=Flags(Flag.SEEN, ("todo",)))
    return entry


def texts(store, entry):
    found = []
    for row in store.open_mailbox(entry).rows:
        with store.open_message(entry, row) as file:
            found.append(file.read(0, file.size))
    return found


def files(store):
    return len(list(store.partitions["primary"].files.folder.glob("?/??/*")))


def purge_all(store):
    purge_mailboxes(store)
    return purge(store.partitions["primary"])


def refused(problem, work, *arguments, **more):
    with pytest.raises(StoreError) as error:
        work(*arguments, **more)
    assert error.value.problem is problem


# Messages

def test_expunged_messages_come_back_with_new_uids_and_their_flags(store, archive, clock):
    change_flags(store, archive, [2, 3], FlagAction.ADD, Flags(Flag.DELETED | Flag.FLAGGED))
    expunge(store, archive)
    use = roots.quota(store, "alice").messages
    assert [(item.when, item.uid, item.size) for item in deleted_messages(store, archive)] == [
        (clock.now, 2, len(BODIES[1])), (clock.now, 3, len(BODIES[2]))]
    assert undelete_messages(store, archive) == [5, 6]
    view = store.open_mailbox(archive)
    assert texts(store, archive) == [BODIES[0], BODIES[3], BODIES[1], BODIES[2]]
    assert Flag(int(view.rows["flags"][2])) == Flag.SEEN | Flag.FLAGGED      # and not \Deleted
    assert view.keyword_names(int(view.rows["keywords"][3])) == ("todo",)
    assert roots.quota(store, "alice").messages == use + 2
    assert deleted_messages(store, archive) == [] and undelete_messages(store, archive) == []


def test_some_of_them_come_back(store, archive, clock):
    remove(store, archive, [1, 2, 3])
    assert undelete_messages(store, archive, uids=[2, 9]) == [5]
    assert [item.uid for item in deleted_messages(store, archive)] == [1, 3]
    assert undelete_messages(store, archive, uids=[]) == []
    assert undelete_messages(store, archive) == [6, 7]
    assert texts(store, archive) == [BODIES[3], BODIES[1], BODIES[0], BODIES[2]]


def test_those_expunged_since(store, archive, clock):
    remove(store, archive, [1])
    clock.now += 100
    remove(store, archive, [2])
    assert [item.uid for item in deleted_messages(store, archive, since=clock.now)] == [2]
    assert undelete_messages(store, archive, since=clock.now) == [5]
    assert undelete_messages(store, archive, since=clock.now - 100) == [6]


def test_quota_does_not_keep_them_from_coming_back(store, archive):
    remove(store, archive, [1])
    roots.set_quota(store, "alice", 1, 1)
    assert undelete_messages(store, archive) == [5]
    assert roots.quota(store, "alice").messages == 4


def test_nothing_comes_back_after_the_purge(store, archive, clock):
    remove(store, archive, [1, 2])
    clock.now += store.settings.purge_delay - 1
    assert purge_all(store) == 0
    assert undelete_messages(store, archive, uids=[1]) == [5]
    clock.now += 1
    assert purge_all(store) == 1
    assert undelete_messages(store, archive) == [] and files(store) == 3


def test_what_another_still_has_is_not_to_be_had_after_the_purge(store, archive, clock):
    """The message file stays for bob; alice's right to bring it back ends all the same."""
    deliver(store, BODIES[0], "user/bob/INBOX")
    remove(store, archive, [1])
    clock.now += store.settings.purge_delay
    purge_all(store)
    assert undelete_messages(store, archive) == [] and files(store) == 4


def test_a_mailbox_that_is_gone_refuses(store, archive):
    remove(store, archive, [1])
    deletion.delete_mailbox(store, ARCHIVE)
    refused(Problem.NO_MAILBOX, undelete_messages, store, archive)
    refused(Problem.NO_MAILBOX, deleted_messages, store, archive)


def test_a_download_goes_on_through_expunge_and_purge(store, archive, clock):
    with store.open_message(archive, store.open_mailbox(archive).rows[0]) as file:
        remove(store, archive, [1])
        clock.now += store.settings.purge_delay
        assert purge_all(store) == 1
        assert file.read(0, file.size) == BODIES[0]


# Mailboxes

def test_a_deleted_mailbox_comes_back_whole(store, archive, clock):
    change_flags(store, archive, [2], FlagAction.ADD, Flags(Flag.FLAGGED))
    change_flags(store, set_acl(store, ARCHIVE, "bob", "lrs"), [3], FlagAction.ADD, Flags(Flag.SEEN), "bob")
    remove(store, archive, [1])
    archive = store.entry(ARCHIVE)
    before, use = store.open_mailbox(archive), roots.quota(store, "alice")
    deletion.delete_mailbox(store, ARCHIVE)
    refused(Problem.NO_MAILBOX, store.entry, ARCHIVE)
    assert roots.quota(store, "alice").messages == 0
    back = undelete_mailbox(store, ARCHIVE)
    after = store.open_mailbox(back)
    assert after.rows.tobytes() == before.rows.tobytes() and after.state.keywords == before.state.keywords
    assert back.uidvalidity > archive.uidvalidity and after.state.uidvalidity == back.uidvalidity
    assert roots.quota(store, "alice") == use
    assert store.open_mailbox(back, "bob").row(3)["flags"] & Flag.SEEN
    assert undelete_messages(store, back) == [5]
    assert back.acl == {"bob": "lrs"}
    refused(Problem.NO_MAILBOX, undelete_mailbox, store, ARCHIVE)           # only once


def test_under_another_name_when_its_own_is_taken(store, archive):
    deletion.delete_mailbox(store, ARCHIVE)
    namespace.create_mailbox(store, ARCHIVE)
    refused(Problem.MAILBOX_EXISTS, undelete_mailbox, store, ARCHIVE)
    back = undelete_mailbox(store, ARCHIVE, new_name=MailboxName("alice", "Archive of old"))
    assert texts(store, back) == BODIES and texts(store, store.entry(ARCHIVE)) == []


def test_the_last_of_that_name_comes_back_first(store, archive, clock):
    deletion.delete_mailbox(store, ARCHIVE)
    clock.now += 1
    namespace.create_mailbox(store, ARCHIVE)
    deliver(store, b"newer", str(ARCHIVE))
    deletion.delete_mailbox(store, ARCHIVE)
    assert texts(store, undelete_mailbox(store, ARCHIVE)) == [b"newer"]
    older = undelete_mailbox(store, ARCHIVE, new_name=MailboxName("alice", "older"))
    assert texts(store, older) == BODIES


def test_who_may_not_have_it(store, archive):
    deletion.delete_mailbox(store, ARCHIVE)
    refused(Problem.NO_PERMISSION, undelete_mailbox, store, ARCHIVE, new_name=MailboxName("bob", "Archive"))
    refused(Problem.NO_MAILBOX, undelete_mailbox, store, MailboxName("alice", "Lists"))
    lifecycle.remove_mail(store, "alice")
    store.directory.remove("alice")
    refused(Problem.NO_USER, undelete_mailbox, store, ARCHIVE)
    store.directory.add("alice", HASH)
    assert texts(store, undelete_mailbox(store, ARCHIVE)) == BODIES


def test_a_mailbox_does_not_come_back_after_its_purge(store, archive, clock):
    deletion.delete_mailbox(store, ARCHIVE)
    clock.now += store.settings.purge_delay - 1
    assert purge_mailboxes(store) == 0
    clock.now += 1
    assert purge_mailboxes(store) == 1
    refused(Problem.NO_MAILBOX, undelete_mailbox, store, ARCHIVE)
    assert purge(store.partitions["primary"]) == 4 and files(store) == 0
    assert list(store.mailboxes.deleted.all()) == []


def test_a_purged_mailbox_does_not_take_what_was_expunged_later(store, archive, clock):
    """The message is in a mailbox that is deleted first, and in one from which it is expunged later."""
    deliver(store, BODIES[0], "user/bob/INBOX")
    deletion.delete_mailbox(store, ARCHIVE)
    clock.now += 100
    inbox = store.entry(MailboxName("bob", "INBOX"))
    remove(store, inbox, [1])
    clock.now += store.settings.purge_delay - 100
    assert purge_mailboxes(store) == 1
    assert purge(store.partitions["primary"]) == 3              # not the one that bob can bring back
    assert undelete_messages(store, inbox) == [2] and texts(store, inbox) == [BODIES[0]]


def test_a_mailbox_that_is_being_purged_cannot_be_brought_back(store, archive, clock, faults):
    """It leaves the list of deleted mailboxes before anything of it is destroyed."""
    deletion.delete_mailbox(store, ARCHIVE)
    clock.now += store.settings.purge_delay
    faults.before(deletion, "destroy", lambda *_: refused(Problem.NO_MAILBOX, undelete_mailbox, store, ARCHIVE))
    assert purge_mailboxes(store) == 1


def test_one_that_was_brought_back_meanwhile_is_not_purged(store, archive, clock, faults):
    deletion.delete_mailbox(store, ARCHIVE)
    clock.now += store.settings.purge_delay
    due = list(store.mailboxes.deleted.all())
    back = undelete_mailbox(store, ARCHIVE)
    faults.around(type(store.mailboxes.deleted), "all", lambda *_: iter(due))
    assert purge_mailboxes(store) == 0
    assert texts(store, back) == BODIES


# Snapshots

def snapshot(store, when):
    folder = store.root / "snapshots" / time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(when))
    folder.mkdir(parents=True)
    return folder


def test_the_time_of_a_snapshot():
    assert snapshot_time("20261121T093700Z") == 1795253820
    assert [snapshot_time(name) for name in ("", "20261121T093700Z.part", "20261321T093700Z", "latest")] == [None] * 4


def test_a_snapshot_keeps_what_it_refers_to(store, archive, clock):
    partition = store.partitions["primary"]
    remove(store, archive, [1])                     # before the snapshot: it does not refer to that
    clock.now += 10
    folder = snapshot(store, clock.now)
    assert partition.kept_since() == clock.now
    remove(store, archive, [2])
    clock.now += store.settings.purge_delay
    assert purge_all(store) == 1 and files(store) == 3
    folder.rmdir()
    assert purge_all(store) == 1 and files(store) == 2


def test_a_snapshot_keeps_the_files_of_a_deleted_mailbox_that_it_has(store, archive, clock):
    deletion.delete_mailbox(store, ARCHIVE)
    clock.now += 10
    folder = snapshot(store, clock.now)              # its records are there still
    clock.now += store.settings.purge_delay
    purge_all(store)
    assert files(store) == 4
    folder.rmdir()
    assert purge_all(store) == 4 and files(store) == 0


# Crashes between the two environments

def crash(store):
    store.__dict__.update(reopen_after_crash(store).__dict__)


def killed_before(store, faults, what, *arguments):
    """The process is killed when it comes to that function of the module."""
    faults.fail(deletion, what, KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        arguments[0](*arguments[1:])
    faults.mend()
    crash(store)


def test_killed_when_a_mailbox_has_left_the_list(store, archive, faults):
    killed_before(store, faults, "bury", partial(deletion.delete_mailbox, store), ARCHIVE)
    assert store.mailboxes.find(ARCHIVE) is None and roots.quota(store, "alice").messages == 0
    assert texts(store, undelete_mailbox(store, ARCHIVE)) == BODIES
    assert roots.quota(store, "alice").messages == 4


def test_killed_when_a_mailbox_is_revived_and_not_in_the_list_yet(store, archive):
    deletion.delete_mailbox(store, ARCHIVE)
    partition = store.partitions["primary"]
    partition.transact(lambda txn: deletion._revive(
        store, txn, evolve(archive, uidvalidity=archive.uidvalidity + 10), "alice"))
    partition.env.flush()
    crash(store)
    assert roots.quota(store, "alice").messages == 0       # it is deleted as before
    assert texts(store, undelete_mailbox(store, ARCHIVE)) == BODIES


def test_killed_when_a_mailbox_has_left_the_deleted_ones_and_is_not_destroyed_yet(store, archive, clock, faults):
    deletion.delete_mailbox(store, ARCHIVE)
    clock.now += store.settings.purge_delay
    killed_before(store, faults, "destroy", purge_mailboxes, store)
    assert list(store.mailboxes.deleted.all()) == []
    partition = store.partitions["primary"]
    assert all(state.octets == 0 for _, state in partition.all_states())
    clock.now += store.settings.purge_delay
    assert purge(partition) == 4


def test_killed_when_a_mailbox_is_half_destroyed(store, archive, clock):
    deletion.delete_mailbox(store, ARCHIVE)
    clock.now += store.settings.purge_delay
    store.partitions["primary"].transact(lambda txn: deletion._doom(txn, archive.id))
    store.partitions["primary"].flush()
    transact(store.mailboxes.env, lambda txn: store.mailboxes.deleted.remove(archive.id, txn))
    store.mailboxes.env.flush()
    store.partitions["primary"].transact(lambda txn: deletion._destroy_some(txn, archive.id, clock.now))
    crash(store)
    assert archive.id not in dict(store.partitions["primary"].all_states())
