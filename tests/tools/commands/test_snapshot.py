"""onecopy snapshot"""

import time

import pytest

from store.snapshots import taking

MESSAGE = b"From: a@example.org\r\nSubject: hello\r\n\r\nHello.\r\n"


@pytest.mark.long
def test_from_create_to_restore(onecopy):
    onecopy("deliver", "alice", "bob", octets=MESSAGE)
    made = onecopy.json("snapshot", "create")
    assert made["snapshot"] in onecopy("snapshot", "list")
    (row,) = onecopy.json("snapshot", "list")
    assert row["state"] == "good"
    assert row["octets"] == made["octets"] > 0
    assert onecopy.json("snapshot", "verify") == [{"snapshot": made["snapshot"], "findings": []}]
    onecopy("deliver", "alice", octets=MESSAGE + b"More.\r\n")
    onecopy("mailbox", "create", "bob", "News")
    found = onecopy.json("snapshot", "diff", made["snapshot"])
    assert found["users"] == [
        {"user": "alice", "made": 0, "gone_mailboxes": 0, "renamed": 0, "added": 1, "gone": 0, "flags": 0},
        {"user": "bob", "made": 1, "gone_mailboxes": 0, "renamed": 0, "added": 0, "gone": 0, "flags": 0}]
    assert "2 users, 2 mailboxes: 1 messages came, 0 went" in onecopy("snapshot", "diff", made["snapshot"])
    assert onecopy.json("snapshot", "diff", made["snapshot"], made["snapshot"])["users"] == []
    assert [row["user"] for row in onecopy.json("snapshot", "diff", made["snapshot"], "--user", "bob")["users"]] == [
        "bob"]
    assert "nobody is there to be asked" in onecopy.refused("snapshot", "restore", status=2)
    assert onecopy.json("snapshot", "restore", "--exact", "--dry-run")["done"] is False
    assert len(onecopy.json("mailbox", "list", "bob")) == 2
    done = onecopy.json("snapshot", "restore", "--exact", "--yes")
    assert done["done"] is True
    assert done["message_files_set_aside"] == {"primary": 1}
    assert (onecopy.root / done["set_aside"] / "mboxlist" / "mailboxes.db").exists()
    assert len(onecopy.json("mailbox", "list", "bob")) == 1
    assert "nothing wrong" in onecopy("check")


def test_refusals(onecopy):
    assert "There is no snapshot" in onecopy.refused("snapshot", "restore", "--yes")
    assert "there is no snapshot 20200101T000000Z" in onecopy.refused("snapshot", "verify", "20200101T000000Z")
    made = onecopy.json("snapshot", "create")["snapshot"]
    assert "There is no older snapshot" in onecopy.refused("snapshot", "restore", "--yes", "--until", "2020-01-31")
    assert "not a time" in onecopy.refused("snapshot", "restore", "--until", "yesterday", status=2)
    assert "is the newest" in onecopy.refused("snapshot", "remove", made, "--yes")
    (onecopy.root / "snapshots" / made / "mboxlist" / "users.db").write_bytes(b"")
    assert "users.db has another size" in onecopy("snapshot", "verify", status=1)
    assert onecopy.json("snapshot", "remove", made, "--dry-run", "--force")[0]["removed"] is False
    assert [row["snapshot"] for row in onecopy.json("snapshot", "list")] == [made]
    onecopy("snapshot", "remove", made, "--yes", "--force")
    assert onecopy.json("snapshot", "list") == []


@pytest.mark.long
def test_the_store_is_held_still_while_a_command_runs(onecopy, tmp_path):
    onecopy("deliver", "alice", octets=MESSAGE)
    copy = tmp_path / "copy"
    made = onecopy.json("snapshot", "create", "--freeze", f"cp -a {onecopy.root} {copy}")
    (copy / "run" / "gate").unlink()                # a copy is another store
    for region in copy.rglob("__db.*"):
        region.unlink()
    root, onecopy.root = onecopy.root, copy
    assert [row["messages"] for row in onecopy.json("mailbox", "list", "alice")] == [1]
    assert "nothing wrong" in onecopy("check")
    onecopy.root = root
    assert [row["snapshot"] for row in onecopy.json("snapshot", "list")] == [made["snapshot"]]
    onecopy("deliver", "alice", octets=MESSAGE + b"2")


@pytest.mark.long
def test_a_command_that_fails_or_does_not_end(onecopy):
    start = time.monotonic()
    assert "status 3" in onecopy.refused("snapshot", "create", "--freeze", "exit 3")
    assert "longer than 1 s" in onecopy.refused("snapshot", "create", "--freeze", "sleep 99", "--freeze-time", "1s")
    assert time.monotonic() - start < 50            # not those 100 seconds
    assert onecopy.json("snapshot", "list") == []
    assert taking.listed(onecopy.root / "snapshots") == []
    onecopy("deliver", "alice", octets=MESSAGE)
    assert "nothing wrong" in onecopy("check")
