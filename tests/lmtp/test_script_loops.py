"""Mail in circles: what scripts send on comes back, answers are answered (RFC 5228 §10, RFC 5230 §4.6, RFC 3834)."""

import pytest

from tests.lmtp.test_scripts_of_users import Mail, mail, message
from tests.support.clients.lmtp import stuffed

__all__ = ["Mail", "mail"]          # a fixture is found by its name

AWAY = 'require "vacation"; vacation :addresses "alice@example.org" "I am away.";'


def hand_over(mail, sender, recipient, octets):
    mail.place.connect()
    envelope = b"LHLO mx\r\nMAIL FROM:<%b>\r\nRCPT TO:<%b>\r\nDATA\r\n" % (sender, recipient)
    mail.place.wire.send(envelope + stuffed(octets))
    assert b"250 2.0.0" in mail.place.wire.received().split(b"354 ")[1]


def round_trips(mail, octets):
    """The relay brings back all that is sent to users here, until nothing is; how often it has."""
    hand_over(mail, b"ann@example.net", b"alice", octets)
    brought, trips = 0, 0
    while len(letters := mail.letters()) > brought:
        (sender, recipient, sent), = letters[brought:]
        brought, trips = len(letters), trips + 1
        assert trips < 10, "it never ends"
        hand_over(mail, sender.encode(), recipient.encode(), sent)
    return trips


def test_what_is_sent_on_to_oneself_comes_back_once_and_stays(mail):
    mail.script("alice", 'redirect "alice@example.org";')
    assert round_trips(mail, message("oneself")) == 1 and mail.count("alice/INBOX") == 1


def test_two_who_send_on_to_each_other_end_with_one_copy(mail):
    mail.script("alice", 'redirect "bob@example.org";')
    mail.script("bob", 'redirect "alice@example.org";')
    assert round_trips(mail, message("each other")) == 2
    assert (mail.count("alice/INBOX"), mail.count("bob/INBOX")) == (1, 0)


def test_two_who_are_away_do_not_answer_each_other_without_end(mail):
    mail.script("alice", AWAY)
    mail.script("bob", AWAY.replace("alice", "bob"))
    hand_over(mail, b"bob@example.org", b"alice", message("away"))
    (sender, recipient, answer), = mail.letters()
    assert (sender, recipient) == ("", "bob@example.org")
    hand_over(mail, b"", b"bob", answer)
    assert len(mail.letters()) == 1 and mail.count("bob/INBOX") == 1


@pytest.mark.parametrize("sender, more", [
    (b"", b""), (b"MAILER-DAEMON@example.net", b""), (b"no-reply@example.net", b""), (b"noreply@example.net", b""),
    (b"owner-dev@example.net", b""), (b"dev-request@example.net", b""),
    (b"dev-bounces+alice=example.org@example.net", b""), (b"ann@example.net", b"List-Id: <dev.example.net>\r\n"),
    (b"ann@example.net", b"List-Post: <mailto:dev@example.net>\r\n"),
    (b"ann@example.net", b"Auto-Submitted: auto-replied (vacation)\r\n"), (b"ann@example.net", b"Precedence: list\r\n"),
    (b"alice@example.org", b"")])
def test_lists_bounces_and_robots_get_no_answer(mail, sender, more):
    mail.script("alice", AWAY)
    hand_over(mail, sender, b"alice", message("answer", more))
    assert mail.letters() == [] and mail.count("alice/INBOX") == 1
