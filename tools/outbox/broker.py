"""A message broker, by AMQP 0-9-1. Each event is a message of its own, persistent and mandatory; the broker confirms it
(publisher confirms) when it has it, and returns it where no queue takes it."""

import logging
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote, urlsplit

import pika
from attrs import define, field
from pika.adapters.twisted_connection import TwistedProtocolConnection
from pika.exceptions import NackError, UnroutableError
from twisted.internet import endpoints
from twisted.internet.defer import gatherResults
from twisted.python.failure import Failure

from mboxlist import privatefiles
from store.events.outboxtable import Parcel
from tools.outbox.destination import Down, Refused
from tools.outbox.outboxsettings import Settings
from tools.outbox.trust import client_options

_ENDPOINTS: Any = endpoints         # it has no types
logging.getLogger("pika").setLevel(logging.CRITICAL)        # it logs each event that is returned; `Sending` says why


@define(eq=False)
class Broker:
    """The connection and its channel are kept from one batch to the next."""

    settings: Settings
    reactor: Any
    _connection: Any = field(default=None, init=False)
    _channel: Any = field(default=None, init=False)
    _lost: BaseException | None = field(default=None, init=False)       # why the connection ended

    async def send(self, batch: Sequence[Parcel]) -> None:
        """See Destination. Raises Down, Refused."""
        try:
            if self._channel is None or not self._channel.is_open:
                await self._connect()
            await gatherResults([self._publish(parcel) for parcel in batch], consumeErrors=True)
        except Exception as error:
            reason = getattr(getattr(error, "subFailure", None), "value", error)
            if isinstance(reason, UnroutableError):
                raise Refused("no queue takes it") from error
            if isinstance(reason, NackError):
                raise Refused("the broker does not take it") from error
            reason = self._lost or reason
            self._let_go()
            raise Down(f"{type(reason).__name__}: {reason}") from error
        except BaseException:
            self._let_go()
            raise

    def _publish(self, parcel: Parcel) -> Any:
        properties = pika.BasicProperties(content_type="application/json", delivery_mode=2, message_id=parcel.id,
                                          type=str(parcel.body["event"]), app_id="onecopy")
        key = str(parcel.body["event"]) if self.settings.exchange else self.settings.queue
        return self._channel.basic_publish(self.settings.exchange, key, parcel.document.encode(), properties,
                                           mandatory=True)

    async def _connect(self) -> None:
        self._let_go()
        parameters = pika.URLParameters(self._url())
        endpoint: Any = _ENDPOINTS.HostnameEndpoint(self.reactor, parameters.host.encode(), parameters.port,
                                         timeout=self.settings.timeout)
        if self.settings.kind == "amqps":
            endpoint = _ENDPOINTS.wrapClientTLS(client_options(parameters.host, self.settings), endpoint)
        self._connection = await _ENDPOINTS.connectProtocol(endpoint, self._protocol(parameters))
        await self._connection.ready
        self._channel = await self._connection.channel()
        await self._channel.confirm_delivery()

    def _protocol(self, parameters: Any) -> Any:
        """One that says why it was lost, which pika tells nobody: a certificate that is not good."""
        made: Any = TwistedProtocolConnection(parameters, self.reactor)
        lost = made.connectionLost

        def connection_lost(reason: Failure) -> None:
            self._lost = reason.value
            lost(reason)

        made.connectionLost, self._lost = connection_lost, None
        return made

    def _url(self) -> str:
        """With the password of the secret; pika takes no user without one. Raises OSError, UnicodeDecodeError."""
        parts = urlsplit(self.settings.to)
        if self.settings.secret is None:
            return self.settings.to
        password = privatefiles.read_named(self.settings.secret).decode().strip()
        host = parts.netloc.rpartition("@")[2]
        return parts._replace(netloc=f"{parts.username or 'guest'}:{quote(password, safe='')}@{host}").geturl()

    def _let_go(self) -> None:
        connection, self._connection, self._channel = self._connection, None, None
        if connection is not None and connection.transport is not None:
            connection.transport.abortConnection()

    def close(self) -> None:
        """End the connection."""
        self._let_go()


def of_settings(settings: Settings, reactor: Any) -> Broker:
    """The receiver's broker."""
    return Broker(settings, reactor)

