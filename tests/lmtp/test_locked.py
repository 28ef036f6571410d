"""Mail for a mailbox that another transaction holds locked: store/net/lockedmailboxes.py, as relays see it."""

import pytest
from attrs import evolve
from twisted.internet.defer import Deferred

from store.offload import Threads
from store.tables.state import state_key
from tests.lmtp.conversation import Step, named

PAGE = 60           # mailboxes between two whose figures are not to be on one page of the database


class Later(Threads):
    """Does at once what does not wait for a lock; the rest when the test says."""

    def __init__(self):
        self.waiting = []

    def run(self, kind, work, then=None, user=""):
        """The result of `work`."""
        if kind != "locked":
            return super().run(kind, work, then, user)
        done = Deferred()
        self.waiting.append((work, done))
        return done

    def go_on(self):
        """Now."""
        waiting, self.waiting = self.waiting, []
        for work, done in waiting:
            done.callback(work())


@pytest.fixture
def threads(place, monkeypatch):
    """A store with alice, and carol on another page; two deliveries may wait for a mailbox."""
    monkeypatch.setattr(place.store, "settings", evolve(place.store.settings, mailbox_waiters=2, mailbox_wait=0))
    later = Later()
    place.store.owned.put(Threads, later)
    place.prepare([Step(1, "have", "; ".join([
        "alice; bob; carol", *(f"bob/before {number}" for number in range(PAGE)), "alice/INBOX",
        *(f"bob/between {number}" for number in range(PAGE)), "carol/INBOX"]))])
    return later


@pytest.fixture
def lock(place, threads):
    """Ends the transaction that holds alice's INBOX."""
    partition = place.store.partitions["primary"]
    txn = partition.env.begin()
    assert partition.states.get_to_change(state_key(place.store.entry(named("alice/INBOX")).id), txn)
    held = [txn]

    def end():
        while held:
            held.pop().abort()

    yield end
    end()


def send(place, number, *people):
    """A message over a connection of its own, which stays."""
    place.connect()
    place.wire.send(b"LHLO mx.example.org\r\nMAIL FROM:<a@elsewhere.example> SIZE=50\r\n"
                    + b"".join(b"RCPT TO:<%b>\r\n" % one for one in people)
                    + b"DATA\r\nSubject: for the locked %d\r\n\r\n.\r\n" % number)
    return place.wire


def answers(wire):
    """What came after the go-ahead."""
    return [line[:9] for line in wire.received().partition(b"354 ")[2].splitlines()[1:]]


def test_one_locked_mailbox_does_not_hold_up_the_others(place, threads, lock):
    first, second, third = (send(place, number, b"alice") for number in range(3))
    assert answers(third) == [b"451 4.2.0"]             # two wait already
    assert answers(send(place, 3, b"carol")) == [b"250 2.0.0"]
    both = send(place, 4, b"alice", b"carol")
    assert not answers(first) and not answers(second)
    lock()
    threads.go_on()
    assert answers(first) == answers(second) == [b"250 2.0.0"]
    assert answers(both) == [b"451 4.2.0", b"250 2.0.0"]
    assert len(place.messages("alice/INBOX")) == 2
    assert answers(send(place, 5, b"alice")) == [b"250 2.0.0"]


def test_a_mailbox_that_stays_locked_is_refused_alone(place, threads, lock):
    both = send(place, 6, b"carol", b"alice")
    assert not answers(both)
    threads.go_on()
    assert answers(both) == [b"250 2.0.0", b"451 4.2.0"]
    lock()
    assert len(place.messages("carol/INBOX")) == 1
    assert not place.messages("alice/INBOX")


def test_only_as_many_wait_as_there_are_threads(place, threads, lock, monkeypatch):
    monkeypatch.setattr("store.delivery.lockedmailboxes.THREADS", 1)
    first = send(place, 7, b"alice")
    assert answers(send(place, 8, b"alice")) == [b"451 4.2.0"]
    lock()
    threads.go_on()
    assert answers(first) == [b"250 2.0.0"]
