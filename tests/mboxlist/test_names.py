"""Mailbox names: RFC 3501 §5.1 (hierarchy, INBOX in any case) and RFC 2342 (name spaces)."""

import pytest

from mboxlist.names import MailboxName, NameProblem, legal_owner

LEGAL = [
    # what alice's client writes, the canonical name, what her client is shown
    ("INBOX", "user/alice/INBOX", "INBOX"),
    ("inbox", "user/alice/INBOX", "INBOX"),
    ("InBoX/Child", "user/alice/INBOX/Child", "INBOX/Child"),
    ("inboxes", "user/alice/inboxes", "inboxes"),
    ("Archive/2026", "user/alice/Archive/2026", "Archive/2026"),
    ("Entwürfe", "user/alice/Entwürfe", "Entwürfe"),
    ("a b.c&d", "user/alice/a b.c&d", "a b.c&d"),
    ("user/alice/Sent", "user/alice/Sent", "Sent"),
    ("user/bob@example.net/Sent", "user/bob@example.net/Sent", "user/bob@example.net/Sent"),
    ("user/bob/inbox", "user/bob/INBOX", "user/bob/INBOX"),
    ("public/news", "public/news", "public/news"),
]


@pytest.mark.parametrize(("written", "canonical", "shown"), LEGAL)
def test_legal_names(written, canonical, shown):
    name = MailboxName.from_client("alice", written)
    assert str(name) == canonical
    assert MailboxName.parse(canonical) == name
    assert name.to_client("alice") == shown


@pytest.mark.parametrize("written", [
    "", "/", "/a", "a/", "a//b", ".", "..", "a/../b", "a/./b", "a\x00b", "a\r\nb", "a\x7f", "a*", "a%b", "store.idx",
    "x" * 241, "/".join("x" * 41), "é" * 121, "/".join(["x" * 200] * 5), "user/bob", "user//x", "user/../x", "public/",
    "\ud800",
])
def test_names_that_are_not_legal(written):
    with pytest.raises(NameProblem):
        MailboxName.from_client("alice", written)


@pytest.mark.parametrize("owner", ["alice", "jörg", "jörg@xn--bcher-kva.example", "用户", "דוד", "é" * 120, "o'neil"])
def test_legal_owners(owner):
    assert legal_owner(owner) == owner


@pytest.mark.parametrize("owner", [
    "", ".", "..", "a/b", "a b", "a*", "store.idx", "@a", "anyone", "-bob", "group:x", "\ud800",
    "é" * 121, "用" * 81,                                       # octets, not characters, make the name of a folder
    "a\x00", "a\x85", "a\x9f", "a\u2028",                     # RFC 8264 §9.12: controls
    "a\u00a0", "a\u3000",                                      # §9.14: spaces
    "a\u200e", "a\u202e", "\u2067a", "a\u061c",               # those that turn round what is read
    "a\u200b", "a\u200d", "a\u00ad", "a\ufeff", "a\u2060", "a\u034f", "a\u3164", "a\ufe0f", "a\U000e0101",   # §9.13
    "a\ue000", "a\uffff", "a\u0378",                           # private, never, and not yet a character
])
def test_owners_that_are_not_legal(owner):
    with pytest.raises(NameProblem):
        legal_owner(owner)


def test_the_hierarchy():
    archive = MailboxName.parse("user/alice/Archive")
    assert archive.child("2026").is_below(archive)
    assert not MailboxName.parse("user/alice/Archive2").is_below(archive)
    assert not MailboxName.parse("user/bob/Archive/2026").is_below(archive)
    assert MailboxName.parse("user/alice/inbox").is_inbox()
    assert not MailboxName.parse("public/INBOX").is_inbox()
