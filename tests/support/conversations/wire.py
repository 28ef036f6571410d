"""A client and a server factory joined in memory, on a clock that stands still: no sockets, no time, no threads."""

from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.protocol import Factory
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport


class _Transport(StringTransport):
    """A transport whose peer takes everything at once; a TLS handshake is over at once, and nothing but remembered."""

    def __init__(self, peer: str) -> None:
        super().__init__(IPv4Address("TCP", "127.0.0.1", 143), IPv4Address("TCP", peer, 54321))
        self.tls: object | None = None
        self.protocol: Any = None

    def startTLS(self, context: object, normal: bool = True) -> None:
        self.tls = context
        self.protocol.handshakeCompleted()

    def getHandle(self) -> object | None:
        """The TLS side, were there one."""
        return self.tls


class Wire:
    """One connection to `factory`. `clock` must be the clock that the factory was given."""

    def __init__(self, factory: Factory, clock: Clock, peer: str = "127.0.0.1") -> None:
        self.clock = clock
        self.transport = _Transport(peer)
        self.protocol = self.transport.protocol = factory.buildProtocol(None)
        self.protocol.makeConnection(self.transport)
        if getattr(factory, "implicit_tls", False):
            self.protocol.handshakeCompleted()

    def send(self, data: bytes) -> None:
        """Octets from the client, in one piece; what the server does at once is done on return."""
        if not self.closed:
            self.protocol.dataReceived(data)
            self.settle()

    def settle(self) -> None:
        """Run what was put off to the next turn of the loop."""
        for _ in range(1000):
            calls = [call for call in self.clock.getDelayedCalls() if call.getTime() <= self.clock.seconds()]
            if not calls:
                return
            self.clock.advance(0)

    def received(self) -> bytes:
        """What the server has sent since the last call."""
        data = self.transport.value()
        self.transport.clear()
        return data

    @property
    def closed(self) -> bool:
        """Whether the server has ended the connection."""
        return self.transport.disconnecting or self.transport.disconnected

    def hang_up(self) -> None:
        """The client goes away."""
        from twisted.internet.error import ConnectionLost
        from twisted.python.failure import Failure
        self.transport.disconnected = True
        self.protocol.connectionLost(Failure(ConnectionLost()))
