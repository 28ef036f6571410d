"""`onecopy messages`: search, fetch, flag, copy, move, expunge, and one message out of every mailbox and back."""

import base64
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from store.opening import open_store
from tests.support.processes.program import Program
from tests.support.stores.stores import SMALL, deliver
from tools.commands.messages import searchwords
from tools.exits import Failure

INVOICE = (b"From: =?utf-8?q?Zo=C3=AB?= <zoe@example.org>\r\nTo: alice@example.org\r\nSubject: Your invoice\r\n"
           b"Message-ID: <bad@example.org>\r\nDate: Mon, 1 Jun 2026 10:00:00 +0000\r\n\r\nPay \"now\" \\ here\r\n")
LETTER = b"From: ada@example.org\r\nSubject: a letter\r\nMessage-ID: <good@example.org>\r\n\r\nHello\r\n"
WHERE = ("user/alice/INBOX", "user/alice/Work", "user/bob@example.net/INBOX", "public/news")


@pytest.fixture
def mail(onecopy: Program) -> Program:
    """The invoice in four mailboxes, of alice, bob and the public; a letter in alice's INBOX."""
    onecopy("user", "add", "bob@example.net", "--password-stdin", octets=b"secret\n")
    for words in (("alice", "INBOX"), ("alice", "Work"), ("bob@example.net", "INBOX"), ("public/", "news")):
        onecopy("mailbox", "create", *words, status=1 if words[1] == "INBOX" else 0)
    store = open_store(onecopy.root, SMALL)
    deliver(store, LETTER, "user/alice/INBOX")
    for name in WHERE:
        deliver(store, INVOICE, name)
    store.close()
    return onecopy


@pytest.fixture(autouse=True)
def whole(onecopy: Program) -> Iterator[None]:
    """After each test the check finds nothing."""
    yield
    onecopy("check")


def found(mail: Program, *words: str) -> list[tuple[str, str, int]]:
    """The messages that a search finds."""
    rows = mail.json("messages", "search", *words)
    assert isinstance(rows, list)
    return [(row["user"], row["mailbox"], row["uid"]) for row in rows]


def test_search(mail: Program) -> None:
    assert found(mail, "-u", "alice", "mailbox", "INBOX", "since", "7d", "subject", "INVOICE") == [
        ("alice", "INBOX", 2)]
    assert found(mail, "--all", "from", "Zoë") == [
        ("public/", "news", 1), ("alice", "INBOX", 2), ("alice", "Work", 1), ("bob@example.net", "INBOX", 1)]
    assert found(mail, "-u", "alice", "-u", "bob@example.net", "mailbox", "IN*", "not", "text", "hello") == [
        ("alice", "INBOX", 2), ("bob@example.net", "INBOX", 1)]
    assert found(mail, "--domain", "EXAMPLE.net") == [("bob@example.net", "INBOX", 1)]
    assert found(mail, "-u", "public/", "body", '"now" \\ here') == [("public/", "news", 1)]
    assert found(mail, "-u", "alice", "(", "subject", "letter", "or", "larger", "1G", "seen", ")") == []
    row, = mail.json("messages", "search", "-u", "alice", "uid", "2", "mailbox", "inbox")
    assert row["message_id"] == "<bad@example.org>" and row["size"] == len(INVOICE) and row["flags"] == []
    assert mail.json("messages", "search", "-u", "alice", "--count") == [
        {"user": "alice", "mailbox": "INBOX", "messages": 2, "octets": len(INVOICE) + len(LETTER)},
        {"user": "alice", "mailbox": "Work", "messages": 1, "octets": len(INVOICE)}]
    assert len(mail("messages", "search", "--all", "--limit", "2").splitlines()) == 1 + 2
    assert mail.error == "onecopy: there are more than 2: --limit has them listed\n"


@pytest.mark.parametrize(("words", "complaint"), [
    (("--all", "sinze", "7d"), "did you mean since?"), (("--all", "not"), "a search key is missing at the end"),
    (("--all", "5:7"), "say uid 5:7"), (("--all", "(", "seen"), "is missing at the end"),
    (("--all", "uid", "x"), "UIDs are written as"), (("--all", "subject"), "is missing at the end"),
    (("--all", "since", "2026-02-30"), "day"), (("--all", "since", "31-Feb-2026"), "no such day"),
    (("--all", "larger", "big"), "not a size"), (("--all", "older", "old"), "not a duration"),
    (("--all", "not", "mailbox", "INBOX"), "mailbox stands by itself"), (("--all", ")"), "no such search key"),
    (("--all", "subject", "a\nb"), "line ends"), (("--all", "keyword", 'a"b'), "cannot stand here"),
    (("--all", "mailbox", "x" * 2000), "too long"), (("seen",), "whose messages?"),
    (("--all", "-u", "alice"), "whose messages?"), (("-u", "nobody"), "no user nobody")])
def test_what_is_no_query(mail: Program, words: tuple[str, ...], complaint: str) -> None:
    status = 1 if "nobody" in words else 2
    assert complaint in mail.refused("messages", "search", *words, status=status).lower() + mail.error


def test_days_and_spans_count_back_from_now() -> None:
    now = datetime(2026, 3, 2, 0, 0, 5, tzinfo=UTC).timestamp()
    assert searchwords.read(["since", "2d"], now).key == searchwords.read(["since", "28-Feb-2026"], 0).key
    assert searchwords.read(["before", "2026-02-28"], now).key == searchwords.read(["before", "28-Feb-2026"], 0).key
    assert searchwords.read(["older", "1h"], 7200).key == searchwords.read(["older", "3600"], 7200).key
    with pytest.raises(Failure):
        searchwords.read(["uid", "$"], now)         # no session has saved anything (RFC 5182)


def test_fetch(mail: Program) -> None:
    assert mail("messages", "fetch", "-u", "alice", "mailbox", "Work", "all").encode() == INVOICE
    only = mail.json("messages", "fetch", "-u", "alice", "subject", "letter", "--header")
    assert base64.b64decode(only["base64"]) == LETTER.removesuffix(b"Hello\r\n")
    assert "no such message" in mail.refused("messages", "fetch", "-u", "alice", "subject", "nothing")
    assert "several" in mail.refused("messages", "fetch", "-u", "alice", "all", status=2)


def test_flag(mail: Program) -> None:
    said = mail.json("messages", "flag", "--all", "--add", "seen", "--add", "$Phishing", "subject", "invoice")
    assert said["dry_run"] is False and len(said["mailboxes"]) == 4
    assert len(found(mail, "--all", "seen", "keyword", "$phishing")) == 4
    mail("messages", "flag", "-u", "alice", "--remove", "\\Seen", "mailbox", "Work", "all")
    assert found(mail, "--all", "unseen") == [("alice", "INBOX", 1), ("alice", "Work", 1)]
    for flag in ("\\Recent", "a b", "(", "é"):
        assert "no such flag" in mail.refused("messages", "flag", "-u", "alice", "--add", flag, "all", status=2)
    assert "which flags" in mail.refused("messages", "flag", "-u", "alice", "all", status=2)


def test_copy_and_move(mail: Program) -> None:
    assert mail("messages", "copy", "-u", "alice", "--to", "Spam", "all", status=1) == ""
    assert [line.split(": ")[1] for line in mail.error.splitlines()] == ["user/alice/INBOX", "user/alice/Work"]
    said = mail.json("messages", "copy", "-u", "alice", "--to", "Spam", "--create", "--dry-run", "all")
    assert said["dry_run"] and found(mail, "-u", "alice", "mailbox", "Spam") == []
    mail("messages", "copy", "-u", "alice", "--to", "Spam", "--create", "subject", "invoice")
    assert found(mail, "-u", "alice", "mailbox", "Spam") == [("alice", "Spam", 1), ("alice", "Spam", 2)]
    mail("messages", "move", "-u", "bob@example.net", "--to-user", "alice", "--to", "INBOX", "all")
    assert found(mail, "--domain", "example.net") == [] and ("alice", "INBOX", 3) in found(mail, "-u", "alice")
    before = found(mail, "-u", "alice", "mailbox", "INBOX")
    mail("messages", "move", "-u", "alice", "--to", "INBOX", "mailbox", "INBOX", "all")     # they are there
    assert found(mail, "-u", "alice", "mailbox", "INBOX") == before


def test_expunge(mail: Program) -> None:
    assert "use --yes" in mail.refused("messages", "expunge", "-u", "alice", "all", status=2)
    said = mail.json("messages", "expunge", "-u", "alice", "--yes", "all")
    assert [row["messages"] for row in said["mailboxes"]] == [2, 1] and found(mail, "-u", "alice") == []
    assert mail("undelete", "alice", "INBOX") == "2 messages are back, with UIDs from 3 to 4\n"


def test_deduplicate(mail: Program) -> None:
    """The first stays; what is the same by Message-ID alone has other octets."""
    mail("deliver", "alice", "--mailbox", "Work", octets=INVOICE)
    mail("deliver", "alice", "--mailbox", "Work", octets=INVOICE.replace(b"Pay", b"Do not pay"))
    assert "use --yes" in mail.refused("messages", "deduplicate", "-u", "alice", "all", status=2)
    said = mail.json("messages", "deduplicate", "--all", "--dry-run", "all")
    assert said["mailboxes"] == [{"user": "alice", "mailbox": "Work", "messages": 1}]
    mail("messages", "deduplicate", "--all", "--yes", "all")
    assert found(mail, "-u", "alice", "mailbox", "Work") == [("alice", "Work", 1), ("alice", "Work", 3)]
    mail("messages", "deduplicate", "--all", "--yes", "--by", "message-id", "mailbox", "Work", "all")
    assert found(mail, "-u", "alice", "mailbox", "Work") == [("alice", "Work", 1)]
    assert len(found(mail, "--all")) == 5 and mail.json("messages", "deduplicate", "--all", "--yes", "all") == {
        "dry_run": False, "mailboxes": []}


def test_a_message_is_put_into_a_mailbox_with_flags_and_a_date(mail: Program) -> None:
    mail("deliver", "alice", "--mailbox", "Work", "--flag", "seen", "--flag", "$Kept", "--date",
         "2026-01-31T12:00+02:00", octets=LETTER)
    row, = mail.json("messages", "search", "-u", "alice", "mailbox", "Work", "keyword", "$Kept")
    assert (row["received"], row["flags"]) == ("2026-01-31T10:00:00Z", ["\\Seen", "$Kept"])
    assert "such as 2026-01-31" in mail.refused("deliver", "alice", "--date", "31.1.2026", octets=LETTER, status=2)
    assert "no such flag" in mail.refused("deliver", "alice", "--flag", "a b", octets=LETTER, status=2)


def test_metadata(mail: Program) -> None:
    def entries(*words: str) -> list[tuple[str, str | None, str]]:
        return [(row["entry"], row["user"], row["value"]) for row in mail.json("mailbox", "metadata", *words)]

    mail("mailbox", "metadata", "alice", "Work", "/shared/comment", "for all")
    mail("mailbox", "metadata", "alice", "Work", "/private/comment", "é", "--of", "bob")
    mail("mailbox", "metadata", "alice", "Work", "/private/comment", "my own")
    assert entries("alice", "Work") == [("/private/comment", "alice", "my own"), ("/shared/comment", None, "for all")]
    assert entries("alice", "Work", "/private/comment", "--of", "bob") == [("/private/comment", "bob", "é")]
    mail("mailbox", "metadata", "alice", "Work", "/shared/comment", "--remove")
    assert entries("alice", "Work") == [("/private/comment", "alice", "my own")]
    refused = [(("/shared/comment",), "has no /shared/comment", 1), (("comment",), "names of entries begin with", 2),
               (("/onecopy/last-login", "1"), "names of entries begin with", 2), (("--remove",), "must be named", 2)]
    for words, complaint, status in refused:
        assert complaint in mail.refused("mailbox", "metadata", "alice", "Work", *words, status=status)
    assert "whose?" in mail.refused("mailbox", "metadata", "public/", "news", "/private/comment", "x", status=2)


def test_a_hash_of_a_password_can_be_used(mail: Program, tmp_path: Path) -> None:
    hashed = mail("user", "hash", "--password-stdin", octets=b"a secret\n").strip()
    (tmp_path / "users.csv").write_text(f"carol,{hashed}\n")
    mail("user", "add", "--users", str(tmp_path / "users.csv"), "--hashed")
    assert "let in" in mail("directory", "test", "carol", "--password-stdin", octets=b"a secret\n")
    assert "it is wrong" in mail("directory", "test", "carol", "--password-stdin", octets=b"another\n", status=1)
    assert mail("user", "hash", "--password-stdin", octets=b"a secret\n").strip() != hashed      # a salt of its own


def test_messages_that_came_later_are_left_alone(mail: Program) -> None:
    """When a command that was cut off is done again."""
    said = mail.json("messages", "expunge", "--all", "--yes", "--at", "1000000000", "all")
    assert said["mailboxes"] == [] and len(found(mail, "--all")) == 5


def test_withdraw_and_undo(mail: Program) -> None:
    said = mail.json("messages", "withdraw", "bad@example.org", "--dry-run")
    assert [(row["user"], row["mailbox"], row["uids"]) for row in said["mailboxes"]] == [
        ("public/", "news", [1]), ("alice", "INBOX", [2]), ("alice", "Work", [1]), ("bob@example.net", "INBOX", [1])]
    assert "use --yes" in mail.refused("messages", "withdraw", "<bad@example.org>", status=2)
    mail("messages", "withdraw", "<bad@example.org>", "--yes")
    assert found(mail, "--all") == [("alice", "INBOX", 1)]
    assert mail("messages", "withdraw", "bad@example.org", "--yes", status=1) == "there is no such message\n"
    assert mail("messages", "withdraw", "other@example.org", "--undo", "--yes", status=1)
    mail("messages", "withdraw", "bad@example.org", "--undo", "--yes")
    assert found(mail, "--all", "subject", "invoice") == [
        ("public/", "news", 2), ("alice", "INBOX", 3), ("alice", "Work", 2), ("bob@example.net", "INBOX", 2)]


def test_withdraw_does_not_bring_back_what_went_long_ago(mail: Program) -> None:
    mail("messages", "withdraw", "bad@example.org", "--yes")
    assert mail("messages", "withdraw", "bad@example.org", "--undo", "--since", "0", "--yes", "--at", "4000000000",
                status=1) == "there is no such message\n"
