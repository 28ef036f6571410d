"""onecopy deliver is in the delivery log like what relays bring, and takes no empty message."""

import pytest

from mboxlist import privatefiles
from store.deliverylog import FOLDER
from tests.support.processes.program import Program

MESSAGE = b"From: a@example.org\r\nMessage-Id: <one@example.org>\r\nSubject: hello\r\n\r\nHello.\r\n"


def found(onecopy: Program, *words: str) -> list[dict[str, object]]:
    return onecopy.json("explain", "message", *words)           # type: ignore[return-value]


def test_a_delivery_is_explained(onecopy: Program) -> None:
    onecopy("mailbox", "create", "bob", "Work")
    onecopy("deliver", "alice", octets=MESSAGE)
    onecopy("deliver", "BOB@example.org", "--mailbox", "Work", octets=MESSAGE)
    first, second = found(onecopy, "<one@example.org>")
    assert str(first["peer"]).startswith("onecopy deliver, run by ") and first["from"] == ""
    to, = second["to"]                                          # type: ignore[misc]
    assert (to["recipient"], to["mailbox"], to["uid"]) == ("BOB@example.org", "user/bob/Work", 1)
    assert "accepted" in onecopy("explain", "message", "<one@example.org>")
    assert found(onecopy, "--recipient", "bob") == [second]


def test_a_refusal_is_explained(onecopy: Program) -> None:
    onecopy("user", "set", "bob", "--status", "disabled")
    onecopy("quota", "set", "alice", "--messages", "1")
    onecopy("deliver", "alice", octets=b"Subject: the one\r\n\r\n")
    assert "disabled" in onecopy.refused("deliver", "bob", octets=MESSAGE)
    assert "over quota" in onecopy.refused("deliver", "alice", octets=MESSAGE)
    assert "too big" in onecopy.refused("deliver", "alice", "--store-message-limit", "20", octets=MESSAGE)
    for user, reply in (("bob", ["550 5.2.1"]), ("alice", ["250 2.1.5", "452 4.2.2", "552 5.3.4"])):
        assert [one["to"][0]["reply"] for one in found(onecopy, "--recipient", user)] == reply  # type: ignore[index]


def test_many_deliveries_have_one_file(onecopy: Program) -> None:
    for _ in range(4):
        onecopy("deliver", "alice", octets=MESSAGE)
    assert len(list((onecopy.root / FOLDER).glob("deliver.*"))) == 1
    assert len(found(onecopy, "<one@example.org>")) == 4
    for _ in range(4):
        onecopy("deliver", "alice", "--store-journal-size", "1k", octets=MESSAGE)
    assert len(list((onecopy.root / FOLDER).glob("deliver.*"))) > 1
    onecopy("deliver", "alice", "--store-journal-size", "0", octets=MESSAGE)


def test_a_delivery_without_an_answer_is_recognised_when_it_comes_again(onecopy: Program) -> None:
    """A mailer that pipes into the command tries again when that was killed; after the end of a process that was killed
    nobody knows what was answered in the minute before."""
    onecopy("deliver", "alice", octets=MESSAGE)
    privatefiles.touch(onecopy.root / "partitions" / "primary" / "index" / "unclean")
    assert onecopy("deliver", "alice", "bob", octets=MESSAGE).splitlines() == ["bob INBOX 65537"]
    assert onecopy.json("mailbox", "info", "alice", "INBOX")["messages"] == 1       # type: ignore[call-overload,index]
    onecopy("deliver", "alice", "--lmtp-repeat-window", "0", octets=MESSAGE)
    assert onecopy.json("mailbox", "info", "alice", "INBOX")["messages"] == 2       # type: ignore[call-overload,index]
    onecopy("check")


@pytest.mark.parametrize("octets", [b"", b"\n", b"\r\n\r\n\n"])
@pytest.mark.parametrize("raw", [(), ("--raw",)])
def test_there_is_no_empty_message(onecopy: Program, octets: bytes, raw: tuple[str, ...]) -> None:
    assert "no message" in onecopy.refused("deliver", *raw, "alice", octets=octets, status=2)
    assert onecopy.json("mailbox", "info", "alice", "INBOX")["messages"] == 0       # type: ignore[call-overload,index]
    assert not list((onecopy.root / "partitions" / "primary" / "messages").glob("*/*/*"))
    onecopy("check")
