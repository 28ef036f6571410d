"""Databases are put back that are some seconds older: of the same generation, between two checkpoints, and the server
was killed. Whatever had changed since (flags of a reader's own, rights, annotations, subscriptions, limits, accounts)
is there, by the log or by the user area, and the check finds nothing.
"""

import logging
import shutil
from pathlib import Path

import pytest

from mboxlist.names import MailboxName
from store.check.wholecheck import check_all
from store.housekeeping.tasks import _flush
from store.mailboxes import authorization, namespace, subscribing
from store.mailboxes.expunge import expunge
from store.mailboxes.flagchanges import change_flags
from store.opening import open_store
from store.quota import roots
from store.snapshots.taking import environments
from store.store import Store
from store.userarea import writing
from store.users import newuser, restorable
from store.values import Flag, FlagAction, Flags
from tests.crash import harm
from tests.crash.harm import INDEX, LIST
from tests.crash.test_older import INBOXES, ITEMS, body, keep_house, put_back
from tests.support.stores.stores import HASH, SMALL, deliver, make_store

FOLDERS = [(INDEX,), (LIST,), (INDEX, LIST)]


def everything(store: Store) -> dict[str, object]:
    """What somebody has been answered for."""
    entries = list(store.mailboxes.all())
    partition = store.partitions["primary"]
    users = {account.user: store.directory.user(account.user) for account in store.directory.all()}
    return {"messages": harm.ledger(store), "users": users, "domains": dict(store.directory.domains.all()),
            "gone": [each.user for each in restorable.everyone(store)],
            "acl": {str(entry.name): dict(entry.acl) for entry in entries},
            "notes": {str(entry.name): sorted(store.mailboxes.annotations.of(entry.id)) for entry in entries},
            "subscribed": {user: sorted(subscribing.subscriptions(store, user)) for user in users},
            "own": {(mailbox, reader): flags["flags"].tolist()
                    for mailbox, _ in partition.all_states()
                    for reader, _, flags in partition.readers.all(mailbox) if len(flags)},
            "limits": {root: (use.octet_limit, use.message_limit) for root, use in partition.quotas.all()}}


def make(root: Path) -> None:
    """root/yesterday: some seconds before root/killed, without a checkpoint between."""
    store = make_store(root / "store", ("alice", "bob", "carol", "dave"))
    namespace.create_mailbox(store, MailboxName("alice", "Shared"))
    for number in range(5):
        deliver(store, body(number), *INBOXES, "user/alice/Shared")
    writing.write_changed(store, hurry=True)
    for env in environments(store).values():
        env.checkpoint()
    deliver(store, body(5), *INBOXES)
    harm.image(store, root / "yesterday", from_first_log=False)
    inbox, shared = store.entry(MailboxName.parse(INBOXES[0])), store.entry(MailboxName("alice", "Shared"))
    authorization.set_acl(store, shared.name, "bob", "lrs")
    change_flags(store, store.entry(shared.name), [2], FlagAction.ADD, Flags(Flag.SEEN), "bob")
    authorization.annotate(store, shared, "/private/comment", b"mine", "alice")
    subscribing.subscribe(store, "bob", "user/alice/Shared")
    roots.set_quota(store, "alice", 5_000_000, 40)
    store.directory.change("carol", password_hash=HASH + "x")
    store.directory.domains.set_access("example.net", "+imap:*")
    newuser.add_user(store, "erna", HASH)
    restorable.forget_user(store, "dave")
    change_flags(store, inbox, [1], FlagAction.ADD, Flags(Flag.FLAGGED))
    change_flags(store, inbox, [2], FlagAction.ADD, Flags(Flag.DELETED))
    expunge(store, inbox, [2])
    deliver(store, body(6), *INBOXES)
    writing.write_changed(store, hurry=True)
    for environment in environments(store):
        _flush(store, environment)
    harm.image(store, root / "killed", from_first_log=False)
    store.close()


@pytest.fixture(scope="module")
def known(days: Path) -> dict[str, object]:
    """What everybody sees when nothing older is put back."""
    shutil.copytree(days / "killed", days / "whole")
    store = open_store(days / "whole", SMALL)
    found = everything(store)
    keep_house(store)
    assert check_all(store) == []
    store.close()
    assert all(found.values())
    return found


def judge(root: Path, known: dict[str, object], told: tuple[str, ...], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    store = open_store(root, SMALL)
    keep_house(store)
    found = everything(store)
    assert {name: (found[name], known[name]) for name in known if found[name] != known[name]} == {}
    assert check_all(store) == []
    for item in told:
        assert any("older" in line and item in line for line in caplog.messages), caplog.messages
    store.close()


@pytest.mark.parametrize("item", ITEMS)
def test_an_older_table(item: str, days: Path, known: dict[str, object], tmp_path: Path,
                        caplog: pytest.LogCaptureFixture) -> None:
    """The log has what it lacks."""
    put_back(days, tmp_path / "store", "killed", (item,), logged=True)
    judge(tmp_path / "store", known, (), caplog)


@pytest.mark.parametrize("items", FOLDERS, ids=" ".join)
def test_older_folders(items: tuple[str, ...], days: Path, known: dict[str, object], tmp_path: Path,
                       caplog: pytest.LogCaptureFixture) -> None:
    """With their logs: the files outside know how far these had come."""
    put_back(days, tmp_path / "store", "killed", items, logged=True)
    judge(tmp_path / "store", known, items, caplog)


def test_a_volume_that_was_rolled_back(days: Path, known: dict[str, object], tmp_path: Path,
                                       caplog: pytest.LogCaptureFixture) -> None:
    """What came since is gone with it; no UID comes to mean another message."""
    root = tmp_path / "store"
    put_back(days, root, "killed", ("partitions/primary",), logged=True)
    store = open_store(root, SMALL)
    assert any("partitions/primary/index" in line and "older" in line for line in caplog.messages)
    keep_house(store)
    assert check_all(store) == []
    deliver(store, body(99), *INBOXES)
    assert max(harm.ledger(store)[INBOXES[0]]) > 1000
    store.close()
