"""A full disk, or a volume that is missing, while several are named in one command: the server does the rest, or the
command says that it is to be run again."""

import errno

import pytest

from mboxlist.engine.kv import Env
from mboxlist.engine.transact import Failure
from store.check.wholecheck import check
from store.errors import Problem, StoreError
from store.finishing.cutoperations import Finishing
from store.mailboxes import deletion
from store.opening import open_store
from store.operations import operationrecord
from store.users import restorable
from tests.support.faults.planted import Faults
from tests.support.stores.stores import SMALL
from tools.commands import purge, undelete, user_purge

REMOVE = ("user", "remove", "alice", "bob", "--now", "--yes")
DELETE = ("mailbox", "delete", "alice", "One", "Two", "--yes")
NO_ROOM = Failure(errno.ENOSPC, "no room"), Failure(errno.EIO, "no disk")


def users(store):
    return {account.user for account in store.directory.all()}


def paths(store):
    return {entry.name.path for entry in store.names("alice")}


#: What is done before, the command, the function that does one of its parts, and what there is at the end.
CASES = {
    "user remove": ((), REMOVE, (restorable, "forget_user"), lambda store: users(store) == set()),
    "user undelete": ([REMOVE], ("user", "undelete", "alice", "bob"), (undelete, "undelete_user"),
                      lambda store: users(store) == {"alice", "bob"}),
    "user purge": ([("user", "remove", "alice", "bob", "--yes")],
                   ("user", "purge", "--yes", "--store-user-delay", "0"), (user_purge, "forget_user"),
                   lambda store: users(store) == set()),
    "mailbox delete": ([("mailbox", "create", "alice", "One", "Two")], DELETE, (deletion, "delete_mailbox"),
                       lambda store: not paths(store) & {"One", "Two"}),
}


def planted(faults, where, name, error):
    """The disk is full from the second part on, until the command ends."""
    parts = []

    def call(real, *given, **options):
        parts.append(given)
        with Faults() as full:
            if len(parts) > 1:
                full.fail(Env, "begin", error, when=lambda *_, reads=False, **__: not reads)
            return real(*given, **options)

    faults.around(where, name, call)


@pytest.mark.parametrize("error", NO_ROOM, ids=["no room", "no disk"])
@pytest.mark.parametrize("key", CASES)
def test_the_server_does_the_rest(onecopy, faults, key, error):
    before, words, (where, name), wanted = CASES[key]
    for each in before:
        onecopy(*each)
    planted(faults, where, name, error)
    onecopy(*words, status=1)
    refused, told, *_ = onecopy.error.splitlines()
    assert refused.startswith(("onecopy: bob: ", "onecopy: Two: "))
    assert told.startswith("onecopy: the server does what is left as soon as it can: see onecopy status")
    faults.mend()
    assert [one.kind for one in operationrecord.under_way(onecopy.root)[1]] == [key.replace("purge", "remove")]
    store = open_store(onecopy.root, SMALL)
    assert not wanted(store)
    Finishing().at_start(store)
    assert wanted(store) and check(store) == [] and operationrecord.under_way(onecopy.root) == ([], [])
    store.close()


def test_the_server_goes_on_with_the_others(onecopy, faults):
    """One whose volume is missing keeps the others waiting no longer than until the next look."""
    planted(faults, restorable, "forget_user", NO_ROOM[0])
    onecopy(*REMOVE, status=1)
    faults.mend()
    onecopy("user", "add", "carol", "--password-stdin", octets=b"secret\n")
    faults.fail(restorable, "forget_user", NO_ROOM[1], when=lambda store, user: user == "alice")
    store = open_store(onecopy.root, SMALL)
    Finishing().at_start(store)
    assert users(store) == {"carol"}
    store.close()


def test_a_purge_says_that_it_is_to_be_run_again(onecopy, faults):
    """It is whole at any time; the server purges what is due by the setting, and not what this command asks for."""
    onecopy("mailbox", "create", "alice", "One", "Two")
    onecopy(*DELETE)
    faults.fail(purge, "purge_partition", StoreError(Problem.DISK_FULL))
    said = onecopy.refused("purge", "--older-than", "0", "--yes")
    assert said.endswith("(what is done stays; run the command again for what is left)")
    assert operationrecord.under_way(onecopy.root) == ([], [])
    faults.mend()
    onecopy("purge", "--older-than", "0", "--yes")
