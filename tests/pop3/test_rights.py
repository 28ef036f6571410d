"""RFC 4314 §2.1: rights that owners have taken from themselves, or had taken, they do not have by POP3 either."""

import pytest

from pop3.settings import Settings
from store.mailboxes.authorization import set_acl

MESSAGE = b"Subject: one\r\n\r\nx\r\n"


def say(wire, line):
    wire.send(line + b"\r\n")
    return wire.received()


@pytest.fixture
def session(place):
    """A connection of the user's, who has these rights on INBOX."""
    def begin(rights, **settings):
        place.uid = place.deliver(MESSAGE)
        set_acl(place.store, place.inbox.name, "mrose", rights)
        place.inbox = place.store.entry(place.inbox.name)
        wire = place.connect(place.server(Settings(**settings)))
        wire.received()
        assert say(wire, b"USER mrose").startswith(b"+OK")
        return wire, say(wire, b"PASS tanstaaf")
    return begin


def test_without_r_there_is_no_maildrop(place, session):
    wire, answer = session("lswte")
    assert answer == b"-ERR [SYS/PERM] not allowed\r\n"
    assert say(wire, b"STAT").startswith(b"-ERR")


@pytest.mark.parametrize("rights", ["lrt", "lre", "lr"])
def test_without_t_and_e_nothing_is_removed(place, session, rights):
    wire, answer = session(rights)
    assert answer.startswith(b"+OK")
    say(wire, b"DELE 1")
    assert say(wire, b"QUIT").startswith(b"-ERR")
    assert place.uids() == [place.uid]


@pytest.mark.parametrize(("rights", "seen"), [("lr", 0), ("lrs", 1)])
def test_with_s_what_was_retrieved_is_seen(place, session, rights, seen):
    wire, _ = session(rights, mark_seen=True)
    assert b"Subject: one" in say(wire, b"RETR 1")
    assert say(wire, b"QUIT").startswith(b"+OK")
    assert place.seen() == [place.uid] * seen


def test_with_all_of_them_everything_is_as_ever(place, session):
    wire, _ = session("lrte")
    say(wire, b"DELE 1")
    assert say(wire, b"QUIT").startswith(b"+OK")
    assert place.uids() == []
