"""Mailbox names: RFC 3501 §5.1 (hierarchy, INBOX in any case) and RFC 2342 (name spaces)."""

import pytest

from mboxlist.names import MailboxName, NameProblem

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


def test_the_hierarchy():
    archive = MailboxName.parse("user/alice/Archive")
    assert archive.child("2026").is_below(archive)
    assert not MailboxName.parse("user/alice/Archive2").is_below(archive)
    assert not MailboxName.parse("user/bob/Archive/2026").is_below(archive)
    assert MailboxName.parse("user/alice/inbox").is_inbox()
    assert not MailboxName.parse("public/INBOX").is_inbox()
