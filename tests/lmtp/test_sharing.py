"""Mail to shared and public mailboxes, where a conversation of one store does not show it."""

import pytest
from attrs import evolve

from store import hosting
from store.errors import Problem, StoreError
from store.quota import roots
from tests.lmtp.conversation import Step, named
from tests.lmtp.test_delivery import deliver
from tests.lmtp.test_quota import say


@pytest.fixture
def public_user(place, monkeypatch):
    """Sets the name under which public mailboxes get mail."""
    return lambda name: monkeypatch.setattr(place.store, "settings", evolve(place.store.settings, public_user=name))


def test_a_user_of_that_name_comes_first(place):
    place.prepare([Step(1, "have", "public; public/news"), Step(2, "rights", "public/news anyone p")])
    assert deliver(place, ["public+news", "public"])[0].startswith(b"250")
    assert not place.messages("public/news")
    inbox = place.store.entry(evolve(named("public/INBOX"), owner="public"))
    assert len(place.store.open_mailbox(inbox).rows) == 1


@pytest.mark.parametrize(("name", "address"), [
    ("news", "news+all@example.org"), ("News@Example.org", "NEWS+all"),
    ("shared@lists.example", "shared+all@lists.example")])
def test_the_name_is_a_setting(place, public_user, name, address):
    place.prepare([Step(1, "have", "public/all"), Step(2, "rights", "public/all anyone p")])
    public_user(name)
    sender = b"MAIL FROM:<eve@elsewhere.example>"
    assert say(place, sender, b"RCPT TO:<%b>" % address.encode()) == [b"250 2.1.0", b"250 2.1.5"]
    assert say(place, sender, b"RCPT TO:<public+all@example.org>") == [b"250 2.1.0", b"550 5.1.1"]


def test_there_need_be_no_such_address(place, public_user):
    place.prepare([Step(1, "have", "public/all"), Step(2, "rights", "public/all anyone p")])
    public_user("")
    for address in (b"public+all@example.org", b"+all@example.org", b'"+all"'):
        assert say(place, b"MAIL FROM:<eve@elsewhere.example>", b"RCPT TO:<%b>" % address) == [
            b"250 2.1.0", b"550 5.1.1"]


def test_groups_of_the_sender(place):
    place.prepare([Step(1, "have", "alice; bob; public/staff"), Step(2, "rights", "public/staff group:staff lp")])
    place.store.directory.change("bob", groups=["staff"])
    for sender, code in ((b"bob", b"250 2.1.5"), (b"alice", b"550 5.1.1")):
        assert say(place, b"MAIL FROM:<%b@example.org>" % sender, b"RCPT TO:<public+staff>") == [b"250 2.1.0", code]


def test_the_quota_of_a_public_mailbox_counts(place):
    place.prepare([Step(1, "have", "public/full"), Step(2, "rights", "public/full anyone p")])
    roots.set_quota(place.store, "public/full", octets=10)
    assert say(place, b"MAIL FROM:<eve@elsewhere.example> SIZE=11", b"RCPT TO:<public+full>") == [
        b"250 2.1.0", b"552 5.2.2"]


def test_a_sender_who_cannot_be_looked_up_is_told_to_come_again(place, faults):
    """The directory may be out of reach after it answered for the recipient; then nobody knows who may post."""
    place.prepare([Step(1, "have", "alice; alice/Shared"), Step(2, "rights", "alice/Shared anyone p")])
    faults.fail(hosting, "look_up", StoreError(Problem.UNAVAILABLE), when=lambda _, address: address.startswith("bob"))
    assert say(place, b"MAIL FROM:<bob@example.org>", b"RCPT TO:<alice+Shared>", b"RCPT TO:<alice>") == [
        b"250 2.1.0", b"451 4.3.0", b"250 2.1.5"]
