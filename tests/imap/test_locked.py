"""While somebody's transaction has locked what a command needs, the event loop does not wait: the command goes on in a
thread, and others are served."""

import pytest

from store.offload import Threads
from store.partition.transactions import WriteTxn
from tests.support.conversations.scripts import content


class Unlocking(Threads):
    """In a thread the transaction would have ended by now."""

    def __init__(self, place):
        self.kinds = []
        self.partition = place.store.partitions["primary"]
        self.held = None

    def lock(self, mailbox):
        """From here on a transaction has the figures of the mailbox, and of those on the same page."""
        self.held = self.partition.env.begin()
        WriteTxn(self.partition, self.held).state(mailbox)

    def unlock(self):
        """It ends."""
        if self.held is not None:
            self.held.abort()
        self.held = None

    def run(self, kind, work, then=None, user=""):
        """The result of `work`."""
        self.kinds.append(kind)
        self.unlock()
        return super().run(kind, work, then, user)


@pytest.fixture
def locking(place):
    threads = Unlocking(place)
    place.store.owned.put(Threads, threads)
    place.store.write_freeze.never_waits()
    yield threads
    threads.unlock()
    place.store.write_freeze.never_waits(never=False)


@pytest.mark.parametrize(("command", "kind"), [
    (b"STATUS INBOX (MESSAGES UNSEEN DELETED-STORAGE)", "views"),
    (b'LIST "" * RETURN (STATUS (MESSAGES))', "views"),
    (b"SELECT INBOX", "views"), (b"EXAMINE INBOX", "views"), (b"SELECT Sent", "views"),
    (b"STORE 1 +FLAGS (\\Seen)", "held"), (b"STORE 1 +FLAGS.SILENT (\\Seen)", "held"), (b"EXPUNGE", "held"),
    (b"UID EXPUNGE 1:*", "held"), (b"CLOSE", "held"), (b"FETCH 1 BODY[]", "held"), (b"COPY 1 Sent", "held"),
    (b"MOVE 2 Sent", "held"),
])
def test_no_command_waits_for_a_lock_in_the_event_loop(place, locking, command, kind):
    for number in range(3):
        place.deliver("INBOX", content(str(number)))
    wire = place.connect()
    wire.send(b"a LOGIN alice secret\r\nb CREATE Sent\r\nc SELECT INBOX\r\nd STORE 3 +FLAGS (\\Deleted)\r\n")
    assert b"d OK" in wire.received()
    locking.kinds.clear()
    locking.partition.views.forget()
    locking.lock(place.store.entry(place.name("INBOX")).id)
    wire.send(b"e " + command + b"\r\n")
    assert b"e OK" in wire.received()
    assert kind in locking.kinds


def test_who_selects_again_what_nobody_has_changed_needs_no_lock(place, locking):
    """And hears what has changed, once that has been committed."""
    place.deliver("INBOX", content("1"))
    wire = place.connect()
    wire.send(b"a LOGIN alice secret\r\nb EXAMINE INBOX\r\n")
    assert b"* 1 EXISTS" in wire.received()
    locking.kinds.clear()
    locking.lock(place.store.entry(place.name("INBOX")).id)
    wire.send(b"c EXAMINE INBOX\r\n")
    assert b"* 1 EXISTS" in wire.received()
    assert locking.kinds == []
    locking.unlock()
    place.deliver("INBOX", content("2"))
    wire.send(b"d EXAMINE INBOX\r\n")
    assert b"* 2 EXISTS" in wire.received()
