"""What an administrator restores on purpose is not taken for older by the next start: no alarm, and nothing of what was
restored becomes something else, neither by the start nor by housekeeping."""

import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from mboxlist.names import MailboxName
from store.backup.archive import Archive, Scope
from store.backup.creation import Form, Making
from store.backup.restore import Choice, Restoring
from store.check.wholecheck import check_all
from store.housekeeping import tasks
from store.mailboxes import namespace
from store.mailboxes.expunge import remove
from store.mailboxes.flagchanges import change_flags
from store.opening import open_store
from store.recovery import userareacheck
from store.recovery.environments import recovery_of
from store.snapshots import reset, retention
from store.store import Store
from store.userarea import writing
from store.values import Flag, FlagAction, Flags
from tests.support.stores.stores import HASH, SMALL, deliver, make_store

INBOX = MailboxName("alice", "INBOX")


def seen(store: Store) -> dict[str, list[tuple[int, int]]]:
    """By mailbox UIDs and flags."""
    return {str(entry.name): [(int(row["uid"]), int(row["flags"])) for row in store.open_mailbox(entry).rows]
            for entry in store.mailboxes.all()}


def change(store: Store) -> None:
    """What is newer than the copy."""
    for number in range(3, 6):
        deliver(store, b"Subject: %d\r\n\r\n" % number, str(INBOX))
    change_flags(store, store.entry(INBOX), [1], FlagAction.ADD, Flags(Flag.SEEN))
    remove(store, store.entry(INBOX), [2])
    namespace.create_mailbox(store, MailboxName("alice", "New"))
    store.directory.add("dave", HASH)
    writing.write_changed(store, hurry=True)


def is_at_peace(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Two starts, with housekeeping."""
    caplog.clear()
    store = open_store(root, SMALL)
    there, accounts = seen(store), {account.user for account in store.directory.all()}
    for _ in range(2):
        found = recovery_of(store)
        assert found is not None and not found.events
        userareacheck.reconcile(store)
        writing.write_changed(store, hurry=True)
        assert not list(tasks._damaged(store))
        assert (seen(store), {account.user for account in store.directory.all()}) == (there, accounts)
        assert check_all(store) == []
        store.close()
        store = open_store(root, SMALL)
    store.close()
    assert [line for line in caplog.messages if "older" in line or "newer" in line] == []


@pytest.fixture
def made(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Store:
    caplog.set_level(logging.WARNING)
    store = make_store(tmp_path / "store")
    for number in range(3):
        deliver(store, b"Subject: %d\r\n\r\n" % number, str(INBOX), "user/bob/INBOX")
    writing.write_changed(store, hurry=True)
    return store


@pytest.mark.parametrize("exact", [False, True], ids=["and the log since", "exactly"])
def test_a_snapshot(made: Store, exact: bool, caplog: pytest.LogCaptureFixture) -> None:
    retention.make(made)
    before = seen(made)
    change(made)
    made.close()
    reset.restore(made.root, SMALL, reset.choose(made.root, SMALL), exact=exact)
    is_at_peace(made.root, caplog)
    store = open_store(made.root, SMALL)
    assert (seen(store) == before) == exact and (store.directory.find("dave") is None) == exact
    store.close()


def into_itself(store: Store, archive: Path) -> Store:
    return store


def into_another(store: Store, archive: Path) -> Store:
    store.close()
    return make_store(archive.parent / "other", ())


@pytest.mark.parametrize("into", [into_itself, into_another])
def test_an_archive(made: Store, into: Callable[[Store, Path], Store], tmp_path: Path,
                    caplog: pytest.LogCaptureFixture) -> None:
    with (tmp_path / "archive").open("wb") as file:
        Making(made, Scope()).write(file.write, Form())
    change(made)
    store = into(made, tmp_path / "archive")
    assert Restoring(store, [Archive(tmp_path / "archive")], Choice(over=True)).run().findings == []
    store.close()
    is_at_peace(store.root, caplog)


def test_a_copy_of_the_whole_store(made: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A stopped server's folder, moved to another place."""
    made.close()
    shutil.copytree(made.root, tmp_path / "copy")
    is_at_peace(tmp_path / "copy", caplog)
