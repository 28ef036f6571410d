"""A full disk, or a volume that is missing, while several are named in one command: the server does the rest, or the
command says that it is to be run again."""

import errno
from io import BytesIO

import pytest
from attrs import frozen

from mboxlist.engine.kv import Env
from mboxlist.engine.transact import Failure
from store.backup.restore import Restoring
from store.check.wholecheck import check
from store.errors import Problem, StoreError
from store.finishing.cutoperations import Finishing
from store.mailboxes import deletion
from store.opening import open_store
from store.operations import operationrecord
from store.partitions.partitionmove import owners_on
from store.users import restorable
from tests.support.faults.planted import Faults
from tests.support.stores.stores import SMALL
from tools.cli import program
from tools.cli.invocation import AGAIN
from tools.commands import partitions, purge, undelete, user_move, user_purge
from tools.exits import NO_ROOM
from tools.server.cutcommands import Repeated
from tools.transfer.importmail import MailImport

REMOVE = ("user", "remove", "alice", "bob", "--now", "--yes")
DELETE = ("mailbox", "delete", "alice", "One", "Two", "--yes")
FULL = Failure(errno.ENOSPC, "no room"), Failure(errno.EIO, "no disk")


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


@pytest.mark.parametrize("error", FULL, ids=["no room", "no disk"])
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
    planted(faults, restorable, "forget_user", FULL[0])
    onecopy(*REMOVE, status=1)
    faults.mend()
    onecopy("user", "add", "carol", "--password-stdin", octets=b"secret\n")
    faults.fail(restorable, "forget_user", FULL[1], when=lambda store, user: user == "alice")
    store = open_store(onecopy.root, SMALL)
    Finishing().at_start(store)
    assert users(store) == {"carol"}
    store.close()


def left_to_the_server(onecopy, *words):
    """The command finds no room, and says that the server does what is left: what is on record."""
    onecopy(*words, status=1)
    assert "the server does what is left as soon as it can: see onecopy status" in onecopy.error
    one, = operationrecord.under_way(onecopy.root)[1]
    return one


def done_by_the_server(onecopy, others=None):
    """Housekeeping of a server that starts then."""
    store = open_store(onecopy.root, SMALL)
    finishing = Finishing(others or {})
    finishing.at_start(store)
    for which in finishing.waiting(store):
        finishing.finish(store, which)
    assert operationrecord.under_way(onecopy.root) == ([], [])
    outcome = operationrecord.ended(onecopy.root)[0].outcome
    assert outcome.startswith("finished: ") and check(store) == []
    return store


def test_a_purge_waits_for_room(onecopy, faults):
    """The server purges what was due when the command began."""
    onecopy("mailbox", "create", "alice", "One", "Two")
    onecopy(*DELETE)
    faults.fail(purge, "purge_partition", StoreError(Problem.DISK_FULL))
    assert left_to_the_server(onecopy, "purge", "--older-than", "0", "--yes").kind == "purge"
    faults.mend()
    store = done_by_the_server(onecopy)
    assert list(store.mailboxes.deleted.all()) == []
    store.close()


def test_a_drain_waits_for_room(onecopy, faults):
    onecopy("partition", "add", "second")
    planted(faults, partitions, "move_owner", FULL[0])
    words = ("partition", "drain", "primary", "--to", "second", "--store-default-partition", "second")
    assert left_to_the_server(onecopy, *words).kind == "partition move"
    faults.mend()
    store = done_by_the_server(onecopy)
    assert owners_on(store, "primary") == [] and users(store) == {"alice", "bob"}
    store.close()


class Here(Repeated):
    """What is done again is done in this process, at once; the statuses with which it ends."""

    def __init__(self, root, monkeypatch):
        super().__init__(root)
        self.monkeypatch, self.statuses = monkeypatch, []

    def begin(self, words, folder, environment, locks):
        self.monkeypatch.setenv(AGAIN, environment[AGAIN])
        self.statuses.append(program.main(words))
        return Ended(self.statuses[-1]), BytesIO(b"")


@frozen
class Ended:
    """A process that has ended."""

    returncode: int

    def poll(self):
        return self.returncode


#: What finds no room while the command runs, the command, and how long the mailbox is when it is done.
REPEATED = {
    "import mbox": ((MailImport, "all"), ("import", "mbox", "bob", "box"), 1),
    "restore": ((Restoring, "run"), ("restore", "archive.tar"), 0),
}


@pytest.mark.parametrize("key", REPEATED)
def test_what_is_done_again_waits_for_room(onecopy, faults, monkeypatch, tmp_path, key):
    """And it is not begun again every few seconds while there is none."""
    (where, name), words, there = REPEATED[key]
    (tmp_path / "box").write_bytes(b"From a@example.org Thu Jan  1 00:00:00 1970\nSubject: one\n\ntext\n")
    onecopy("backup", "--to", "archive.tar")
    faults.fail(where, name, StoreError(Problem.DISK_FULL))
    assert left_to_the_server(onecopy, *words).kind == key
    again = Here(onecopy.root, monkeypatch)
    store = open_store(onecopy.root, SMALL)
    finishing = Finishing({key: again.finish})
    for _ in range(3):
        for which in finishing.waiting(store):
            finishing.finish(store, which)
    assert again.statuses == [NO_ROOM]
    assert operationrecord.under_way(onecopy.root)[1][0].problem
    faults.mend()
    again.put_off.clear()
    store.close()
    store = done_by_the_server(onecopy, {key: again.finish})
    assert again.statuses == [NO_ROOM, 0]
    boxes = [store.status(entry).messages for entry in store.names("bob")]
    assert sum(boxes) == there
    store.close()


def test_what_comes_through_a_pipe_is_to_be_run_again(onecopy, faults, tmp_path):
    """Nobody else has it."""
    onecopy("backup", "--to", "archive.tar")
    faults.fail(Restoring, "run", StoreError(Problem.DISK_FULL))
    onecopy("restore", "-", octets=(tmp_path / "archive.tar").read_bytes(), status=1)
    assert "what is done stays; run the command again for what is left" in onecopy.error
    assert operationrecord.under_way(onecopy.root) == ([], [])


def test_a_move_to_another_back_end_is_undone(onecopy, faults, monkeypatch):
    """Nothing of it stays, so nobody has to know of it."""
    monkeypatch.setattr(user_move, "_place", lambda *_: object())
    faults.fail(user_move, "send", StoreError(Problem.DISK_FULL))
    onecopy("user", "move", "alice", "--to", "other.example.org", status=1)
    assert "it is undone, the user is here as before; run the command again" in onecopy.error
    assert operationrecord.under_way(onecopy.root) == ([], [])
