"""Annotations of mailboxes: whose they are, what may be one, and that they go with their mailbox."""

import pytest

from mboxlist.annotations import MAX_ENTRIES, MAX_NAME, MAX_VALUE, is_legal
from mboxlist.engine.transact import transact
from mboxlist.table import MailboxList


@pytest.fixture
def mailboxes(tmp_path):
    opened = MailboxList(tmp_path, cache=1 << 20, recover=True)
    yield opened
    opened.close()


@pytest.fixture
def put(mailboxes):
    """Sets an annotation."""
    def put(mailbox, name, value, user=""):
        transact(mailboxes.env, lambda txn: mailboxes.annotations.set(mailbox, name, value, txn, user))
    return put


def test_each_has_its_own_and_all_have_the_shared_ones(mailboxes, put):
    put(7, "/shared/comment", b"for all")
    put(7, "/private/comment", b"\x00\xffalice's", "alice")
    put(7, "/private/comment", b"", "bob")                  # RFC 5464 §4.3: an empty value is not NIL
    put(8, "/shared/comment", b"another mailbox")
    notes = mailboxes.annotations
    assert notes.get(7, "/shared/comment") == b"for all"
    assert notes.get(7, "/private/comment", "alice") == b"\x00\xffalice's"
    assert notes.get(7, "/private/comment", "bob") == b""
    assert notes.get(7, "/private/comment", "carol") is None
    assert notes.get(7, "/private/comment") is None
    assert set(notes.of(7)) == {("/shared/comment", "", b"for all"), ("/private/comment", "alice", b"\x00\xffalice's"),
                                ("/private/comment", "bob", b"")}


def test_set_again_and_removed(mailboxes, put):
    put(7, "/shared/comment", b"one")
    put(7, "/shared/comment", b"two")
    assert list(mailboxes.annotations.of(7)) == [("/shared/comment", "", b"two")]
    put(7, "/shared/comment", None)
    put(7, "/shared/comment", None)
    assert list(mailboxes.annotations.of(7)) == []


@pytest.mark.parametrize(("name", "private"), [
    ("/shared/comment", False), ("/private/comment", True), ("/shared/vendor/cmu/cyrus-imapd/expire", False),
    ("/shared/" + "x" * (MAX_NAME - 8), False)])
def test_names(mailboxes, put, name, private):
    assert is_legal(name, private=private)
    assert not is_legal(name, private=not private)
    put(1, name, b"x", "bob" if private else "")


@pytest.mark.parametrize("name", [
    "", "/", "comment", "shared/comment", "/shared", "/shared/", "/shared/a/", "/shared//a", "/shared/a*", "/shared/%",
    "/shared/a b", "/shared/\x00", "/shared/é", "/shared/a\r\n", "/SHARED/comment", "/shared/" + "x" * (MAX_NAME - 7)])
def test_what_is_no_name(mailboxes, put, name):
    """RFC 5464 §3.2."""
    with pytest.raises(ValueError, match="name"):
        put(1, name, b"x")
    put(1, name, None)
    assert list(mailboxes.annotations.of(1)) == []


def test_limits(mailboxes, put):
    put(1, "/shared/long", b"x" * MAX_VALUE)
    with pytest.raises(ValueError, match="too long"):
        put(1, "/shared/long", b"x" * (MAX_VALUE + 1))

    def fill(txn):
        for number in range(MAX_ENTRIES):
            mailboxes.annotations._table.put((2).to_bytes(4, "big") + b"/shared/%d\0" % number, b"x", txn)

    transact(mailboxes.env, fill)
    with pytest.raises(ValueError, match="too many"):
        put(2, "/shared/one-more", b"x")
    with pytest.raises(ValueError, match="too many"):
        put(2, "/private/one-more", b"x", "bob")
    put(2, "/shared/0", b"another")
    put(3, "/shared/elsewhere", b"x")


def test_they_go_with_their_mailbox(mailboxes, put):
    for mailbox in (255, 256, 257):
        put(mailbox, "/shared/comment", b"x")
        put(mailbox, "/private/comment", b"x", "bob")
    transact(mailboxes.env, lambda txn: mailboxes.annotations.forget(256, txn))
    assert [len(list(mailboxes.annotations.of(mailbox))) for mailbox in (255, 256, 257)] == [2, 0, 2]


def test_they_follow_their_user(mailboxes, put):
    put(1, "/private/comment", b"bob's", "bob")
    put(2, "/private/comment", b"bobby's", "bobby")
    put(2, "/shared/comment", b"for all")
    transact(mailboxes.env, lambda txn: mailboxes.annotations.rename_user(
        mailboxes.annotations.of_user("bob"), "robert", txn))
    assert list(mailboxes.annotations.of(1)) == [("/private/comment", "robert", b"bob's")]
    transact(mailboxes.env, lambda txn: mailboxes.annotations.rename_user(
        mailboxes.annotations.of_user("robert"), None, txn))
    assert list(mailboxes.annotations.of(1)) == []
    assert set(mailboxes.annotations.of(2)) == {("/private/comment", "bobby", b"bobby's"),
                                                ("/shared/comment", "", b"for all")}
