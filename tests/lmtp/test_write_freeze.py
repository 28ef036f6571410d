"""Mail that comes while the store is held still is received, and answered when the store goes on."""

import pytest

from mboxlist.engine.secondcopy import State
from store.accounts.loginsettings import Settings as LoginSettings
from store.accounts.sasl.scram import HASHES
from store.errors import Problem, StoreError
from store.mailboxes import firstuse
from store.net import authentication
from store.partitions import volumes
from store.quota import roots
from tests.lmtp.conversation import Place, Step
from tests.support.faults.held import holding
from tests.support.stores.stores import HASH, make_store


@pytest.fixture
def held(place, monkeypatch):
    place.prepare([Step(1, "have", "alice; bob; alice/INBOX; bob/INBOX")])
    with holding(place.store, monkeypatch) as found:
        yield found


def send(place, *people):
    """A message on a connection of its own."""
    place.connect()
    place.wire.send(b"LHLO mx.example.org\r\nMAIL FROM:<a@elsewhere.example>\r\n" + b"".join(
        b"RCPT TO:<%b>\r\n" % one for one in people) + b"DATA\r\nSubject: %b\r\n\r\n.\r\n" % b"".join(people))
    return place.wire


def answers(wire):
    """What came after the go-ahead."""
    return [line[:9] for line in wire.received().partition(b"354 ")[2].splitlines()[1:]]


def test_mail_waits_and_nobody_else_does(place, held):
    assert answers(send(place, b"alice")) == [b"250 2.0.0"]
    held.begin()
    waiting = [send(place, b"alice"), *(send(place, b"bob", b"alice") for _ in range(20))]
    assert [answers(wire) for wire in waiting] == [[]] * 21
    place.connect()
    place.wire.send(b"LHLO x\r\nNOOP\r\n")
    assert place.wire.received().endswith(b"250 2.0.0 Ok\r\n")
    assert len(place.messages("alice/INBOX")) == 1
    held.end()
    found = [line for wire in waiting for line in wire.received().splitlines() if line.startswith(b"250 2.0.0")]
    assert len(found) == 1 + 2 * 20 and len(place.messages("alice/INBOX")) == 22


def test_who_is_over_quota_hears_that_when_the_store_goes_on(place, held):
    """The refusal begins the time of grace, which is written down."""
    send(place, b"alice")
    roots.set_quota(place.store, "alice", 10)
    held.begin()
    place.connect()
    place.wire.send(b"LHLO mx.example.org\r\nMAIL FROM:<a@elsewhere.example>\r\n")
    place.wire.received()
    place.wire.send(b"RCPT TO:<alice>\r\n")
    assert place.wire.received() == b""
    held.end()
    assert place.wire.received().startswith(b"452 4.2.2 ")


@pytest.mark.few_folders
def test_a_standby_that_is_away_holds_up_those_alone_whom_it_has(tmp_path, monkeypatch):
    """Also where the message would be received on the partition that it has, and nothing can be received there."""
    store = make_store(tmp_path / "store", ("alice",))
    volumes.add(store, "archive")
    firstuse.inbox(store, store.directory.add("bob", HASH, partition="archive"))
    authentication.attach(store, LoginSettings(slow_first=0, scram_keys=tuple(HASHES)))
    place, second = Place(store, monkeypatch), store.write_freeze.second
    place.prepare([])
    second.put(State.REFUSING, 0)
    second.put_free(["archive"])

    def refused(*_):
        raise StoreError(Problem.UNAVAILABLE)

    monkeypatch.setattr(store.partitions["primary"], "stage", refused)
    assert answers(send(place, b"alice", b"bob")) == [b"451 4.3.0", b"250 2.0.0"]
    assert len(place.messages("bob/INBOX")) == 1 and not place.messages("alice/INBOX")
    second.forget()
    store.close()
