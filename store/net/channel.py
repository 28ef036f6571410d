"""The channel that a connection has: in the clear, or under TLS."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Protocol, cast

from store.net.admission import AdmissionControl
from store.net.linestates import Clock
from store.net.waits import Waits


class Session(Protocol):
    """What a server makes of a connection."""

    async def run(self) -> None:
        """Talk until the conversation is over."""


class Tls(Protocol):
    """Beside what Twisted wants of it to begin TLS."""

    def certificate_names(self, connection: object) -> tuple[str, ...]:
        """See `Stream.certificate_names`; `connection` is OpenSSL's."""

    def channel_binding(self, connection: object, kind: str) -> bytes | None:
        """See `Stream.channel_binding`."""


class Listening(Protocol):
    """What accepts connections: see `StreamFactory`."""

    admission: AdmissionControl
    clock: Clock
    tls: object | None
    implicit_tls: bool
    stopping: bool
    start: Callable[[Any], Session]
    full: bytes

    def gone(self, stream: Any) -> None:
        """A connection has ended."""


class Channel(Waits, ABC):
    """The TLS of a `Stream`; the rest of it reads and writes."""

    def __init__(self, factory: Listening, number: int) -> None:
        super().__init__(factory.admission, factory.clock, number, stopping=factory.stopping)
        self._listening = factory
        self._input = bytearray()
        self._plain = False                             # the transport is a socket without TLS
        self._transport: Any = None
        self.secure = self._handshaking = factory.implicit_tls

    @abstractmethod
    async def _more(self, deadline: float, idle: bool = False) -> None:
        """See `Stream`."""

    @property
    def can_start_tls(self) -> bool:
        """Whether STARTTLS may be offered now."""
        return self._listening.tls is not None and not self.secure

    def start_tls(self) -> None:
        """Begin the TLS handshake. Call it right after writing the go-ahead.

        All octets received in the clear are dropped: they must not count as commands under TLS (RFC 3207 §4.2).
        """
        self._send()
        self._input.clear()
        self.secure = self._handshaking = True
        self._plain = False
        self._transport.startTLS(self._listening.tls)

    @property
    def handshaking(self) -> bool:
        """Whether a TLS handshake is under way, or is to come."""
        return self._handshaking

    async def established(self, timeout: float) -> None:
        """Until the TLS handshake is over; at once without TLS. Raises ConnectionLost, TimedOut, Stopping."""
        deadline = self._clock.seconds() + timeout
        while self._handshaking:
            await self._more(deadline, idle=True)

    @property
    def certificate_names(self) -> tuple[str, ...]:
        """The common name and the DNS names of the client's certificate, in lower case; it has been verified.

        Empty without one, and before the handshake is over (`established`).
        """
        if not self.secure or self._handshaking or self.lost or not hasattr(self._listening.tls, "certificate_names"):
            return ()
        return cast(Tls, self._listening.tls).certificate_names(self._transport.getHandle())

    @property
    def can_bind(self) -> bool:
        """Whether a login can be bound to this channel (RFC 5056)."""
        return self.secure and hasattr(self._listening.tls, "channel_binding")

    def channel_binding(self, kind: str) -> bytes | None:
        """The data of a channel binding by its registered name; None if there is none here."""
        if not self.can_bind or self._handshaking or self.lost:
            return None
        return cast(Tls, self._listening.tls).channel_binding(self._transport.getHandle(), kind)

    def handshakeCompleted(self) -> None:
        self._handshaking = False
        self._resume()
