"""`onecopy mailbox status`: what STATUS tells (RFC 9051 §6.3.11), of mailboxes of many users."""

import json
from collections.abc import Iterator

import pytest

from store.mailboxes.flagchanges import change_flags
from store.opening import open_store
from store.values import Flag, FlagAction, Flags
from tests.support.processes.program import Program
from tests.support.stores.stores import SMALL, deliver
from tools.cli import output

LETTER = b"Subject: a letter\r\n\r\nHello\r\n"
SIZE = len(LETTER)


@pytest.fixture
def mail(onecopy: Program) -> Iterator[Program]:
    """Three messages of alice's, one seen and one deleted; bob@example.net has one, bob none; a public one.
    The check finds nothing at the end.
    """
    onecopy("user", "add", "bob@example.net", "--password-stdin", octets=b"secret\n")
    onecopy("mailbox", "create", "alice", "Archive/2025", "Archive/2026")
    onecopy("mailbox", "create", "public/", "news")
    store = open_store(onecopy.root, SMALL)
    for name in ("user/alice/INBOX", "user/alice/INBOX", "user/alice/Archive/2026", "user/bob@example.net/INBOX",
                 "public/news"):
        deliver(store, LETTER, name)
    inbox = next(entry for entry in store.names("alice") if entry.name.path == "INBOX")
    change_flags(store, inbox, [1], FlagAction.ADD, Flags(Flag.SEEN), "alice")
    change_flags(store, inbox, [2], FlagAction.ADD, Flags(Flag.DELETED), "alice")
    store.close()
    yield onecopy
    onecopy("check")


def named(mail: Program, *words: str) -> list[tuple[str, str]]:
    rows = mail.json("mailbox", "status", *words)
    assert isinstance(rows, list)
    return [(row["user"], row["mailbox"]) for row in rows]


def test_the_figures(mail: Program) -> None:
    row, = mail.json("mailbox", "status", "-u", "alice", "INBOX")
    assert row.pop("uidvalidity") > 0 and row.pop("highestmodseq") > 2
    assert row == {"user": "alice", "mailbox": "INBOX", "messages": 2, "recent": 2, "unseen": 1, "deleted": 1,
                   "octets": 2 * SIZE, "uidnext": 3}
    assert named(mail, "-u", "alice", "Archive/%") == [("alice", "Archive/2025"), ("alice", "Archive/2026")]
    assert named(mail, "-u", "alice", "-u", "bob@example.net", "inbox") == [
        ("alice", "INBOX"), ("bob@example.net", "INBOX")]
    assert named(mail, "--domain", "example.net") == [("bob@example.net", "INBOX")]
    assert named(mail, "-u", "public/") == [("public/", "news")]
    assert len(named(mail, "--all")) >= 5 and ("public/", "news") in named(mail, "--all")


def test_the_total(mail: Program) -> None:
    assert mail.json("mailbox", "status", "--all", "--total", "INBOX", "news", "Archive/*") == {
        "mailboxes": 6, "messages": 5, "recent": 5, "unseen": 4, "deleted": 1, "octets": 5 * SIZE}
    assert mail("mailbox", "status", "-u", "alice", "--total", "--bytes", "Archive/*").splitlines()[1].split() == [
        "2", "1", "1", "1", "0", str(SIZE)]


def test_json_has_a_line_for_each_mailbox(mail: Program) -> None:
    first, *lines, last = mail("mailbox", "status", "--all", "--json").splitlines()
    assert (first, last) == ("[", "]") and len(lines) >= 5
    assert all(json.loads(line.removesuffix(",")).keys() >= {"user", "messages", "uidnext"} for line in lines)


def test_a_long_table_is_printed_piece_by_piece(mail: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "TOGETHER", 2)
    printed = mail("mailbox", "status", "-u", "alice", "INBOX", "Archive/*").splitlines()
    assert len(printed) == 3 + 2 and printed[0].split()[:2] == printed[3].split()[:2] == ["user", "mailbox"]


@pytest.mark.parametrize(("words", "complaint", "status"), [
    (("INBOX",), "whose mailboxes?", 2), (("-u", "nobody"), "no user nobody", 1),
    (("-u", "alice", "Sendt"), "there is no such mailbox: onecopy mailbox list", 1)])
def test_what_is_wrong_is_said(mail: Program, words: tuple[str, ...], complaint: str, status: int) -> None:
    assert complaint in mail.refused("mailbox", "status", *words, status=status).lower()


def test_nothing_is_an_empty_list(mail: Program) -> None:
    """JSON stays a document when there is nothing, too."""
    assert json.loads(mail("mailbox", "status", "-u", "alice", "None", "--json", status=1)) == []
