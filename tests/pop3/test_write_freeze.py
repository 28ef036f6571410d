"""POP3 while the store is held still: maildrops are read, and QUIT waits before it removes anything."""

import pytest

from pop3.settings import Settings
from tests.pop3.place import PASSWORD
from tests.support.faults.held import holding


@pytest.fixture
def held(place, monkeypatch):
    for subject in (b"one", b"two"):
        place.deliver(b"Subject: %b\r\n\r\nx\r\n" % subject)
    with holding(place.store, monkeypatch) as found:
        yield found


def login(place, settings):
    wire = place.connect(place.server(settings))
    wire.send(b"USER mrose\r\nPASS " + PASSWORD + b"\r\n")
    assert wire.received().count(b"+OK") == 3
    return wire


def test_quit_waits(place, held):
    held.begin()
    wire = login(place, Settings())
    wire.send(b"RETR 1\r\nDELE 1\r\n")
    assert b"Subject: one" in wire.received()
    wire.send(b"QUIT\r\n")
    assert wire.received() == b"" and len(place.uids()) == 2
    held.end()
    assert wire.received().startswith(b"+OK") and len(place.uids()) == 1


def test_what_was_read_is_marked_when_the_store_goes_on(place, held):
    held.begin()
    wire = login(place, Settings(mark_seen=True))
    wire.send(b"RETR 2\r\n")
    wire.hang_up()
    assert place.seen() == []
    held.end()
    assert place.seen() == place.uids()[1:]
