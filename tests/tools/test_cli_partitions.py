"""Partitions, and users who move, are renamed, removed and restored, by command."""

from pathlib import Path

from store.accounts.base import Status
from store.mailboxes.expunge import remove
from store.opening import open_store
from store.settings import Settings
from store.values import Secret
from tests.support.processes.program import Program

MESSAGE = b"From: a@example.org\r\nSubject: hello\r\n\r\nHello.\r\n"


def files(onecopy: Program) -> list[Path]:
    return sorted(path for path in onecopy.root.glob("partitions/*/messages/*/*/*") if path.is_file())


def octets(onecopy: Program, user: str, uid: int, mailbox: str = "INBOX") -> bytes:
    facts = onecopy.json("path", user, mailbox, str(uid))
    return Path(facts["path"]).read_bytes()[facts["skip"]:]


def test_partitions(onecopy: Program, tmp_path: Path) -> None:
    onecopy("partition", "add", "second")
    onecopy("partition", "add", "third", "--path", str(tmp_path / "volume" / "mail"))
    assert (onecopy.root / "partitions" / "third").resolve() == tmp_path / "volume" / "mail"
    rows = onecopy.json("partition", "list")
    assert [(row["partition"], row["mailboxes"], row["messages"]) for row in rows] == [
        ("primary", 2, 0), ("second", 0, 0), ("third", 0, 0)]
    assert [row["path"] for row in rows][2] == str(tmp_path / "volume" / "mail")
    assert {row["threshold"] for row in rows} == {99}
    onecopy("user", "add", "carol", "--partition", "third", "--password-stdin", octets=b"x\n")
    onecopy("deliver", "alice", "carol", octets=MESSAGE)
    assert len(files(onecopy)) == 2
    assert octets(onecopy, "alice", 1) == octets(onecopy, "carol", 1) == MESSAGE
    assert [row["messages"] for row in onecopy.json("partition", "list")] == [1, 0, 1]
    assert [line.split()[0] for line in onecopy("partition", "list").splitlines()] == [
        "partition", "primary", "second", "third"]
    assert "there already" not in onecopy("check")


def test_partitions_that_cannot_be(onecopy: Program, tmp_path: Path) -> None:
    assert "There is a partition primary already" in onecopy.refused("partition", "add", "primary", status=2)
    for name in ("a/b", "..", ".x", "a b", "x" * 64):
        assert "cannot name a partition" in onecopy.refused("partition", "add", name)
    (tmp_path / "volume" / "index").mkdir(parents=True)
    assert "not empty" in onecopy.refused("partition", "add", "x", "--path", str(tmp_path / "volume"), status=2)
    assert "inside the store" in onecopy.refused("partition", "add", "x", "--path", str(onecopy.root / "x"))
    assert "There is no partition second" in onecopy.refused("user", "move", "alice", "--to", "second")
    assert "There is no partition second" in onecopy.refused(
        "user", "add", "carol", "--partition", "second", "--password-stdin", octets=b"x\n")
    assert "new users come to it" in onecopy.refused("partition", "remove", "primary", "--yes")
    assert [row["partition"] for row in onecopy.json("partition", "list")] == ["primary"]


def test_new_users_go_where_there_is_most_room(onecopy: Program) -> None:
    onecopy("partition", "add", "second")
    onecopy("user", "add", "carol", "--store-default-partition", "second", "--password-stdin", octets=b"x\n")
    assert onecopy.json("user", "show", "carol")["partition"] == "second"
    onecopy("user", "add", "dora", "--store-default-partition", "least used", "--password-stdin", octets=b"x\n")
    assert onecopy.json("user", "show", "dora")["partition"] in ("primary", "second")


def test_drain_and_remove(onecopy: Program) -> None:
    onecopy("partition", "add", "second")
    onecopy("mailbox", "create", "alice", "Archive", "Old")
    onecopy("deliver", "alice", "bob", octets=MESSAGE)
    onecopy("deliver", "--mailbox", "Old", "alice", octets=MESSAGE + b"old\r\n")
    onecopy("mailbox", "delete", "alice", "Old", "--yes")
    assert "new users come to primary" in onecopy.refused("partition", "drain", "primary", status=2)
    away = ("--store-default-partition", "second")
    assert "mailboxes are on it" in onecopy.refused("partition", "remove", "primary", "--yes", *away)
    out = onecopy("partition", "drain", "primary", *away)
    assert [line.partition(",")[0] for line in out.splitlines()] == ["alice: 3 mailboxes", "bob: 1 mailboxes"]
    assert onecopy("partition", "drain", "primary", *away) == ""
    assert octets(onecopy, "alice", 1) == octets(onecopy, "bob", 1) == MESSAGE
    onecopy("partition", "remove", "primary", "--yes", *away)
    assert [row["partition"] for row in onecopy.json("partition", "list", *away)] == ["second"]
    assert not (onecopy.root / "partitions" / "primary").exists()
    onecopy("mailbox", "undelete", "alice", "Old", *away)
    assert octets(onecopy, "alice", 1, "Old") == MESSAGE + b"old\r\n"
    assert len(files(onecopy)) == 2
    assert onecopy("check", *away) == "nothing wrong was found\n"


def test_a_user_is_moved(onecopy: Program) -> None:
    onecopy("partition", "add", "second")
    onecopy("deliver", "alice", "bob", octets=MESSAGE)
    assert onecopy("user", "move", "alice", "--to", "second").startswith("alice: 1 mailboxes, 1 messages, 1 files")
    assert onecopy.json("user", "show", "alice")["partition"] == "second"
    assert onecopy.json("mailbox", "info", "alice", "INBOX")["partition"] == "second"
    onecopy("deliver", "alice", "bob", octets=MESSAGE)
    assert len(files(onecopy)) == 2
    assert onecopy("user", "move", "alice", "bob", "--to", "primary").count("\n") == 2
    assert octets(onecopy, "alice", 2) == MESSAGE
    assert onecopy("check") == "nothing wrong was found\n"


def test_a_user_is_renamed(onecopy: Program) -> None:
    onecopy("mailbox", "create", "alice", "Archive/2026")
    onecopy("deliver", "alice", "bob", octets=MESSAGE)
    onecopy("quota", "set", "alice", "--octets", "1M")
    before = onecopy.json("mailbox", "list", "alice")
    onecopy("user", "rename", "alice", "Anna@example.org")
    assert [row["user"] for row in onecopy.json("user", "list")] == ["anna", "bob"]
    assert onecopy.json("mailbox", "list", "anna") == [
        {**row, "user": "anna", "quota_root": "anna"} for row in before]
    assert onecopy.json("user", "show", "anna")["octet_limit"] == 1 << 20
    assert onecopy.json("user", "show", "anna")["status"] == "active"
    assert "There is no user alice" in onecopy.refused("deliver", "alice", octets=MESSAGE)
    onecopy("deliver", "anna", octets=MESSAGE)
    store = open_store(onecopy.root, Settings())
    try:
        assert store.directory.authenticate("anna", Secret(b"secret")).user == "anna"
    finally:
        store.close()
    for old, new, said in (("carol", "dora", "no such user"), ("anna", "bob", "a user of that name exists"),
                           ("anna", "a/b", "Not a legal user name")):
        assert said in onecopy.refused("user", "rename", old, new)
    assert onecopy("check") == "nothing wrong was found\n"


def test_a_user_is_removed_and_restored(onecopy: Program) -> None:
    onecopy("deliver", "alice", octets=MESSAGE)
    onecopy("user", "remove", "alice", "--yes")
    row = onecopy.json("user", "list")[0]
    assert (row["user"], row["status"]) == ("alice", "removed") and row["kept_until"].endswith("Z")
    assert "kept until" in onecopy("user", "list") and "kept until" in onecopy("user", "show", "alice")
    assert "no such user" in onecopy.refused("deliver", "alice", octets=MESSAGE)
    onecopy("user", "restore", "alice")
    assert onecopy.json("user", "show", "alice")["status"] == Status.ACTIVE.value
    assert onecopy.json("mailbox", "info", "alice", "INBOX")["messages"] == 1
    assert "has not been removed" in onecopy.refused("user", "restore", "alice")
    assert onecopy("check") == "nothing wrong was found\n"


def test_a_user_is_removed_at_once(onecopy: Program) -> None:
    onecopy("deliver", "alice", octets=MESSAGE)
    onecopy("user", "remove", "alice", "--now", "--yes")
    assert [row["user"] for row in onecopy.json("user", "list")] == ["bob"]
    assert [(row["user"], row["mailbox"], row["messages"]) for row in onecopy.json("mailbox", "list", "--deleted")] == [
        ("alice", "INBOX", 1)]
    onecopy("user", "add", "alice", "--password-stdin", octets=b"new\n")
    onecopy("mailbox", "undelete", "alice", "INBOX", "--as", "Recovered")
    assert octets(onecopy, "alice", 1, "Recovered") == MESSAGE
    assert onecopy("check") == "nothing wrong was found\n"


def test_messages_are_undeleted(onecopy: Program) -> None:
    for number in range(3):
        onecopy("deliver", "alice", octets=MESSAGE + b"%d\r\n" % number)
    store = open_store(onecopy.root, Settings())
    remove(store, store.entry(next(iter(store.names("alice"))).name), [1, 2])
    store.close()
    found = onecopy.json("undelete", "alice", "INBOX", "--list")
    assert [(row["uid"], row["size"]) for row in found] == [(1, len(MESSAGE) + 3), (2, len(MESSAGE) + 3)]
    assert onecopy.json("undelete", "alice", "INBOX", "--list", "--since", "2999-01-01") == []
    assert onecopy.json("undelete", "alice", "INBOX", "--uid", "2") == {"uids": [4]}
    assert octets(onecopy, "alice", 4) == MESSAGE + b"1\r\n"
    assert onecopy("undelete", "alice", "INBOX") == "1 messages are back, with UIDs from 5 to 5\n"
    assert onecopy("undelete", "alice", "INBOX") == "0 messages are back\n"
    assert onecopy("undelete", "alice", "INBOX", "--uid", "9", status=1) == "0 messages are back\n"
    assert onecopy("check") == "nothing wrong was found\n"
