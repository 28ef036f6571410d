"""onecopy reconstruct, and onecopy spark generate."""

import json
import shutil

import pytest

from mboxlist.names import MailboxName
from store.opening import open_store
from store.tables.index import chunk_key
from store.userarea.paths import place
from tests.support.stores.stores import SMALL
from tests.support.stores.whole import forget_accounts, lose_databases

pytestmark = pytest.mark.long


@pytest.fixture
def full(bare):
    """A generated store."""
    bare("spark", "generate", str(bare.root), "--messages", "120", "--users", "4", "--references", "3", "--small",
         "--seed", "7", "--processes", "1")
    return bare


def boxes_of(program):
    """What is known of a user's mailboxes, but for what skips ahead."""
    found = json.loads(program("mailbox", "list", "user00001", "--json"))
    return [{name: value for name, value in box.items() if name not in ("uidnext", "highestmodseq")} for box in found]


def spoil(program, work):
    """Change the databases behind the program's back."""
    store = open_store(program.root, SMALL)
    found = work(store, store.partitions["primary"])
    store.close()
    return found


def _lose_a_chunk(store, partition):
    key = chunk_key(store.entry(MailboxName.parse("user/user00001/INBOX")).id, 0)
    partition.transact(lambda txn: partition.index.put(key, partition.index.get(key, txn.handle)[:-8] + bytes(8),
                                                       txn.handle))


def _spoil_quota(store, partition):
    partition.transact(lambda txn: txn.charge_root("user00002", 77, 1, enforce=False))


def test_nothing_to_do(full):
    assert full("reconstruct", "--all").endswith(" mailboxes; 0 corrections; 0 left\n")
    assert full("reconstruct", "--all", "--check").endswith("0 corrections; 0 left\n")


def test_what_to_do_must_be_said(full):
    assert "--all" in full.refused("reconstruct", status=2)
    assert "no partition" in full.refused("reconstruct", "--partition", "nowhere", status=2)
    full.refused("reconstruct", "nobody")
    full.refused("reconstruct", "user/user00001/nothing")
    full.refused("reconstruct", "--all", "user00001", status=2)
    assert "no plan" in full.refused("reconstruct", "--apply", str(full.root), status=2)
    full.refused("reconstruct", "--apply", "x", "--engine", "local", status=2)


@pytest.mark.parametrize("what", [["--all"], ["user00001"], ["user/user00001/INBOX"], ["--partition", "primary"]])
def test_damage_is_repaired(full, what):
    spoil(full, _lose_a_chunk)
    found = full("reconstruct", *what, "--check", status=1)
    told = "index chunk 0 does not agree with its checksum (repair: onecopy reconstruct --all)"
    assert f"user/user00001/INBOX: {told}" in found
    full("check", status=1)
    assert "user/user00001/INBOX (mailbox 25): index chunk 0 was damaged" in full("reconstruct", *what)
    assert full("check") == "nothing wrong was found\n"
    full("reconstruct", *what, "--check")


def test_of_one_user_alone(full):
    """What is wrong with others is not looked at; what is counted over all is."""
    spoil(full, _lose_a_chunk)
    spoil(full, _spoil_quota)
    assert "INBOX" not in full("reconstruct", "user00003", "--check")
    full("reconstruct", "user00002")
    assert [finding["where"] for finding in json.loads(full("check", "--json", status=1))
            if "quota root" in finding["where"]] == []


def test_a_store_idx_that_is_gone(full):
    path = spoil(full, lambda store, partition: place(partition, MailboxName.parse("user/user00001/INBOX")))
    for damage in (b"", b"nonsense"):
        path.write_bytes(damage)
        assert "user00001" in full("reconstruct", "user00001", "--check", status=1)
        full("reconstruct", "user00001")
        assert full("check") == "nothing wrong was found\n"
    path.unlink()
    full("reconstruct", "--all")
    assert full("check") == "nothing wrong was found\n"


@pytest.mark.parametrize("way", ["at once", "with a plan"])
def test_the_databases_are_lost(full, way, tmp_path):
    shutil.copy(full.root / "mboxlist" / "users.db", tmp_path / "users.db")
    before = json.loads(full("user", "list", "--json"))
    boxes = boxes_of(full)
    lose_databases(full.root)
    full.refused("reconstruct", "user00001", status=2)
    assert " 0 left" in full("reconstruct", "--all", "--check")
    assert not (full.root / "mboxlist").exists() and not list(full.root.glob(".plan*"))
    if way == "at once":
        full("reconstruct", "--all", "--users", str(tmp_path / "users.db"))
    else:
        found = json.loads(full("reconstruct", "--plan", str(tmp_path / "plan"), "--json"))
        assert (found["records"], found["messages"], found["findings"]) == (360, 120, [])
        assert not (full.root / "mboxlist").exists()
        full("reconstruct", "--apply", str(tmp_path / "plan"), "--check")
        full("reconstruct", "--apply", str(tmp_path / "plan"), "--users", str(tmp_path / "users.db"))
    assert full("check") == "nothing wrong was found\n"
    assert json.loads(full("user", "list", "--json")) == before
    assert boxes_of(full) == boxes
    full("reconstruct", "--all", "--check")


def test_without_their_accounts_users_are_inactive(full):
    lose_databases(full.root)
    forget_accounts(full.root)
    found = full("reconstruct", "--all", status=1)
    told = "has no password (repair: onecopy user set user00001 --status active --password)\n"
    assert f"user user00001: it is inactive, and {told}" in found
    assert "nobody can log in (repair: onecopy reconstruct --mboxlist --force --users FILE)" in full("check", status=1)
    full("user", "set", "user00001", "--status", "active", "--password-stdin", octets=b"secret\n")
    found = full("check", status=1)
    told = "has no password (repair: onecopy user set user00002 --status active --password)\n"
    assert "user00001" not in found and f"user user00002: the account is lost: it is inactive, and {told}" in found


def test_a_plan_for_a_store_in_use(full, tmp_path):
    plan = str(tmp_path / "plan")
    full("reconstruct", "--all", "--plan", plan)
    spoil(full, _lose_a_chunk)
    full("deliver", "user00002", octets=b"Subject: new\r\n\r\n")
    assert "user/user00001/INBOX" in full("reconstruct", "--apply", plan, "--check", status=1)
    full("check", status=1)
    found = full("reconstruct", "--apply", plan, status=1)
    assert "user/user00002/INBOX: it has changed since the plan was made" in found and "3 corrections" not in found
    assert full("check") == "nothing wrong was found\n"


def test_a_plan_of_another_store(full, tmp_path):
    full("reconstruct", "--all", "--plan", str(tmp_path / "plan"))
    full.root.rename(tmp_path / "elsewhere")
    shutil.copytree(tmp_path / "elsewhere", full.root)
    manifest = tmp_path / "plan" / "manifest.json"
    manifest.write_text(manifest.read_text().replace(str(full.root), str(tmp_path / "elsewhere")))
    assert "is a plan of the store in" in full.refused("reconstruct", "--apply", str(tmp_path / "plan"), status=2)


def test_generate(bare):
    found = json.loads(bare("spark", "generate", str(bare.root), "--messages", "10", "--users", "2", "--small",
                            "--processes", "1", "--json"))
    assert found == {"messages": 10, "users": 2, "records": 200}
    assert bare("check") == "nothing wrong was found\n"
    bare.refused("spark", "generate", str(bare.root), "--messages", "10", "--users", "2", status=2)
    for wrong in ("0", "x", "-1"):
        bare.refused("spark", "generate", str(bare.root / "x"), "--messages", wrong, "--users", "2", status=2)
