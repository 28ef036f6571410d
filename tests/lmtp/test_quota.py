"""What LMTP says to mail for users over quota: 452 4.2.2 while the grace lasts, then 552 5.2.2 (RFC 3463 §3.3)."""

import pytest

from store.quota import roots
from tests.lmtp.conversation import Step
from tests.lmtp.test_delivery import deliver

DAY = 86400
NOW = 1_800_000_000


@pytest.fixture
def at(place, monkeypatch):
    """Sets the store's clock."""
    def set_clock(now):
        for partition in place.store.partitions.values():
            monkeypatch.setattr(partition.quotas, "clock", lambda: now)
    set_clock(NOW)
    return set_clock


def say(place, *lines):
    """The codes of the replies to these lines."""
    place.connect()
    place.wire.received()
    place.wire.send(b"".join(line + b"\r\n" for line in (b"LHLO mx.example.org", *lines)))
    return [line[:9] for line in place.wire.received().splitlines() if line[3:4] == b" "][1:]


def test_refused_for_now_and_then_for_good(place, at):
    place.prepare([Step(1, "have", "alice room=1000; bob")])
    assert deliver(place, ["alice"], b"x" * 500)[0].startswith(b"250")
    big = b"y" * 600
    assert [reply[:9] for reply in deliver(place, ["alice", "bob"], big)] == [b"452 4.2.2", b"250 2.0.0"]
    at(NOW + 5 * DAY - 1)
    assert deliver(place, ["alice"], big)[0].startswith(b"452 4.2.2 Over quota")
    at(NOW + 5 * DAY)
    assert deliver(place, ["alice"], big)[0] == b"552 5.2.2 Over quota for too long"
    assert deliver(place, ["alice"], b"z" * 20)[0].startswith(b"250")           # there is room for a small one
    assert deliver(place, ["alice"], big)[0].startswith(b"452 4.2.2")           # a new period


def test_a_refusal_at_rcpt_begins_the_grace_too(place, at):
    place.prepare([Step(1, "have", "alice room=1000")])
    assert deliver(place, ["alice"], b"x" * 500)[0].startswith(b"250")
    asked = b"MAIL FROM:<> SIZE=600", b"RCPT TO:<alice>"
    assert say(place, *asked) == [b"250 2.1.0", b"452 4.2.2"]
    assert roots.quota(place.store, "alice").refused == NOW
    at(NOW + 5 * DAY)
    assert say(place, *asked) == [b"250 2.1.0", b"552 5.2.2"]
    assert say(place, b"MAIL FROM:<> SIZE=100", b"RCPT TO:<alice>") == [b"250 2.1.0", b"250 2.1.5"]


def test_what_can_never_fit_is_refused_for_good_at_once(place, at):
    place.prepare([Step(1, "have", "alice room=1000")])
    assert say(place, b"MAIL FROM:<> SIZE=1001", b"RCPT TO:<alice>") == [b"250 2.1.0", b"552 5.2.2"]
    assert roots.quota(place.store, "alice").refused == 0


def test_the_root_of_a_mailbox_decides_for_its_sub_address(place, at):
    place.prepare([Step(1, "have", "alice; alice/Archive")])
    roots.set_quota(place.store, "alice/Archive", octets=1000)
    assert deliver(place, ["alice+Archive"], b"x" * 500)[0].startswith(b"250")
    assert [reply[:9] for reply in deliver(place, ["alice+Archive", "alice"], b"y" * 600)] == [
        b"452 4.2.2", b"250 2.0.0"]
