"""Connections from proxies: the PROXY header comes off, and what is inside sees the address that it tells.

This is the outermost layer: the header comes also before TLS. From an address that is not a proxy's a header ends the
connection, since it is a proxy that nobody named, or somebody who wants to be taken for another one.
"""

from typing import Any, cast

from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.interfaces import (
    IAddress,
    IHalfCloseableProtocol,
    IHandshakeListener,
    IProtocol,
    IProtocolFactory,
    ITransport,
)
from twisted.internet.protocol import Protocol, connectionDone
from twisted.protocols.policies import ProtocolWrapper, WrappingFactory
from twisted.python.failure import Failure
from zope.interface import implementer

from store.accounts import refusallines
from store.accounts.networks import Networks
from store.net.linestates import Clock
from store.net.proxies.proxyheader import Header, is_begun, parse
from store.net.stream import host

HEADER_TIME = 10.0      # seconds for the whole header
NOT_NAMED = "a PROXY header, and no proxy_networks name that address"


@implementer(IHandshakeListener, IHalfCloseableProtocol)
class Proxied(ProtocolWrapper):
    """One connection of a proxy; there is nothing inside before the header is complete."""

    factory: "ProxiedFactory"
    wrappedProtocol: Any

    def __init__(self, factory: "ProxiedFactory", address: IAddress | None) -> None:
        super().__init__(factory, cast(IProtocol, None))
        self._peer = address
        self._octets = b""
        self._introduced = False
        self._timer: Any = None

    def makeConnection(self, transport: ITransport) -> None:
        Protocol.makeConnection(self, transport)    # type: ignore[no-untyped-call]
        self._timer = self.factory.clock.callLater(HEADER_TIME, self._refuse, "the PROXY header does not come")

    @property
    def proxy(self) -> str:
        """The proxy's own address, if it has told another one."""
        return host(cast(Any, self.transport).getPeer()) if self._introduced else ""

    def getPeer(self) -> IAddress | None:
        """Where the connection comes from."""
        return self._peer

    def dataReceived(self, data: bytes) -> None:
        if self.wrappedProtocol is not None:
            self.wrappedProtocol.dataReceived(data)
        elif self._timer is not None:
            self._octets += data
            try:
                header = parse(self._octets)
            except ValueError as error:
                self._refuse(str(error))
            else:
                if header is not None:
                    self._begin(header)

    def handshakeCompleted(self) -> None:
        """TLS begun with STARTTLS is between the socket and this layer."""
        if IHandshakeListener.providedBy(self.wrappedProtocol):
            self.wrappedProtocol.handshakeCompleted()

    def readConnectionLost(self) -> None:
        """The proxy sends no more; what is inside may still have something to say, but not under TLS.

        (A wrapper says to provide whatever its transport does, which is this object.)
        """
        inside = self.wrappedProtocol
        if IHalfCloseableProtocol.providedBy(inside) and not isinstance(inside, ProtocolWrapper):
            inside.readConnectionLost()
        else:
            cast(Any, self.transport).loseConnection()

    def writeConnectionLost(self) -> None:
        """Only we could have ended our side, and do not."""

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._stop_timer()
        if self.wrappedProtocol is not None:
            super().connectionLost(reason)          # type: ignore[no-untyped-call]

    def _begin(self, header: Header) -> None:
        self._stop_timer()
        rest, self._octets = self._octets[header.length:], b""
        if header.source is not None:
            self._introduced = True
            kind: Any = IPv4Address if header.source.address.version == 4 else IPv6Address
            self._peer = kind("TCP", str(header.source.address), header.source.port)
        self.wrappedProtocol = self.factory.without_header(self._peer)
        super().makeConnection(self.transport)      # type: ignore[no-untyped-call]
        if rest:
            self.wrappedProtocol.dataReceived(rest)

    def _refuse(self, reason: str) -> None:
        self._stop_timer()
        refusallines.refused(refusallines.PROXY, host(cast(Any, self.transport).getPeer()), "", "any", reason)
        cast(Any, self.transport).abortConnection()

    def _stop_timer(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None and timer.active():
            timer.cancel()


class ProxiedFactory(WrappingFactory[Proxied]):
    """Around `served`: each connection from `proxies` must begin with a PROXY header, and no other one may."""

    noisy = False

    def __init__(self, served: IProtocolFactory, proxies: Networks, clock: Clock) -> None:
        super().__init__(served)                    # type: ignore[no-untyped-call]
        self.proxies = proxies
        self.clock = clock

    def buildProtocol(self, addr: IAddress | None) -> Any:
        if self.proxies and host(addr) in self.proxies:
            return Proxied(self, addr)
        return self.without_header(addr)

    def without_header(self, addr: IAddress | None) -> Any:
        """What is served, with an eye on the first octets alone: after these it costs nothing."""
        made: Any = self.wrappedFactory.buildProtocol(addr)
        octets = b""

        def first(data: bytes) -> None:
            nonlocal octets
            octets += data
            begun = is_begun(octets)
            if begun:
                refusallines.refused(refusallines.PROXY, host(addr), "", "any", NOT_NAMED)
                vars(made)["dataReceived"] = lambda data: None
                made.transport.abortConnection()
            elif begun is not None:
                del vars(made)["dataReceived"]
                made.dataReceived(octets)

        vars(made)["dataReceived"] = first
        return made
