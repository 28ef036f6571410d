"""A command that is typed while an earlier one on the same is half done: the earlier one is finished first, so what the
later one has said it did stays."""

from contextlib import closing, suppress

import pytest

from mboxlist.names import MailboxName
from store.check.wholecheck import check
from store.errors import Problem, StoreError
from store.finishing.cutoperations import Finishing
from store.opening import open_store
from store.operations import operationrecord
from store.partitions import volumes
from store.partitions.partitionmove import move_owner, owners_on
from store.quota import roots
from tests.support.stores.stores import SMALL, deliver, make_store

NOW = ("--now", "--yes")


def users(store):
    return {account.user for account in store.directory.all()}


def octets(store, root="alice"):
    return roots.quota(store, root).limits(store.settings)[0]


#: What is typed before; the kind and arguments of what is cut off then, and what it holds; the later command; and what
#: must be when the server has done what it does.
CASES = {
    "a limit": (
        (), ("quota set", {"root": "alice", "composite": None, "octets": 1_000_000, "messages": None}, ["alice"]),
        ("quota", "set", "alice", "--octets", "5000000"), lambda store: octets(store) == 5_000_000),
    "a limit of a mailbox": (
        (), ("quota set", {"root": "alice", "composite": {"alice": 9}, "octets": None, "messages": None}, ["alice"]),
        ("quota", "set", "alice/Work", "--octets", "2000000"), lambda store: octets(store, "alice/Work") == 2_000_000),
    "a limit after its removal": (
        [("quota", "set", "alice/Work", "--octets", "3000000")], ("quota remove", {"root": "alice/Work"}, ["alice"]),
        ("quota", "set", "alice/Work", "--octets", "4000000"), lambda store: octets(store, "alice/Work") == 4_000_000),
    "another partition": (
        [("partition", "add", "second")],
        ("partition move", {"owners": ["alice"], "to": "second", "without": ""}, ["alice"]),
        ("user", "move", "alice", "--to", "primary"), lambda store: owners_on(store, "second") == []),
    "a user who is back": (
        (), ("user remove", {"users": ["alice", "bob"]}, ["alice", "bob"]),
        ("user", "undelete", "alice"), lambda store: users(store) == {"alice"}),
    "a user who is gone": (
        [("user", "remove", "alice", "bob", *NOW)], ("user undelete", {"users": ["alice", "bob"]}, ["alice", "bob"]),
        ("user", "remove", "alice", *NOW), lambda store: users(store) == {"bob"}),
    "a user who goes": (
        [("user", "remove", "alice", *NOW)], ("user undelete", {"users": ["alice"]}, ["alice"]),
        ("user", "remove", "alice", "--yes"), lambda store: store.directory.find("alice").removed),
    "a mailbox that is back": (
        [("mailbox", "delete", "alice", "Work", "--yes")],
        ("mailbox delete", {"mailboxes": ["user/alice/Work"]}, ["user/alice/Work"]),
        ("mailbox", "undelete", "alice", "Work"), lambda store: store.mailboxes.find(MailboxName("alice", "Work"))),
}


def cut_off(root, kind, arguments, holds):
    with suppress(OSError), operationrecord.begun(root, kind, "onecopy", arguments, holds=holds):
        raise OSError


def done_by_the_server(root):
    store = open_store(root, SMALL)
    finishing = Finishing()
    finishing.at_start(store)
    for which in finishing.waiting(store):
        finishing.finish(store, which)
    assert operationrecord.under_way(root) == ([], []) and check(store) == []
    return store


@pytest.mark.parametrize("key", CASES)
def test_the_later_command_counts(onecopy, key):
    before, left, later, wanted = CASES[key]
    onecopy("mailbox", "create", "alice", "Work")
    for words in before:
        onecopy(*words)
    cut_off(onecopy.root, *left)
    onecopy(*later)
    store = done_by_the_server(onecopy.root)
    assert wanted(store)
    store.close()


def test_one_that_cannot_be_finished_yet_is_told(onecopy, faults):
    """Else it would be done behind what this command does."""
    cut_off(onecopy.root, "quota set", {"root": "alice", "composite": None, "octets": 1, "messages": None}, ["alice"])
    faults.fail(roots, "change_limits", StoreError(Problem.DISK_FULL))
    onecopy("quota", "set", "alice", "--octets", "5000000", status=1)
    assert "quota set root=alice octets=1" in onecopy.error and "onecopy status" in onecopy.error


@pytest.mark.parametrize("kind", ["partition add", "partition remove"])
def test_a_place_that_others_have_since_is_left(onecopy, tmp_path, kind):
    """The store is an older copy, or the volume went to another store: what is there is not of the command that was
    cut off, and mail is never removed for it."""
    place = tmp_path / "volume"
    other = make_store(tmp_path / "other")
    deliver(other, b"Subject: kept\r\n\r\ntext\r\n", "user/alice/INBOX")
    volumes.add(other, "second", place)
    move_owner(other, "alice", "second")
    other.close()
    cut_off(onecopy.root, kind, {"name": "second", "path": str(place)}, [])
    Finishing().before_opening(onecopy.root, SMALL)
    store = open_store(onecopy.root, SMALL)
    Finishing().at_start(store)
    assert "second" not in store.partitions and operationrecord.under_way(onecopy.root) == ([], [])
    assert str(place) in operationrecord.ended(onecopy.root)[0].outcome
    store.close()
    with closing(open_store(tmp_path / "other", SMALL)) as other:
        assert other.status(other.entry(MailboxName("alice", "INBOX"))).messages == 1 and check(other) == []
