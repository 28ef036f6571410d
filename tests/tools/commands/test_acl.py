"""onecopy mailbox acl, public mailboxes, and groups of users."""

import pytest

from tests.support.processes.program import Program
from tools.cli import program

MESSAGE = b"From: a@example.org\r\nSubject: hello\r\n\r\nHello.\r\n"
EVERYTHING = "lrswipkxtea"      # all rights of RFC 4314 §2.1


def entries(onecopy: Program, *words: str) -> dict[str, str]:
    return {row["identifier"]: row["rights"] for row in onecopy.json("mailbox", "acl", *words)}


def behind_dashes(onecopy: Program, *words: str) -> None:
    """Of words that begin with a dash, behind which no option can stand."""
    assert program.main(["mailbox", "acl", "--root", str(onecopy.root), "alice", "Work", "--", *words]) == 0


def test_rights(onecopy: Program) -> None:
    onecopy("mailbox", "create", "alice", "Work")
    assert entries(onecopy, "alice", "Work") == {"alice": EVERYTHING}
    onecopy("mailbox", "acl", "alice", "Work", "BOB@example.org", "srl")
    onecopy("mailbox", "acl", "alice", "Work", "anyone", "+p")
    assert entries(onecopy, "alice", "Work") == {"alice": EVERYTHING, "bob": "lrs", "anyone": "p"}
    behind_dashes(onecopy, "bob", "-s")
    shown = onecopy("mailbox", "acl", "alice", "Work")
    assert [line.split() for line in shown.splitlines()[-4:]] == [
        ["identifier", "rights"], ["alice", EVERYTHING], ["anyone", "p"], ["bob", "lr"]]
    behind_dashes(onecopy, "-group:staff", "r")
    onecopy("mailbox", "list")          # what was printed is read
    assert entries(onecopy, "alice", "Work") == {"alice": EVERYTHING, "bob": "lr", "anyone": "p", "-group:staff": "r"}
    assert entries(onecopy, "alice", "Work", "--remove=-group:staff") == {
        "alice": EVERYTHING, "bob": "lr", "anyone": "p"}
    onecopy("mailbox", "acl", "alice", "Work", "--remove", "bob")
    assert entries(onecopy, "alice", "Work") == {"alice": EVERYTHING, "anyone": "p"}
    onecopy("check")


def test_several_at_once(onecopy: Program) -> None:
    onecopy("mailbox", "create", "alice", "Work")
    assert entries(onecopy, "alice", "Work", "bob", "lrs", "anyone", "l", "bob", "+p") == {
        "alice": EVERYTHING, "bob": "lrsp", "anyone": "l"}
    behind_dashes(onecopy, "bob", "-s", "-anyone", "l", "alice", "-x")
    onecopy("mailbox", "list")          # what was printed is read
    assert entries(onecopy, "alice", "Work") == {
        "alice": EVERYTHING.replace("x", ""), "bob": "lrp", "anyone": "l", "-anyone": "l"}
    assert "which rights for carol" in onecopy.refused("mailbox", "acl", "alice", "Work", "bob", "l", "carol", status=2)
    assert "no user carol" in onecopy.refused("mailbox", "acl", "alice", "Work", "bob", "lr", "carol", "l")
    assert entries(onecopy, "alice", "Work")["bob"] == "lr"         # those before it are set
    onecopy("check")


def test_rights_that_cannot_be(onecopy: Program) -> None:
    acl = "mailbox", "acl", "alice", "INBOX"
    assert "no user carol" in onecopy.refused(*acl, "carol", "lr")
    assert "z is not a right" in onecopy.refused(*acl, "bob", "lz")
    assert "Not an identifier" in onecopy.refused(*acl, "group:", "l")
    assert "which rights" in onecopy.refused(*acl, "bob", status=2)
    assert "either" in onecopy.refused(*acl, "bob", "l", "--remove", "bob", status=2)
    assert "nothing is said of bob" in onecopy.refused(*acl, "--remove", "bob")
    assert "There is no mailbox Work" in onecopy.refused("mailbox", "acl", "alice", "Work")
    assert entries(onecopy, "alice", "INBOX") == {"alice": EVERYTHING}


def test_public_mailboxes(onecopy: Program) -> None:
    onecopy("mailbox", "create", "public/", "news", "news/2026")
    onecopy("mailbox", "create", "public/", "public/sales", "--special-use", "archive")
    assert [row["mailbox"] for row in onecopy.json("mailbox", "list", "public/")] == ["news", "news/2026", "sales"]
    assert [(row["user"], row["mailbox"]) for row in onecopy.json("mailbox", "list")] == [
        ("alice", "INBOX"), ("bob", "INBOX"), ("public/", "news"), ("public/", "news/2026"), ("public/", "sales")]
    found = onecopy.json("mailbox", "info", "public/", "sales")
    assert (found["user"], found["special_use"], found["quota_root"]) == ("public/", "\\Archive", found["quota_root"])
    assert entries(onecopy, "public/", "news") == {}
    assert entries(onecopy, "public/", "news", "anyone", "lrp") == {"anyone": "lrp"}
    onecopy("mailbox", "create", "public/", "news/2027")
    assert entries(onecopy, "public/", "news/2027") == {"anyone": "lrp"}
    onecopy("mailbox", "rename", "public/", "news", "public/tidings")
    assert entries(onecopy, "public/", "tidings/2027") == {"anyone": "lrp"}
    onecopy("mailbox", "delete", "public/", "tidings/2027", "sales", "--yes")
    deleted = onecopy.json("mailbox", "list", "public/", "--deleted")
    assert [(row["user"], row["mailbox"]) for row in deleted] == [("public/", "sales"), ("public/", "tidings/2027")]
    onecopy("mailbox", "undelete", "public/", "tidings/2027", "--as", "old")
    assert entries(onecopy, "public/", "old") == {"anyone": "lrp"}
    assert [row["mailbox"] for row in onecopy.json("mailbox", "list", "public/")] == ["old", "tidings", "tidings/2026"]
    onecopy("check")


def test_public_mailboxes_that_cannot_be(onecopy: Program) -> None:
    assert "There is no mailbox news of public/" in onecopy.refused("mailbox", "info", "public/", "news")
    assert "There is no mailbox INBOX of public/" in onecopy.refused("mailbox", "info", "public/", "INBOX")
    assert "no user" in onecopy.refused("mailbox", "create", "public", "news")
    assert "no user" in onecopy.refused("user", "show", "public/")
    onecopy("mailbox", "create", "public/", "news")
    assert "another user" in onecopy.refused("mailbox", "rename", "public/", "news", "user/alice/news")


def test_groups(onecopy: Program) -> None:
    assert onecopy.json("user", "show", "alice")["groups"] == []
    onecopy("user", "set", "alice", "--group", "staff", "--group", "board", "--group", "staff")
    assert onecopy.json("user", "show", "alice")["groups"] == ["board", "staff"]
    assert [row["groups"] for row in onecopy.json("user", "list")] == [["board", "staff"], []]
    assert [line.split() for line in onecopy("user", "list").splitlines()] == [
        ["user", "status", "partition", "groups"], ["alice", "active", "primary", "board,", "staff"],
        ["bob", "active", "primary"]]
    onecopy("user", "set", "alice", "--status", "disabled")
    assert onecopy.json("user", "show", "alice")["groups"] == ["board", "staff"]
    onecopy("user", "set", "alice", "--group", "board")
    assert onecopy.json("user", "show", "alice")["groups"] == ["board"]
    onecopy("user", "set", "alice", "--no-groups")
    assert onecopy.json("user", "show", "alice")["groups"] == []


@pytest.mark.parametrize("name", ["", "two words", "a\tb", "x" * 250])
def test_groups_that_cannot_be(onecopy: Program, name: str) -> None:
    assert onecopy.refused("user", "set", "alice", "--group", "good", "--group", name, status=2)
    assert onecopy.json("user", "show", "alice")["groups"] == []
    assert "nothing to change" in onecopy.refused("user", "set", "alice", status=2)


# Subscriptions

def subscribed(onecopy: Program, user: str) -> list[str]:
    return onecopy.json("mailbox", "subscribe", user)           # type: ignore[return-value]


def test_who_gets_rights_can_be_subscribed(onecopy: Program) -> None:
    onecopy("user", "add", "carol", "dora", "--password-stdin", octets=b"secret\n")
    onecopy("user", "set", "carol", "--group", "staff")
    onecopy("mailbox", "create", "alice", "Work")
    onecopy("mailbox", "acl", "alice", "Work", "bob", "lrs")
    assert subscribed(onecopy, "bob") == []
    said = onecopy("mailbox", "acl", "alice", "Work", "BOB@example.org", "lrs", "group:staff", "lr", "--subscribe")
    assert said.splitlines()[-1] == "subscribed: bob, carol"
    assert subscribed(onecopy, "bob") == subscribed(onecopy, "carol") == ["user/alice/Work"]
    onecopy("mailbox", "acl", "alice", "Work", "dora", "p", "--subscribe")          # who may post sees nothing
    assert subscribed(onecopy, "dora") == subscribed(onecopy, "alice") == []
    onecopy("mailbox", "create", "public/", "news")
    onecopy("mailbox", "acl", "public/", "news", "anyone", "lr")
    onecopy("mailbox", "acl", "public/", "news", "--subscribe")                     # all whom the list names
    assert subscribed(onecopy, "dora") == subscribed(onecopy, "alice") == ["public/news"]
    assert "--subscribe is for" in onecopy.refused("mailbox", "acl", "alice", "Work", "--remove", "bob", "--subscribe",
                                                   status=2)
    onecopy("check")


def test_subscriptions_of_one_user(onecopy: Program) -> None:
    onecopy("mailbox", "create", "alice", "Work", "Old")
    onecopy("mailbox", "acl", "alice", "Work", "bob", "lr")
    onecopy("mailbox", "subscribe", "bob", "user/alice/Work")
    assert onecopy("mailbox", "subscribe", "bob") == "user/alice/Work\n"
    assert "may not look it up" in onecopy.refused("mailbox", "subscribe", "bob", "user/alice/Old")
    assert "mailbox" in onecopy.refused("mailbox", "subscribe", "bob", "user/alice/Wrok")
    assert onecopy.json("mailbox", "subscribe", "alice", "Old", "Work") == ["Old", "Work"]
    assert onecopy.json("mailbox", "unsubscribe", "alice", "Old") == ["Work"]
    assert "not subscribed" in onecopy.refused("mailbox", "unsubscribe", "alice", "Old")
    onecopy("mailbox", "unsubscribe", "bob", "user/alice/Work")
    assert subscribed(onecopy, "bob") == []
