"""A web hook: a batch is a POST with a JSON array. A status of 2xx says that the receiver has it. 408, 425, 429 and 5xx
say that it is busy; every other one that it does not take this. No redirect is followed.

With a secret the request has `X-Onecopy-Signature: sha256=` and the HMAC (RFC 2104) of its body, in hexadecimal. The
certificate of https is verified; `http` is for what listens on this machine.
"""

import hashlib
import hmac
from collections.abc import Sequence
from typing import Any

from attrs import define
from twisted.internet.defer import Deferred, succeed
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from twisted.web import client
from twisted.web.http_headers import Headers
from twisted.web.iweb import IBodyProducer, IPolicyForHTTPS
from zope.interface import implementer

from mboxlist import privatefiles
from store import VERSION
from store.events.outboxtable import Parcel
from tools.outbox.destination import Down, Refused
from tools.outbox.outboxsettings import Settings
from tools.outbox.trust import client_options

_CLIENT: Any = client            # it has no types
SIGNATURE = "X-Onecopy-Signature"
BUSY = frozenset({408, 425, 429})       # RFC 9110 §15.5.9, RFC 8470 §5.2, RFC 6585 §4
MOST_SHOWN = 200            # octets of an answer that are kept to be shown
MOST_READ = 65_536          # and read, before the connection is closed


@implementer(IPolicyForHTTPS)
@define(eq=False)
class Verified:
    """Which certificates of https are good."""

    settings: Settings

    def creatorForNetloc(self, hostname: bytes, port: int) -> Any:
        """See IPolicyForHTTPS."""
        return client_options(hostname.decode("ascii"), self.settings)


@implementer(IBodyProducer)
class _Body:
    """Octets that are sent as they are."""

    def __init__(self, octets: bytes) -> None:
        self._octets = octets
        self.length = len(octets)

    def startProducing(self, consumer: Any) -> "Deferred[None]":
        """See IBodyProducer."""
        consumer.write(self._octets)
        return succeed(None)

    def stopProducing(self) -> None:
        """See IBodyProducer."""

    pauseProducing = resumeProducing = stopProducing


class _Answer(Protocol):
    """Reads an answer to its end, and keeps its beginning."""

    transport: Any

    def __init__(self) -> None:
        self.read = b""
        self.octets = 0
        self.done: Deferred[bytes] = Deferred()

    def dataReceived(self, data: bytes) -> None:
        """See Protocol."""
        self.octets += len(data)
        self.read = (self.read + data)[:MOST_SHOWN]
        if self.octets > MOST_READ:
            self.let_go()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """See Protocol."""
        if not self.done.called:
            self.done.callback(self.read)

    def let_go(self) -> None:
        """Read no more, and close the connection."""
        self.transport.loseConnection()


@define(eq=False)
class WebHook:
    """A connection is kept from one batch to the next."""

    settings: Settings
    agent: Any
    pool: Any

    async def send(self, batch: Sequence[Parcel]) -> None:
        """See Destination. Raises Down, Refused."""
        body = f"[{','.join(parcel.document for parcel in batch)}]".encode()
        headers = Headers({"Content-Type": ["application/json"], "User-Agent": [f"onecopy/{VERSION}"]})
        try:
            if self.settings.secret is not None:
                key = privatefiles.read_named(self.settings.secret).strip()
                headers.addRawHeader(SIGNATURE, "sha256=" + hmac.new(key, body, hashlib.sha256).hexdigest())
            response = await self.agent.request(b"POST", self.settings.to.encode(), headers, _Body(body))
            answer = _Answer()
            response.deliverBody(answer)
            try:
                said = await answer.done
            except BaseException:
                answer.let_go()
                raise
        except Exception as error:      # no connection, no such host, a wrong certificate, no HTTP
            raise Down(_reason(error)) from error
        if not 200 <= response.code < 300:
            text = f"status {response.code}: {said.decode(errors='replace')}".strip(": \r\n")
            raise (Down if response.code >= 500 or response.code in BUSY else Refused)(text)

    def close(self) -> None:
        """End the connections."""
        self.pool.closeCachedConnections()


def _reason(error: Exception) -> str:
    """What Twisted wraps: the first of the reasons."""
    reasons = getattr(error, "reasons", None)
    return str(reasons[0].value) if reasons else f"{type(error).__name__}: {error}"


def of_settings(settings: Settings, reactor: Any) -> WebHook:
    """The receiver's."""
    pool = _CLIENT.HTTPConnectionPool(reactor)
    pool.retryAutomatically = False             # whether it is sent again is for `Sending` to say
    agent = _CLIENT.Agent(reactor, Verified(settings), connectTimeout=settings.timeout, pool=pool)
    return WebHook(settings, agent, pool)
