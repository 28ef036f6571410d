"""tools/server/process/accepting.py: which process takes a connection for which several wait."""

import socket
from collections.abc import Iterator
from typing import Any, cast

import pytest
from attrs import define, field
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.testing import MemoryReactorClock

from store.accounts.throttle.sharedcounts import Counts
from store.net.limits import ConnectionLimits
from tools.server.process import accepting
from tools.server.process.accepting import AGAIN, LEFT, Port, Spares


@define(eq=False)
class Process:
    """One of several that wait at a socket."""

    port: Port
    clock: Any
    limits: ConnectionLimits
    others: int | None = None           # how many connections that one of the other processes has that has the fewest
    taken: list[Protocol] = field(factory=list)
    shown: int | None = None            # what it shows them of its own

    @property
    def ahead(self) -> bool:
        """Whether it has more connections than another one."""
        return self.others is not None

    @ahead.setter
    def ahead(self, is_so: bool) -> None:
        self.limits.open, self.others = (1, 0) if is_so else (0, None)

    # What all count together

    def show_open(self, server: str, connections: int | None) -> None:
        self.shown = connections

    def fewest_open(self, server: str) -> int | None:
        return self.others

    @property
    def waits(self) -> bool:
        """Whether the kernel is to wake it when somebody comes."""
        return self.port in self.clock.getReaders()


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0), backlog=50) as made:
        made.setblocking(False)
        yield made


@pytest.fixture
def process(listening: socket.socket) -> Iterator[Process]:
    class Taking(Factory):
        noisy = False

        def buildProtocol(self, addr: Any) -> Protocol:
            made.taken.append(Protocol())
            return made.taken[-1]

    clock: Any = MemoryReactorClock()   # type: ignore[no-untyped-call]
    port = Port._fromListeningDescriptor(clock, listening.fileno(), socket.AF_INET, Taking())
    made = Process(port, clock, limits := ConnectionLimits(1000, 1000, server="imap"))
    limits.shared = cast(Counts, made)
    port.begin(Spares(), limits)
    yield made
    port.stopListening()
    for each in made.taken:
        each.transport.abortConnection()


def come(listening: socket.socket) -> socket.socket:
    return socket.create_connection(listening.getsockname())


def test_who_is_not_ahead_takes_it_at_once(listening: socket.socket, process: Process) -> None:
    with come(listening):
        process.port.doRead()
    assert len(process.taken) == 1 and process.waits


def test_who_is_ahead_leaves_it_to_another(listening: socket.socket, process: Process) -> None:
    process.ahead = True
    with come(listening):
        process.port.doRead()
        assert not process.taken and not process.waits         # or the kernel would wake it again and again
        taken, _ = listening.accept()
        process.clock.advance(LEFT)
        assert not process.taken and process.waits
        taken.close()
    with come(listening):                                       # nor does it take the next one for that
        process.port.doRead()
        assert not process.taken


def test_what_no_other_takes_waits_no_longer(listening: socket.socket, process: Process) -> None:
    process.ahead = True
    with come(listening):
        process.port.doRead()
        process.clock.advance(LEFT)
    assert len(process.taken) == 1 and process.waits


def test_it_stops_in_the_middle_of_many_when_it_is_ahead(
        listening: socket.socket, process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    with come(listening), come(listening), come(listening):
        process.port._most = 10
        count = iter([False, False, True])
        monkeypatch.setattr(ConnectionLimits, "is_ahead", lambda _: next(count))
        process.port.doRead()
        assert len(process.taken) == 2 and not process.waits
        process.clock.advance(LEFT)
        assert len(process.taken) == 3 and process.waits


def test_a_port_that_is_closed_meanwhile_takes_nothing(listening: socket.socket, process: Process) -> None:
    process.ahead = True
    with come(listening):
        process.port.doRead()
        process.port.connectionLost(None)
        process.clock.advance(LEFT)
        assert not process.taken
        listening.accept()[0].close()


def test_who_could_only_refuse_leaves_it_to_one_that_has_room(
        listening: socket.socket, process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    """However few connections it has: what it serves besides may have taken its descriptors. Else all who come would
    hear that there are too few, while another process has many."""
    room = 0
    monkeypatch.setattr(accepting, "descriptors_for_connections", lambda: room)
    with come(listening):
        process.port.doRead()                                   # nobody else serves it: it hears why not
    assert len(process.taken) == 1 and process.shown is None and not process.limits.is_ahead()
    process.others = 500
    with come(listening):
        process.port.doRead()
        assert len(process.taken) == 1 and not process.waits
        listening.accept()[0].close()
        process.clock.advance(AGAIN)
        assert len(process.taken) == 1 and process.waits
    with come(listening):                                       # that one is busy, or full now, too
        process.port.doRead()
        room = 1 << 20
        process.clock.advance(AGAIN)
    assert len(process.taken) == 2 and process.shown == 0 and not process.limits.is_ahead()
