"""An account is in the `store.idx` of its user's INBOX, and comes back from there when the table of users lost it."""

import shutil
import stat
import time
from pathlib import Path

import pytest
from attrs import evolve

from mboxlist.engine.transact import transact
from mboxlist.names import INBOX, MailboxName
from store.accounts.base import Status
from store.accounts.ldap.mirror import Mirror
from store.accounts.passwords import hash_password
from store.check.wholecheck import check, check_all
from store.mend import correctionrounds
from store.mend.userrecords import restore_accounts
from store.opening import open_store
from store.partition.serials import META, META_KEY
from store.rebuild.outcome import Outcome
from store.reconstruct.mailboxlist import rebuild_list
from store.reconstruct.wholestore import rebuild
from store.recovery import userareacheck
from store.store import Store
from store.userarea import directoryfile, idxfile, idxreading, writing
from store.userarea.paths import place
from store.userarea.writing import note_user
from store.users import lifecycle, newuser, renaming, restorable
from store.values import RECONSTRUCT, Finding, Secret, few
from tests.support.stores.stores import SMALL, deliver, make_store

NAME = MailboxName("alice", INBOX)


def inbox(store: Store, user: str = "alice") -> Path:
    return place(store.partitions["primary"], MailboxName(user, INBOX))


def lose_rows(store: Store, *users: str) -> None:
    """As a damaged page takes them."""
    transact(store.mailboxes.env, lambda txn: [store.mailboxes.users.delete(user.encode(), txn) for user in users])


def filled(root: Path) -> Store:
    """alice with a password, groups and an alias, bob, who is disabled; their files are written."""
    store = make_store(root)
    store.directory.change("alice", password_hash=hash_password(Secret(b"secret of alice")), groups=["staff"],
                           aliases=["ali@example.org"])
    store.directory.change("bob", status=Status.DISABLED)
    deliver(store, b"Subject: x\r\n\r\n", "user/alice/INBOX", "user/bob/INBOX")
    writing.write_changed(store, hurry=True)
    return store


def rows(store: Store) -> dict[str, bytes]:
    return {user: store.directory.user(user).to_bytes() for user in ("alice", "bob")}


def test_who_can_read_it(tmp_path: Path) -> None:
    """0600, as all files of the store; in no head, which other programs read and show."""
    store = filled(tmp_path / "store")
    path, row = inbox(store), store.directory.user("alice").to_bytes()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and idxreading.read_account(path) == row
    assert b"scrypt" in row and b"scrypt" not in idxreading.read_head(path).to_bytes()
    store.close()


def lose_list(root: Path, how: str, older: Path = Path()) -> list[Finding]:
    """The list is lost, and what brings it back but for a start is done; what a rebuild of all finds wrong of users."""
    shutil.rmtree(root / "mboxlist")
    if how == "list":
        rebuild_list(root, SMALL)
    elif how == "all":
        shutil.rmtree(root / "partitions" / "primary" / "index")
        return [finding for finding in rebuild(root, SMALL).findings if finding.where.startswith("user")]
    elif how == "start":
        (root / "mboxlist").mkdir()
    else:
        shutil.copytree(older, root / "mboxlist")
    return []


@pytest.mark.parametrize("how", ["list", "all", "start"])
def test_they_come_back_when_the_list_is_lost(how: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    root = tmp_path / "store"
    store = filled(root)
    before = rows(store)
    store.close()
    assert lose_list(root, how) == []
    again = open_store(root, SMALL)
    assert rows(again) == before
    assert again.directory.authenticate("alice", Secret(b"secret of alice")).groups == ("staff",)
    assert again.directory.look_up("ali@example.org").user == "alice"
    userareacheck.reconcile(again)
    writing.write_changed(again, hurry=True)
    assert check(again) == [] and rows(again) == before
    again.close()


def test_one_lost_row_is_told_and_brought_back(tmp_path: Path) -> None:
    store = filled(tmp_path / "store")
    before = rows(store)
    lose_rows(store, "alice")
    store.partitions["primary"].unwritten.changed.add(store.entry(NAME).id)
    writing.write_changed(store, hurry=True)                # does not write over what is left of it
    [found] = [finding for finding in check_all(store) if "account" in finding.what]
    assert (found.where, found.repair) == ("user alice", RECONSTRUCT)
    outcome = Outcome()
    correctionrounds.mend(store, check_all, outcome)
    assert rows(store) == before and outcome.left == [] and check(store) == []
    store.close()


def test_what_changes_is_written(tmp_path: Path) -> None:
    """A new password, a rename, a removal and its end: no file of the old one stays."""
    store = filled(tmp_path / "store")
    partition = store.partitions["primary"]
    store.directory.change("alice", password_hash=hash_password(Secret(b"another")))
    writing.write_changed(store, hurry=True)
    assert idxreading.read_account(inbox(store)) == store.directory.user("alice").to_bytes()
    renaming.rename_user(store, "alice", "anna")
    writing.write_changed(store, hurry=True)
    assert not inbox(store).exists()
    assert idxreading.read_account(inbox(store, "anna")) == store.directory.user("anna").to_bytes()
    lifecycle.remove_user(store, "anna")
    writing.write_changed(store, hurry=True)
    assert check(store) == []
    for user in lifecycle.due(store, time.time() + 10 * store.settings.user_delay):
        restorable.forget_user(store, user)
    writing.write_changed(store, hurry=True)
    assert not [path for path in (partition.folder / "users").rglob("store.idx") if b"scrypt" in path.read_bytes()
                and path != inbox(store, "bob")]
    assert check(store) == []
    store.close()


@pytest.mark.long
def test_an_older_list_gets_newer_accounts(tmp_path: Path) -> None:
    """A password that was changed because somebody knew it does not come back."""
    root = tmp_path / "store"
    filled(root).close()
    shutil.copytree(root / "mboxlist", tmp_path / "yesterday")
    store = open_store(root, SMALL)
    store.directory.change("alice", password_hash=hash_password(Secret(b"another")))
    newuser.add_user(store, "carol", hash_password(Secret(b"carol's")))
    store.close()
    after = open_store(root, SMALL)
    wanted = rows(after)
    after.close()
    shutil.rmtree(root / "mboxlist")
    shutil.copytree(tmp_path / "yesterday", root / "mboxlist")
    store = open_store(root, SMALL)
    assert rows(store) == wanted and store.directory.authenticate("carol", Secret(b"carol's"))
    store.close()


def test_nobody_can_log_in(tmp_path: Path) -> None:
    """The accounts are nowhere: one line, and the command that takes them from a copy."""
    store = filled(tmp_path / "store")
    for path in (inbox(store), inbox(store, "bob")):
        path.unlink()
    lose_rows(store, "alice", "bob")
    [found] = [finding for finding in check_all(store) if "account" in finding.what]
    assert found.what == "the account is lost of each user (2), alice, bob: nobody can log in"
    assert found.repair == "reconstruct --mboxlist --force --users FILE"
    store.close()


def test_only_the_first_are_named_of_very_many() -> None:
    assert few(["a", "b"]) == "a, b" and few([]) == ""
    assert few([str(number) for number in range(21)]) == ", ".join(map(str, range(20))) + " and 1 more"


def test_whose_account_is_not_as_the_file_says(tmp_path: Path) -> None:
    store = with_all(tmp_path / "store")
    place = store.partitions["primary"].folder
    old = (place / "users/directory").read_bytes()
    store.directory.change("carol", groups=["others"])
    store.directory.domains.set_access("example.com", "+pop3:*")
    writing.write_changed(store, hurry=True)
    (place / "users/directory").write_bytes(old)
    [found] = check_all(store)
    assert found.what == "what is kept of accounts is not what is so: @example.com, carol"
    outcome = Outcome()
    correctionrounds.mend(store, check_all, outcome)
    assert outcome.left == [] and check_all(store) == []
    store.close()


def test_files_of_a_version_without_accounts_are_written_again(tmp_path: Path) -> None:
    root = tmp_path / "store"
    store = filled(root)
    contents = idxreading.read(inbox(store))
    idxfile.write(inbox(store), evolve(contents, account=b"", head=evolve(contents.head, account=0)))
    partition = store.partitions["primary"]
    epoch, serial, _ = META.unpack(partition.states.get(META_KEY))
    transact(partition.env, lambda txn: partition.states.put(META_KEY, META.pack(epoch, serial, 5), txn))
    store.close()
    store = open_store(root, SMALL)
    userareacheck.reconcile(store)
    assert idxreading.read_account(inbox(store)) == store.directory.user("alice").to_bytes() and check(store) == []
    store.close()


def beside(store: Store) -> dict[str, object]:
    """What no store.idx tells."""
    return {"carol": store.directory.user("carol"), "dora": store.directory.user("dora"),
            "rules": sorted(store.directory.domains.all()),
            "forgotten": [each.user for each in restorable.everyone(store)]}


def with_all(root: Path) -> Store:
    """carol has no INBOX; a domain has rules."""
    store = filled(root)
    store.directory.add("carol", hash_password(Secret(b"carol's")))
    store.directory.change("carol", groups=["staff"])
    store.directory.domains.set_access("example.com", "+imap:10.0.0.0/8")
    store.directory.domains.set_sieve("example.com", "own=no")
    writing.write_changed(store, hurry=True)
    return store


def change_all(store: Store) -> None:
    store.directory.change("carol", password_hash=hash_password(Secret(b"another")))
    store.directory.add("dora", hash_password(Secret(b"dora's")))
    store.directory.domains.set_access("example.com", "+pop3:*")
    store.directory.domains.set_access("example.net", "+imap:*")
    store.directory.domains.set_sieve("example.net", "redirects=0")
    store.directory.domains.set_sieve("example.com", "")
    lifecycle.remove_user(store, "bob")
    restorable.forget_user(store, "bob")


@pytest.mark.parametrize("how", ["list", "all", "start", "older"])
def test_what_no_mailbox_tells_comes_back(how: str, tmp_path: Path) -> None:
    """Users without an INBOX and rules of domains; and who was removed is not there again."""
    root = tmp_path / "store"
    store = with_all(root)
    store.close()
    shutil.copytree(root / "mboxlist", tmp_path / "yesterday")
    store = open_store(root, SMALL)
    change_all(store)
    before = beside(store)
    store.close()
    lose_list(root, how, tmp_path / "yesterday")
    store = open_store(root, SMALL)
    assert beside(store) == before and before["forgotten"] == ["bob"]
    assert store.directory.user("bob") is None
    assert restorable.undelete_user(store, "bob").user == "bob"
    assert store.directory.user("bob") is not None
    userareacheck.reconcile(store)
    writing.write_changed(store, hurry=True)
    assert check(store) == []
    store.close()


def test_a_lost_account_without_an_inbox_is_told_and_brought_back(tmp_path: Path) -> None:
    """Also when the file has been looked through after an unclean end; who was removed or renamed stays so."""
    store = with_all(tmp_path / "store")
    before = store.directory.user("carol")
    store.directory.add("dora", hash_password(Secret(b"dora's")))
    store.directory.add("erna", hash_password(Secret(b"erna's")))
    writing.write_changed(store, hurry=True)
    renaming.rename_user(store, "dora", "doris")
    lifecycle.remove_user(store, "erna")
    restorable.forget_user(store, "erna")
    for partition in store.partitions.values():
        partition.unwritten.users.clear()           # as of a process that was killed before it wrote the file
    lose_rows(store, "carol")
    for _ in range(2):
        [found] = [finding for finding in check_all(store) if "account is lost" in finding.what]
        assert (found.where, found.repair) == ("user carol", RECONSTRUCT)
        for partition in store.partitions.values():
            directoryfile.write(store, partition, everything=True)
    outcome = Outcome()
    correctionrounds.mend(store, check_all, outcome)
    assert store.directory.user("carol") == before and outcome.left == [] and check_all(store) == []
    assert store.directory.user("dora") is None and store.directory.user("erna") is None
    store.close()


def test_local_users_beside_an_outside_directory(tmp_path: Path) -> None:
    """What the directory says of others is not kept: the directory has it."""
    root = tmp_path / "store"
    filled(root).close()
    store = open_store(root, SMALL, directory=lambda mailboxes, domain: Mirror(mailboxes, domain, ("bob", "carol")))
    store.directory.change("bob", password_hash=hash_password(Secret(b"another")))
    store.directory.add("carol", hash_password(Secret(b"carol's")))
    note_user(store, "alice")
    writing.write_changed(store, hurry=True)
    assert idxreading.read_account(inbox(store, "bob")) == store.directory.user("bob").to_bytes()
    assert not idxreading.read_account(inbox(store)) and check(store) == []
    assert list(directoryfile.read(root / "partitions/primary").rows) == ["carol"]
    lose_rows(store, "bob")
    assert [each.where for each in restore_accounts(store)] == ["user bob"]
    store.close()


def test_the_file_of_what_no_mailbox_tells(tmp_path: Path) -> None:
    """0600; not of users who have an INBOX; a file that is damaged is written anew; no hash outlives its account."""
    store = with_all(tmp_path / "store")
    path = tmp_path / "store/partitions/primary/users/directory"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    kept = directoryfile.read(path.parents[1])
    assert list(kept.rows) == ["carol"] and kept.domains == {"example.com": "+imap:10.0.0.0/8"} and not kept.gone
    path.write_bytes(path.read_bytes().replace(b"staff", b"stuff"))
    assert directoryfile.read(path.parents[1]) is None
    change_all(store)
    writing.write_changed(store, hurry=True)
    kept = directoryfile.read(path.parents[1])
    assert list(kept.rows) == ["carol", "dora"] and list(kept.gone) == list(kept.forgotten) == ["bob"]
    restorable.drop(store, "bob")
    store.directory.remove("dora")
    writing.write_changed(store, hurry=True)
    kept = directoryfile.read(path.parents[1])
    assert list(kept.rows) == ["carol"] and not kept.forgotten and set(kept.gone) == {"bob", "dora"}
    assert check(store) == []
    store.close()
