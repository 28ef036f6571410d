"""The servers in one process: listens, and lets the sessions end at a stop."""

import logging
import os
import socket
import stat
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, cast

from attrs import define, evolve, field
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IOpenSSLServerConnectionCreator
from twisted.protocols.tls import TLSMemoryBIOFactory

import imap.protocol
import imap.settings
import lmtp.protocol
import lmtp.settings
import pop3.protocol
import pop3.settings
from imap.managesieve.managesettings import Settings as ManageSieveSettings
from store.accounts.networks import Networks
from store.accounts.throttle.sharedcounts import Counts
from store.net.admission import AdmissionControl, AdmissionSettings
from store.net.authentication import Authenticator
from store.net.proxies.proxyconnections import ProxiedFactory
from store.net.streamfactory import StreamFactory
from store.store import Store
from tools.cli.later import Later
from tools.cli.options import Config
from tools.front.settings import Settings as FrontSettings
from tools.http.settings import Settings as HttpSettings
from tools.http.webpages import Pages
from tools.server.process.accepting import Port, Spares, UnixPort
from tools.server.process.sockets import BACKLOG, HTTP, Listening, Purpose
from tools.server.tls.contexts import Certificates
from tools.serversettings import ManageSieveListen

log = logging.getLogger(__name__)

SIEVE_PORT = 4190       # of ManageSieve, if a URL names none (RFC 5804 §3)
CHECK = 0.05            # seconds between two looks whether all sessions have ended

SETTINGS: dict[str, type[AdmissionSettings]] = {
    "imap": imap.settings.Settings, "pop3": pop3.settings.Settings, "lmtp": lmtp.settings.Settings,
    "managesieve": ManageSieveSettings, HTTP: HttpSettings}

# Only a process that serves them loads twisted.web.
_front = Later("tools.front.protocol:factory")
_http = Later("tools.http.protocol:factory")
_managesieve = Later("imap.managesieve.protocol:factory")


@define(eq=False)
class Server:
    """What one process serves. `reactor` is Twisted's; `certificates` those of each server; `counts` what all processes
    count together; `pages`: what HTTP has."""

    reactor: Any
    store: Store
    config: Config
    certificates: Mapping[str, Certificates]
    counts: Counts | None = None
    pages: Pages = field(factory=Pages)
    ports: list[Any] = field(factory=list, init=False)
    kinds: dict[tuple[str, bool, Purpose], StreamFactory] = field(factory=dict, init=False)
    admission: dict[str, AdmissionControl] = field(factory=dict, init=False)
    spares: Spares = field(factory=Spares, init=False)

    @property
    def factories(self) -> list[StreamFactory]:
        """Those that connections come to."""
        return list(self.kinds.values())

    def listen(self, sockets: Sequence[Listening]) -> None:
        """Begin to serve on these sockets."""
        for listening in sockets:
            kind = (listening.server, listening.tls, listening.purpose)
            if kind not in self.kinds:
                self.kinds[kind] = self._factory(*kind)
            self.ports.append(self._port(listening, self.kinds[kind]))
            listening.socket.listen(BACKLOG)            # Twisted has set it to less

    def follow(self, config: Config, sections: Collection[str]) -> None:
        """Have connections that come from now on obey this configuration, as far as those sections differ from what was
        before. Raises Failure."""
        self.config = config
        for kind, factory in self.kinds.items():
            if kind[0] in sections:
                factory.start = self._factory(*kind).start
                if kind[0] in SETTINGS:
                    factory.admission.follow(self._settings(kind[0]))

    def _factory(self, server: str, tls: bool, purpose: Purpose) -> StreamFactory:
        if server == "front":
            return cast(StreamFactory, _front(self.store, self.config.settings("front", FrontSettings), self.reactor,
                                              self.counts))
        if server == HTTP:
            return cast(StreamFactory, _http(self.pages, self.config.settings(HTTP, HttpSettings), self.reactor,
                                             self._door(HTTP), implicit_tls=tls))
        certificates = self.certificates[server]
        if server == "imap":
            return imap.protocol.factory(self.store, self._imap_settings(), self.reactor, certificates,
                                         implicit_tls=tls, admission=self._door("imap"))
        if server == "managesieve":
            return cast(StreamFactory, _managesieve(
                self.store, self.config.settings(server, ManageSieveSettings), self.reactor, certificates,
                implicit_tls=tls, admission=self._door(server)))
        if server == "pop3":
            return pop3.protocol.factory(self.store, self.config.settings("pop3", pop3.settings.Settings),
                                         self.reactor, certificates, implicit_tls=tls, admission=self._door("pop3"))
        settings = self.config.settings("lmtp", lmtp.settings.Settings)
        if purpose is Purpose.VERIFICATION:
            return lmtp.protocol.verification_factory(self.store, settings, self.reactor,
                                                      AdmissionControl.from_settings("verification", settings,
                                                                                     self.counts))
        return lmtp.protocol.factory(self.store, settings, self.reactor, certificates, implicit_tls=tls,
                                     guaranteed=purpose is Purpose.GUARANTEED, admission=self._door("lmtp"))

    def _imap_settings(self) -> imap.settings.Settings:
        """With the place of ManageSieve, where that is served here."""
        settings = self.config.settings("imap", imap.settings.Settings)
        port = self.config.settings("managesieve", ManageSieveListen).port
        host = self.store.settings.host or self.store.recorder.server
        if settings.sieve_url or not port:
            return settings
        return evolve(settings, sieve_url=f"sieve://{host}" + ("" if port == SIEVE_PORT else f":{port}"))

    def _door(self, server: str) -> AdmissionControl:
        """The one of all listeners of that server."""
        if server not in self.admission:
            made = self.admission[server] = AdmissionControl.from_settings(server, self._settings(server), self.counts)
            made.familiar = Authenticator.of(self.store).is_familiar
        return self.admission[server]

    def _settings(self, server: str) -> AdmissionSettings:
        return self.config.settings(server, SETTINGS[server])

    def _port(self, listening: Listening, factory: StreamFactory) -> Any:
        handle = listening.socket.fileno()
        served: Any = factory
        if listening.tls:
            shown = cast(IOpenSSLServerConnectionCreator, self.certificates[listening.server])
            served = TLSMemoryBIOFactory(shown, False, served)
        proxies = self._settings(listening.server).proxy_networks if listening.server in SETTINGS else ()
        served = ProxiedFactory(served, Networks.parse(proxies), self.reactor)
        port: Any
        if listening.socket.family == socket.AF_UNIX:
            port = UnixPort._fromListeningDescriptor(self.reactor, handle, served)  # type: ignore[no-untyped-call]
            port.mode = stat.S_IMODE(os.stat(listening.socket.getsockname()).st_mode)
        else:
            port = Port._fromListeningDescriptor(self.reactor, handle,              # type: ignore[no-untyped-call]
                                                 listening.socket.family, served)
        port.begin(self.spares, factory.admission.limits)
        return port

    async def drain(self, time: float, stopping: Callable[[], bool], *, leave: bool = False) -> None:
        """Let nobody new in, and wait until all who have logged in are gone: so long at most, or until a stop. `leave`
        the sockets to another server, which takes who is new."""
        deadline = self.reactor.seconds() + time
        while leave and self.ports:
            await self.ports.pop().stopListening()
        for factory in self.factories:
            factory.drain()
        while self._entered() and self.reactor.seconds() < deadline and not stopping():
            await self._pause(CHECK)

    def _entered(self) -> bool:
        return any(stream.entered for factory in self.factories for stream in factory.streams)

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
