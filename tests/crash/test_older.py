"""An administrator puts back yesterday's databases, one of them or whole folders, and starts: what is older counts as
lost. Nothing that was acknowledged and of which anything newer is left is missing, what was expunged stays so, no UID
comes to mean another message, the log tells what was done, and the check finds nothing."""

import logging
import shutil
from pathlib import Path

import pytest
from attrs import evolve

from mboxlist.engine.damagemarks import UNLOGGED
from mboxlist.names import MailboxName
from store.check.scrub import Pace, scrub
from store.check.wholecheck import check
from store.mailboxes import authorization, deletion, namespace
from store.mailboxes.expunge import expunge
from store.mailboxes.flagchanges import change_flags
from store.mend.orphans import take_in_lost
from store.opening import open_store
from store.partition.marks import GENERATIONS
from store.rebuild.outcome import Outcome
from store.recovery import knownfiles, preview, userareacheck
from store.recovery.environments import recovery_of
from store.store import Store
from store.userarea import writing
from store.values import Flag, FlagAction, Flags
from tests.crash import harm
from tests.crash.harm import INDEX, LIST, Ledger, ledger
from tests.support.stores.purging import purge
from tests.support.stores.stores import HASH, SMALL, deliver, make_store

INBOXES = ("user/alice/INBOX", "user/bob/INBOX")
USERS = "partitions/primary/users"
TABLES = {
    INDEX: ("index", "state", "messages", "quota", "vanished", "removed", "purge", "cache", "heads", "seen", "uidls",
            "arrivals", "outbox"),
    LIST: ("mailboxes", "names", "users", "rights", "deleted", "pending", "former", "annotations", "subscriptions",
           "outbox")}
ITEMS = [f"{folder}/{name}.db" for folder, names in TABLES.items() for name in names]
FOLDERS = [(INDEX,), (LIST,), (INDEX, LIST), (USERS,), (LIST, GENERATIONS)]


def body(number: int) -> bytes:
    return b"Subject: %d\r\n\r\n%d %s\r\n" % (number, number, b"x" * 300)


def make(root: Path) -> None:
    """root/yesterday, root/stopped and root/killed: a store as it was, and as it is after a stop, and after a kill."""
    store = make_store(root / "store", ("alice", "bob", "carol"))
    for name in ("Archive", "Gone"):
        namespace.create_mailbox(store, MailboxName("alice", name))
    for number in range(12):
        deliver(store, body(number), *INBOXES)
    deliver(store, body(12), "user/alice/Archive", "user/alice/Gone")
    store.close()
    shutil.copytree(root / "store", root / "yesterday")
    store = open_store(root / "store", SMALL)
    alice = store.entry(MailboxName.parse(INBOXES[0]))
    change_flags(store, alice, [1, 2], FlagAction.ADD, Flags(Flag.SEEN | Flag.DELETED))
    change_flags(store, alice, [3], FlagAction.ADD, Flags(Flag.FLAGGED))
    expunge(store, alice, [1, 2])
    for number in range(20, 30):
        deliver(store, body(number), *INBOXES)
    store.directory.add("dave", HASH)                                   # type: ignore[attr-defined]
    namespace.create_mailbox(store, MailboxName("alice", "New"))
    deliver(store, body(30), "user/alice/New")
    namespace.rename_mailbox(store, MailboxName("alice", "Archive"), MailboxName("alice", "Kept"))
    deletion.delete_mailbox(store, MailboxName("alice", "Gone"))
    for env in (store.mailboxes.env, store.partitions["primary"].env):
        env.checkpoint()
    deliver(store, body(31), *INBOXES)
    writing.write_changed(store, hurry=True)
    harm.image(store, root / "killed", from_first_log=True)
    store.close()
    (root / "store").rename(root / "stopped")


@pytest.fixture(scope="module")
def known(days: Path) -> Ledger:
    """What everybody sees when nothing older is put back."""
    shutil.copytree(days / "stopped", days / "whole")
    store = open_store(days / "whole", SMALL)
    found = ledger(store)
    assert check(store) == [] and recovery_of(store) is not None and not recovery_of(store).events
    store.close()
    assert sum(map(len, found.values())) == 21 + 23 + 2
    return found


def put_back(days: Path, root: Path, stage: str, items: tuple[str, ...], *, logged: bool = False) -> None:
    """The store as it is in that stage, with these files or folders as they were yesterday; unless it is `logged`, its
    log does not go back to the beginning."""
    shutil.copytree(days / stage, root, copy_function=harm.copy)
    for item in items:
        old = days / "yesterday" / item
        if old.is_dir():
            shutil.rmtree(root / item)
            shutil.copytree(old, root / item)
        else:
            (root / item).unlink()
            shutil.copy2(old, root / item)
    for folder in () if logged else (INDEX, LIST):
        (root / folder / UNLOGGED).touch()


def keep_house(store: Store) -> None:
    """What housekeeping does after a start."""
    for item in list(knownfiles.uncached(store)):
        knownfiles.cache_one(store, item)
    userareacheck.reconcile(store)
    writing.write_changed(store, hurry=True)


def mended(root: Path, known: Ledger, caplog: pytest.LogCaptureFixture, items: tuple[str, ...], *, told: bool = True
           ) -> None:
    """Start, and see that all is there, and told."""
    caplog.set_level(logging.WARNING)
    store = open_store(root, SMALL)
    assert harm.differences(known, ledger(store)) == []
    keep_house(store)
    assert harm.differences(known, ledger(store)) == []
    assert check(store) == []
    for item in items if told else ():
        if item == GENERATIONS:
            continue
        assert any("older" in line and item.rpartition("/")[2] in line for line in caplog.messages), caplog.messages
    deliver(store, body(99), *INBOXES)
    for name in INBOXES:
        new = set(ledger(store)[name]) - set(known[name])
        assert len(new) == 1 and min(new) > max({*known[name], 23}), (name, new)
    store.close()
    again = open_store(root, SMALL)
    assert recovery_of(again) is not None and not recovery_of(again).events and check(again) == []
    again.close()


@pytest.mark.parametrize("item", ITEMS)
def test_an_older_table_after_a_stop(item: str, days: Path, known: Ledger, tmp_path: Path,
                                     caplog: pytest.LogCaptureFixture) -> None:
    put_back(days, tmp_path / "store", "stopped", (item,))
    mended(tmp_path / "store", known, caplog, (item,))


@pytest.mark.parametrize("item", [f"{INDEX}/index.db", f"{INDEX}/state.db", f"{INDEX}/messages.db",
                                  f"{LIST}/mailboxes.db"])
def test_an_older_table_after_a_kill(item: str, days: Path, known: Ledger, tmp_path: Path,
                                     caplog: pytest.LogCaptureFixture) -> None:
    put_back(days, tmp_path / "store", "killed", (item,))
    mended(tmp_path / "store", known, caplog, (item,))


@pytest.mark.parametrize("item", [f"{INDEX}/index.db", f"{LIST}/users.db"])
def test_an_older_table_comes_again_from_a_log_that_is_whole(item: str, days: Path, known: Ledger, tmp_path: Path,
                                                             caplog: pytest.LogCaptureFixture) -> None:
    put_back(days, tmp_path / "store", "stopped", (item,), logged=True)
    mended(tmp_path / "store", known, caplog, (item,))


def test_an_index_and_user_area_that_are_older(days: Path, known: Ledger, tmp_path: Path) -> None:
    """Of the messages since then only their files are left: these stay. No UID comes to mean another message."""
    root = tmp_path / "store"
    put_back(days, root, "stopped", (INDEX, USERS), logged=True)
    files = {path.name for path in root.glob("partitions/*/messages/*/*/*")}
    store = open_store(root, SMALL)
    there = ledger(store)
    keep_house(store)
    for name in INBOXES:
        assert all(known[name][uid][0] == there[name][uid][0] for uid in known[name].keys() & there[name].keys())
        assert len(there[name]) == 12
    purge(store.partitions["primary"])
    assert {path.name for path in root.glob("partitions/*/messages/*/*/*")} == files
    findings = [finding for finding in check(store) if Path(finding.where).name in files]
    assert len(findings) == 12 and {finding.repair for finding in findings} == {"reconstruct --partition primary"}
    assert list(scrub(store.partitions["primary"], Pace(), sweep=True))
    assert {path.name for path in root.glob("partitions/*/messages/*/*/*")} == files
    outcome = Outcome()
    take_in_lost(store, store.partitions["primary"], outcome)
    writing.write_changed(store, hurry=True)
    assert check(store) == [] and not outcome.left
    deliver(store, body(99), *INBOXES)
    assert max(ledger(store)[INBOXES[0]]) > 23
    store.close()


@pytest.mark.parametrize("stage", ["stopped", "killed"])
def test_a_volume_that_was_rolled_back(stage: str, days: Path, known: Ledger, tmp_path: Path,
                                       caplog: pytest.LogCaptureFixture) -> None:
    """Newer messages are gone with it; no UID or MODSEQ that somebody may have seen comes to mean something else."""
    put_back(days, tmp_path / "store", stage, ("partitions/primary",), logged=True)
    store = open_store(tmp_path / "store", SMALL)
    assert any("partitions/primary/index" in line and "older" in line for line in caplog.messages)
    keep_house(store)
    assert check(store) == []
    deliver(store, body(99), *INBOXES)
    for name in INBOXES:
        there, view = ledger(store)[name], store.open_mailbox(store.entry(MailboxName.parse(name)))
        assert max(there) > max(known[name]) and len(there) == 13 and view.state.highestmodseq > 1000
    store.close()


@pytest.mark.parametrize("stage", ["stopped", "killed"])
@pytest.mark.parametrize("items", FOLDERS, ids=" ".join)
def test_older_folders(stage: str, items: tuple[str, ...], days: Path, known: Ledger, tmp_path: Path,
                       caplog: pytest.LogCaptureFixture) -> None:
    put_back(days, tmp_path / "store", stage, items, logged=True)
    mended(tmp_path / "store", known, caplog, items, told=(stage, items) != ("killed", (USERS,)))


@pytest.mark.parametrize("item", [INDEX, f"{INDEX}/state.db"])
def test_a_dry_run_tells_what_is_older(item: str, days: Path, tmp_path: Path) -> None:
    put_back(days, tmp_path / "store", "stopped", (item,), logged=True)
    found = {each.environment: each.wrong for each in preview.look(tmp_path / "store", SMALL, lambda *_: None)}
    assert "is older" in found[INDEX] and found[LIST] == ""


def changed_without_files(root: Path) -> Store:
    """A store in which rights, names and a password have changed, and no `store.idx` says so yet."""
    store = make_store(root, ("alice", "bob"))
    inbox, shared, kept = (MailboxName("alice", name) for name in ("INBOX", "Shared", "Kept"))
    for name in (shared, MailboxName("alice", "Old")):
        namespace.create_mailbox(store, name)
    authorization.set_acl(store, shared, "bob", "lrs")
    writing.write_changed(store, hurry=True)
    authorization.set_acl(store, inbox, "anyone", "lr")
    authorization.set_acl(store, shared, "bob", "")
    namespace.rename_mailbox(store, MailboxName("alice", "Old"), kept)
    store.directory.alter("alice", lambda user: evolve(user, password="another"))       # type: ignore[attr-defined]
    return store


def seen_by_all(store: Store) -> tuple[object, object]:
    return {str(entry.name): entry for entry in store.mailboxes.all()}, store.directory.user("alice")


@pytest.mark.parametrize("lost", ["names.db", "deleted.db", "annotations.db", "rights.db", "subscriptions.db"])
def test_one_lost_table_lets_no_older_file_override_the_list(lost: str, tmp_path: Path) -> None:
    """The rows of the list are whole: without `names.db`, which finds them by their ids, each file counted as newer,
    and a right that had been taken away came back."""
    with harm.small():
        store = changed_without_files(tmp_path / "store")
        for env in (store.mailboxes.env, store.partitions["primary"].env):
            env.checkpoint()
        wanted, killed = seen_by_all(store), tmp_path / "killed"
        harm.image(store, killed, from_first_log=False)
        store.close()
        (killed / LIST / lost).unlink()
        (killed / LIST / UNLOGGED).touch()
        store = open_store(killed, SMALL)
        assert lost in recovery_of(store).events[LIST].lost                 # type: ignore[union-attr]
        for _ in range(2):
            assert seen_by_all(store) == wanted
            assert all(store.mailboxes.find_id(entry.id) == entry for entry in store.mailboxes.all())
            keep_house(store)
        assert check(store) == []
        store.close()


def test_what_the_older_list_knows_better_than_older_files(tmp_path: Path) -> None:
    """Who is killed has not written the `store.idx` of what it had just changed; the list that is put back is older
    than the last one, and newer than that file: no right, name or password that was changed comes back."""
    with harm.small():
        store = changed_without_files(tmp_path / "store")
        killed, older = tmp_path / "killed", tmp_path / "older"
        harm.image(store, killed, from_first_log=True)
        wanted = seen_by_all(store)
        store.close()
        open_store(killed, SMALL).close()               # nothing is compared with the files yet
        shutil.copytree(killed / LIST, older)
        open_store(killed, SMALL).close()
        shutil.rmtree(killed / LIST)
        older.rename(killed / LIST)
        store = open_store(killed, SMALL)
        assert recovery_of(store).events[LIST].logs_lost                    # type: ignore[union-attr]
        for _ in range(2):
            assert seen_by_all(store) == wanted
            keep_house(store)
        assert check(store) == [] and wanted[0]["user/alice/Shared"].acl == {}      # type: ignore[index]
        store.close()
