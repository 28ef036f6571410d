"""tools/server/process/accepting.py: which process takes a connection for which several wait."""

import socket
from collections.abc import Iterator
from typing import Any

import pytest
from attrs import define, field
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.testing import MemoryReactorClock

from tools.server.process.accepting import LEFT, Port, Spares


@define(eq=False)
class Process:
    """One of several that wait at a socket; `ahead`: whether it has more connections than another one."""

    port: Port
    clock: Any
    ahead: bool = False
    taken: list[Protocol] = field(factory=list)

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
    made = Process(port, clock)
    port.begin(Spares(), lambda: made.ahead)
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


def test_it_stops_in_the_middle_of_many_when_it_is_ahead(listening: socket.socket, process: Process) -> None:
    with come(listening), come(listening), come(listening):
        process.port._most = 10
        count = iter([False, False, True])
        process.port._is_ahead = lambda: next(count)
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
