"""The servers in one process: listens, and lets the sessions end at a stop."""

import logging
import os
import socket
import stat
from collections.abc import Sequence
from typing import Any, cast

from attrs import define, field
from twisted.internet import tcp, unix
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IOpenSSLServerConnectionCreator
from twisted.protocols.tls import TLSMemoryBIOFactory
from twisted.python.failure import Failure as TwistedFailure

import imap.protocol
import imap.settings
import lmtp.protocol
import lmtp.settings
import pop3.protocol
import pop3.settings
from store.net.limits import ConnectionLimits
from store.net.networks import Networks
from store.net.proxied import ProxiedFactory
from store.net.stream import StreamFactory
from store.store import Store
from tools.config import Config
from tools.sockets import BACKLOG, Listening, Purpose
from tools.tls import Certificates

log = logging.getLogger(__name__)

CHECK = 0.05            # seconds between two looks whether all sessions have ended


class _UnixPort(unix.Port):
    """Leaves the socket's name on disk alone: it belongs to the process that made it."""

    def connectionLost(self, reason: TwistedFailure) -> None:
        tcp.Port.connectionLost(self, reason)       # type: ignore[no-untyped-call]


@define(eq=False)
class Server:
    """What one process serves. `reactor` is Twisted's."""

    reactor: Any
    store: Store
    config: Config
    certificates: Certificates
    relays: Certificates                        # the same for LMTP, which may ask for those of its clients
    ports: list[Any] = field(factory=list, init=False)
    factories: list[StreamFactory] = field(factory=list, init=False)
    _limits: ConnectionLimits | None = field(default=None, init=False)      # of all LMTP listeners together

    def listen(self, sockets: Sequence[Listening]) -> None:
        """Begin to serve on these sockets."""
        factories: dict[tuple[str, bool, Purpose], StreamFactory] = {}
        for listening in sockets:
            kind = (listening.server, listening.tls, listening.purpose)
            if kind not in factories:
                factories[kind] = self._factory(*kind)
            self.ports.append(self._port(listening, factories[kind]))
            listening.socket.listen(BACKLOG)            # Twisted has set it to less
        self.factories = list(factories.values())

    def _factory(self, server: str, tls: bool, purpose: Purpose) -> StreamFactory:
        if server == "imap":
            return imap.protocol.factory(self.store, self.config.settings("imap", imap.settings.Settings),
                                         self.reactor, self.certificates, implicit_tls=tls)
        if server == "pop3":
            return pop3.protocol.factory(self.store, self.config.settings("pop3", pop3.settings.Settings),
                                         self.reactor, self.certificates, implicit_tls=tls)
        settings = self.config.settings("lmtp", lmtp.settings.Settings)
        if purpose is Purpose.VERIFICATION:
            return lmtp.protocol.verification_factory(self.store, settings, self.reactor)
        self._limits = self._limits or lmtp.protocol.connection_limits(settings)
        return lmtp.protocol.factory(self.store, settings, self.reactor, self.relays, implicit_tls=tls,
                                     guaranteed=purpose is Purpose.GUARANTEED, limits=self._limits)

    def _port(self, listening: Listening, factory: StreamFactory) -> Any:
        handle = listening.socket.fileno()
        served: Any = factory
        if listening.tls:
            shown = self.relays if listening.server == "lmtp" else self.certificates
            served = TLSMemoryBIOFactory(cast(IOpenSSLServerConnectionCreator, shown), False, served)
        if listening.server == "lmtp" and (proxies := self._proxies()):
            served = ProxiedFactory(served, proxies, self.reactor)
        if listening.socket.family == socket.AF_UNIX:
            port = _UnixPort._fromListeningDescriptor(     # type: ignore[no-untyped-call]
                self.reactor, handle, served)
            port.mode = stat.S_IMODE(os.stat(listening.socket.getsockname()).st_mode)
            port.startListening()
            return port
        return self.reactor.adoptStreamPort(handle, listening.socket.family, served)

    def _proxies(self) -> Networks:
        return Networks.parse(self.config.settings("lmtp", lmtp.settings.Settings).proxy_networks)

    async def stop(self, time: float) -> None:
        """Accept no more, tell the sessions, and wait until they have ended; cut off those that take longer."""
        for port in self.ports:
            await port.stopListening()
        deadline = self.reactor.seconds() + time
        for factory in self.factories:
            factory.stop()
        while self.open_connections() and self.reactor.seconds() < deadline:
            await self._pause(CHECK)
        if left := self.open_connections():
            log.warning("%d connections are cut off", left)
            for factory in self.factories:
                for stream in tuple(factory.streams):
                    stream.abort()
            await self._pause(CHECK)

    def open_connections(self) -> int:
        """How many connections there are now."""
        return sum(len(factory.streams) for factory in self.factories)

    def _pause(self, seconds: float) -> "Deferred[None]":
        passed: Deferred[None] = Deferred()
        self.reactor.callLater(seconds, passed.callback, None)
        return passed
