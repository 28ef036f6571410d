"""Addresses of receivers, by name: looked up in threads for which nobody waits.

Twisted looks names up in the threads of its own pool, which it waits for when it stops; and a name server that does not
answer has getaddrinfo(3) wait for a long time. These threads end with the process, whatever they wait for.
"""

import socket
from collections.abc import Sequence
from threading import Thread
from typing import Any

from attrs import define, field
from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.interfaces import IHostnameResolver, IHostResolution
from zope.interface import implementer

MOST = 16                   # look-ups that are under way; with more, a name has no address now


@implementer(IHostResolution)
@define(eq=False)
class LookUp:
    """One that is under way; `receiver` is told (IResolutionReceiver)."""

    name: str
    receiver: Any
    cancelled: bool = field(default=False, init=False)

    def cancel(self) -> None:
        """See IHostResolution."""
        self.cancelled = True


@implementer(IHostnameResolver)
@define(eq=False)
class HostLookUps:
    """For TCP."""

    reactor: Any
    _under_way: int = field(default=0, init=False)

    def resolveHostName(self, resolutionReceiver: Any, hostName: str, portNumber: int = 0,
                        addressTypes: Sequence[Any] | None = None, transportSemantics: str = "TCP") -> LookUp:
        """See IHostnameResolver."""
        look_up = LookUp(hostName, resolutionReceiver)
        resolutionReceiver.resolutionBegan(look_up)
        if self._under_way >= MOST:
            self.reactor.callLater(0, self._tell, look_up, [])
            return look_up
        self._under_way += 1
        wanted = (IPv4Address, IPv6Address) if addressTypes is None else tuple(addressTypes)
        Thread(target=self._look, args=(look_up, portNumber, wanted), name="outbox-lookup", daemon=True).start()
        return look_up

    def _look(self, look_up: LookUp, port: int, wanted: tuple[Any, ...]) -> None:
        try:
            infos = socket.getaddrinfo(look_up.name, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            infos = []
        kinds = {socket.AF_INET: IPv4Address, socket.AF_INET6: IPv6Address}
        found = [kinds[family]("TCP", *place) for family, _, _, _, place in infos if kinds.get(family) in wanted]
        self.reactor.callFromThread(self._ended, look_up, found)

    def _ended(self, look_up: LookUp, found: list[Any]) -> None:
        self._under_way -= 1
        self._tell(look_up, found)

    def _tell(self, look_up: LookUp, found: list[Any]) -> None:
        if not look_up.cancelled:
            for address in found:
                look_up.receiver.addressResolved(address)
            look_up.receiver.resolutionComplete()


def install(reactor: Any) -> None:
    """Have every name to which this reactor connects looked up so."""
    reactor.installNameResolver(HostLookUps(reactor))
