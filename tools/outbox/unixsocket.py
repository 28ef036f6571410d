r"""A UNIX socket on which a program listens: a batch is a line of JSON for each event, and an empty line; when the
program has them it answers with a line, OK. Anything else it says is a refusal, and the reason."""

from collections.abc import Sequence
from typing import Any, cast

from attrs import define, field
from twisted.internet import endpoints
from twisted.internet.defer import Deferred
from twisted.protocols.basic import LineReceiver
from twisted.python.failure import Failure

from store.events.outboxtable import Parcel
from tools.outbox.destination import Down, Refused, lines
from tools.outbox.outboxsettings import Settings

_ENDPOINTS: Any = endpoints         # it has no types
MAX_ANSWER = 1000           # octets of an answer
OK = b"OK"


class _Conversation(LineReceiver):
    """One connection."""

    transport: Any
    delimiter = b"\n"
    MAX_LENGTH = MAX_ANSWER

    def __init__(self) -> None:
        self.answer: Deferred[bytes] | None = None

    def ask(self, octets: bytes) -> "Deferred[bytes]":
        """The answer to a batch."""
        self.answer = Deferred()
        self.transport.write(octets)
        return self.answer

    def lineReceived(self, line: bytes) -> None:
        """See LineReceiver."""
        answer, self.answer = self.answer, None
        if answer is not None and not answer.called:
            answer.callback(line.strip())

    def connectionLost(self, reason: Failure | None = None) -> None:
        """See Protocol."""
        self.connected = 0          # Twisted leaves it as it was
        answer, self.answer = self.answer, None
        if answer is not None and not answer.called:
            answer.errback(Down("the connection was closed before an answer came"))


@define(eq=False)
class UnixSocket:
    """A connection is kept from one batch to the next."""

    settings: Settings
    reactor: Any
    _connection: _Conversation | None = field(default=None, init=False)

    async def send(self, batch: Sequence[Parcel]) -> None:
        """See Destination. Raises Down, Refused."""
        kept, self._connection = self._connection, None
        if kept is None or not kept.connected:
            try:
                kept = cast(_Conversation, await _ENDPOINTS.connectProtocol(_ENDPOINTS.UNIXClientEndpoint(
                    self.reactor, str(self.settings.path), timeout=self.settings.timeout), _Conversation()))
            except Exception as error:          # of the reactor's: no such file, nobody listens, no right
                raise Down(f"{self.settings.path}: {error}") from error
        try:
            answer = await kept.ask(lines(batch) + b"\n")
        except BaseException:
            kept.transport.abortConnection()
            raise
        self._connection = kept
        if answer != OK:
            raise Refused(answer.decode(errors="replace"))

    def close(self) -> None:
        """End the connection."""
        if self._connection is not None and self._connection.connected:
            self._connection.transport.loseConnection()


def of_settings(settings: Settings, reactor: Any) -> UnixSocket:
    """The receiver's socket."""
    return UnixSocket(settings, reactor)
