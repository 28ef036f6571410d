"""onecopy snapshot browse, snapshot copy: what a user had, beside what there is now."""

import pytest


def message(subject: str) -> bytes:
    return f"From: A <a@example.org>\r\nSubject: {subject}\r\n\r\nHello {subject}.\r\n".encode()


@pytest.mark.long
def test_what_has_gone_is_found_and_brought_back(onecopy):
    onecopy("deliver", "alice", octets=message("one"))
    onecopy("deliver", "alice", "bob", octets=message("two"))
    onecopy("mailbox", "create", "alice", "Work")
    made = onecopy.json("snapshot", "create")["snapshot"]
    onecopy("messages", "expunge", "-u", "alice", "--yes", "subject", "one")
    onecopy("deliver", "alice", octets=message("three"))
    assert [row["snapshot"] for row in onecopy.json("snapshot", "browse", "alice")] == [made]
    assert onecopy.json("snapshot", "browse", "alice", made) == [
        {"mailbox": "INBOX", "messages": 2, "octets": len(message("one")) * 2 + onecopy_header(onecopy, made)},
        {"mailbox": "Work", "messages": 0, "octets": 0}]
    shown = onecopy.json("snapshot", "browse", "alice", made, "INBOX")
    assert [(row["uid"], row["subject"], row["here"]) for row in shown] == [(2, "two", True), (1, "one", False)]
    assert [row["uid"] for row in onecopy.json("snapshot", "browse", "alice", made, "INBOX", "--gone")] == [1]
    assert [row["uid"] for row in onecopy.json("snapshot", "browse", "alice", made, "INBOX", "--before", "2")] == [1]
    assert [row["uid"] for row in onecopy.json("snapshot", "browse", "alice", made, "INBOX", "--most", "1")] == [2]
    assert onecopy("snapshot", "copy", "alice", made, "INBOX", "--dry-run") == (
        "1 messages would come back in user/alice/INBOX\n")
    assert len(onecopy.json("snapshot", "copy", "alice", made, "INBOX")["uids"]) == 1
    assert onecopy.json("snapshot", "copy", "alice", made, "INBOX")["uids"] == []           # nothing is missing now
    into = onecopy.json("snapshot", "copy", "alice", made, "INBOX", "--uid", "1", "2", "--into", "Back")
    assert into["messages"] == 2 and into["mailbox"] == "user/alice/Back"
    assert [row["messages"] for row in onecopy.json("mailbox", "list", "alice")] == [2, 3, 0]
    assert "nothing wrong" in onecopy("check")


def onecopy_header(onecopy, made):
    """Octets of trace header fields that `deliver` has put in front of both."""
    sizes = [row["size"] for row in onecopy.json("snapshot", "browse", "alice", made, "INBOX")]
    return sum(sizes) - 2 * len(message("one"))


@pytest.mark.long
def test_refusals(onecopy):
    onecopy("deliver", "alice", octets=message("one"))
    made = onecopy.json("snapshot", "create")["snapshot"]
    for words, why in ((("alice", "20200101T000000Z"), "There is no snapshot 20200101T000000Z"),
                       (("alice", made, "Nothing"), "There is no mailbox Nothing of alice in that snapshot"),
                       (("alice", made, "user/bob/INBOX"), "is no mailbox of alice's own"),
                       (("nobody",), "There is no user nobody")):
        assert why in onecopy.refused("snapshot", "browse", *words)
    for words, why in ((("INBOX", "--into", "public/news"), "is no mailbox of alice's own"),
                       (("INBOX", "--uid", "7"), "")):
        assert why in onecopy.refused("snapshot", "copy", "alice", made, *words)
    onecopy("user", "remove", "alice", "--now", "--yes")
    onecopy("user", "add", "--password-stdin", "alice", octets=b"secret\n")
    assert onecopy.json("snapshot", "browse", "alice", made) == []      # the name is the same, and not the user
