"""The connections of one process: told in pages, ended politely, and cut off where that does not help."""

from types import SimpleNamespace
from typing import Any

import pytest
from twisted.internet.task import Clock

from store.net.linestates import Stopping
from store.net.stream import Stream
from store.net.streamfactory import StreamFactory
from tests.support.conversations.wire import Wire
from tools.server.control.connectionlist import FAREWELL, MOST_IDS, PAGE, PATIENCE, Connections
from tools.server.process.sockets import Purpose


class Session:
    """Reads lines, and says what it is told to say at a stop; with `busy` it never stands between two commands."""

    busy = False

    def __init__(self, stream: Stream) -> None:
        self.stream = stream

    async def run(self) -> None:
        self.stream.admit()
        try:
            while True:
                await self.stream.line(100, 1000, idle=not self.busy)
        except Stopping:
            self.stream.write(self.stream.farewell.encode() + b"\r\n")

    def describe(self) -> dict[str, str]:
        return {"state": "busy" if self.busy else "ready", "mailbox": "user/alice/INBOX", "client": "", "user": ""}


class Busy(Session):
    busy = True


class Place:
    """A server with these kinds of listeners."""

    def __init__(self, **sessions: Any) -> None:
        self.clock = Clock()
        self.factories = {name: StreamFactory(session, self.clock) for name, session in sessions.items()}
        kinds = {(name, False, Purpose.MAIL): factory for name, factory in self.factories.items()}
        kinds[("lmtp", False, Purpose.VERIFICATION)] = StreamFactory(Session, self.clock)
        self.connections = Connections(SimpleNamespace(kinds=kinds), "all-1", self.clock)     # type: ignore[arg-type]

    def connect(self, name: str) -> Wire:
        return Wire(self.factories[name], self.clock)

    def rows(self) -> list[dict[str, Any]]:
        found, after = [], 0
        while after is not None:
            page = self.connections.tell({"after": after})
            assert len(page["rows"]) <= PAGE
            found += page["rows"]
            after = page["next"]
        return found


def test_pages_have_each_connection_once() -> None:
    place = Place(imap=Session, pop3=Session)
    for number in range(2 * PAGE + 1):
        place.connect("imap" if number % 3 else "pop3")
    rows = place.rows()
    assert len({row["id"] for row in rows}) == len(rows) == 2 * PAGE + 1
    assert sum(row["protocol"] == "pop3" for row in rows) == -(-(2 * PAGE + 1) // 3)


def test_a_page_that_is_just_full_is_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(imap=Session)
    for _ in range(PAGE):
        place.connect("imap")
    assert place.connections.tell({})["next"] is None


def test_octets_and_times_are_those_of_the_wire() -> None:
    place = Place(imap=Session)
    wire = place.connect("imap")
    place.clock.advance(100)
    wire.send(b"12345\r\n")
    place.clock.advance(7)
    row, = place.rows()
    assert (row["received"], row["sent"], row["idle"], row["state"]) == (7, 0, 7, "ready")
    assert row["logged_in"] is None


def test_who_stands_between_two_commands_is_told() -> None:
    place = Place(imap=Session)
    wire, other = place.connect("imap"), place.connect("imap")
    row = place.rows()[0]
    assert place.connections.end({"ids": [row["id"], "1-1"]}) == {"ended": [row["id"]]}
    assert wire.received() == FAREWELL.encode() + b"\r\n" and wire.closed
    assert other.received() == b"" and not other.closed
    place.clock.advance(PATIENCE + 1)                       # nobody is there to be cut off
    assert not other.closed


def test_who_is_in_the_middle_of_something_is_cut_off() -> None:
    place = Place(imap=Busy)
    wire = place.connect("imap")
    place.connections.end({"ids": [place.rows()[0]["id"]]})
    assert not wire.closed
    place.clock.advance(PATIENCE)
    assert wire.closed and wire.received() == b""


@pytest.mark.parametrize("request_", [{}, {"ids": "x"}, {"ids": ["x"] * (MOST_IDS + 1)}, {"ids": [[]]}])
def test_requests_that_make_no_sense(request_: dict[str, Any]) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        Place(imap=Session).connections.end(request_)


def test_what_is_counted_is_told_for_each_server() -> None:
    place = Place(imap=Session, pop3=Session)
    place.connect("imap")
    place.factories["imap"].admission.limits.total = 1
    turned_away = place.connect("imap")
    assert turned_away.closed
    found = place.connections.counted()
    assert found["imap"]["connections"] == 1 and found["imap"]["connections turned away"] == 1
    nothing = {"open": 0, "octets received": 0, "octets sent": 0}
    assert found["pop3"] == nothing and found["verification"] == nothing
