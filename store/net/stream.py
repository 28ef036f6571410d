"""A connection as the sessions of all three servers see it: lines and octets in, octets out, with limits on both.

A session is a coroutine that reads (`line`, `some`, `wait`) and writes; it is the only reader. Octets that arrive early
wait in a bounded buffer, after which the socket is no longer read. What is written is joined and leaves when the
session next waits, so the answers to pipelined commands share a packet.

`Running` drives the coroutine. It may wait for Deferreds; and for input and for syncs (`Done`), for which a Deferred's
callbacks would cost much of what a short command costs.
"""

import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from time import monotonic
from typing import Any, cast

from attrs import define, field
from twisted.internet import tcp
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.error import ConnectionLost as TwistedConnectionLost
from twisted.internet.interfaces import IHalfCloseableProtocol, IHandshakeListener
from twisted.internet.protocol import connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

from mboxlist.engine.troubles import after_commit
from store.accounts import refusallines
from store.net.channel import Channel, Listening, Session
from store.net.countedconnection import TOO_MUCH_BEFORE_LOGIN
from store.net.linestates import KEPT, ConnectionLost, LimitReached, LineTooLong, Stopping, TimedOut, Wait
from store.net.waits import TURN
from store.observing.loglines import CLIENT, FLUSH
from store.observing.loglines import TURN as TURNS

log = logging.getLogger(__name__)

READ_AHEAD = 256 * 1024     # octets kept for the session before the socket is no longer read
SMALL_ANSWER = 16 << 10     # octets that wait for the end of the answer,
MANY_PIECES = 16            # unless they were written in more pieces
MANY_ANSWERS = 200          # pieces of answers to pipelined commands that may wait to share a packet
LINGER = 30.0               # seconds that a closed connection may take to send what was written,
HANDSHAKE = 5.0             # or, if that is not over, to bring the TLS handshake to its end first


class _Input(tuple[object]):
    """Awaiting it waits until `Running.go_on` or `Running.fail` is called. It is iterated over as any tuple is, without
    a function of Python's: its one item is what the coroutine then yields."""

    __slots__ = ()
    __await__ = tuple.__iter__


_WAITS = object()
INPUT = cast(Awaitable[None], _Input((_WAITS,)))


class Done(Wait[None]):
    """What one coroutine waits for. `Running` goes on with it directly; for all others it is a Deferred."""

    waiting: "Running | None" = None
    waits_for = FLUSH

    def __await__(self) -> Any:
        """The object itself, once: nobody gives it another value than None."""
        return super().__await__() if self.called else iter((self,))

    def end(self, failure: Exception | None = None) -> None:
        """Tell the coroutine that what it waits for is done, or has failed."""
        running = self.waiting
        if running is None:
            self.callback(None) if failure is None else self.errback(failure)
            return
        self.waiting, self.called, self.result = None, True, None
        if failure is None:
            running.go_on()
        else:
            running.fail(failure)


@define(eq=False)
class Running:
    """A coroutine that has been begun. Nobody else may drive it; `failed` gets what it did not catch, and what `ended`
    did not, which is called when it has come to its end. `waited`: seconds, by the clock, for what other than input it
    has waited, by what for."""

    coroutine: Coroutine[Any, None, None]
    failed: Callable[[BaseException], None]
    ended: Callable[[], None] = lambda: None
    waited: dict[str, float] = field(factory=dict)
    clock: Callable[[], float] = monotonic
    _event: Deferred[Any] | None = field(default=None, init=False)      # what it waits for,
    _since: float = field(default=0.0, init=False)
    _step: Callable[[None], Any] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._step = self.coroutine.send

    def go_on(self) -> None:
        """Run the coroutine until it waits again: from its beginning, or when it awaits INPUT and there is some."""
        if self._event is not None:
            what, self._event = getattr(self._event, "waits_for", TURNS), None
            self.waited[what] = self.waited.get(what, 0.0) + self.clock() - self._since
        try:
            try:
                event = self._step(None)
            except StopIteration:
                self.ended()
                return
        except BaseException as error:
            self.failed(error)
            return
        if event is not _WAITS:
            self._wait(event)

    def fail(self, reason: BaseException) -> None:
        """Raise `reason` in the coroutine, at the place where it waits."""
        self._event = None
        try:
            try:
                event = self.coroutine.throw(reason)
            except StopIteration:
                self.ended()
                return
        except BaseException as error:
            self.failed(error)
            return
        if event is not _WAITS:
            self._wait(event)

    def _wait(self, event: Deferred[Any]) -> None:
        self._event, self._since = event, self.clock()
        if isinstance(event, Done):
            event.waiting = self
        else:
            event.addBoth(self._happened)

    def _happened(self, result: object) -> object:
        """Go on, since the Deferred that the coroutine waited for has fired. A result stays with the Deferred, from
        which the coroutine takes it."""
        if isinstance(result, Failure):
            self.fail(cast(BaseException, result.value))
            return None
        self.go_on()
        return result


@implementer(IHandshakeListener, IHalfCloseableProtocol)
class Stream(Channel):
    """One connection. See the module's text."""

    def __init__(self, factory: Listening, number: int) -> None:
        super().__init__(factory, number)
        self._factory = factory
        self._output: list[bytes] = []
        self._paused = self._full = False
        self._ended = False                             # the peer sends no more
        self._woken = False
        self._session: Session | None = None
        self.heard = self.began                         # when octets came last
        self.local = ""

    # What sessions use

    def describe(self) -> Mapping[str, str]:
        """What the session says of itself by its own method `describe`: state, user, mailbox, client."""
        tell: Callable[[], Mapping[str, str]] | None = getattr(self._session, "describe", None)
        return tell() if tell is not None else {}

    async def line(self, limit: int, timeout: float, *, idle: bool = False) -> bytes:
        """The next line, without its line end (CRLF, or a bare LF); `limit` counts its octets.

        `idle` says that the session stands between two commands. Raises LineTooLong (the line has been swallowed to its
        end), ConnectionLost, TimedOut when it is not complete after `timeout` seconds, Stopping when `idle`.
        """
        searched = 0
        deadline = self._clock.seconds() + timeout
        while (end := self._input.find(b"\n", searched)) < 0:
            searched = len(self._input)
            if searched > limit + 1:
                await self._swallow_line(limit, deadline)
            self._begin_waiting(deadline, idle and not searched)
            await INPUT
        line = bytes(self._input[:end])
        self._took(end + 1)
        self._lines += 1
        if self._lines > self._admission.command_rate:
            self._look_at_rate()
        if line.endswith(b"\r"):
            line = line[:-1]
        if len(line) > limit:
            raise LineTooLong(line[:limit], line[-KEPT:])
        return line

    def await_input(self, deadline: float, *, idle: bool = True) -> bool:
        """Whether nothing has arrived: then what was written goes out, and the session must `await INPUT` next; that
        raises as `line` does, when nothing has come by the deadline too. False also when the peer is slow to take what
        was written: `drain` is due."""
        if self._input or self._full:
            return False
        self._begin_waiting(deadline, idle)
        return True

    def line_at_once(self, limit: int) -> bytes | None:
        """`line` of a session between two commands, when it is there; None when that must wait for something: for its
        end, for the peer, for other connections (`breathe`), or when it is too long."""
        end = self._input.find(b"\n")
        if (end < 0 or end > limit or self._full or self._paused or len(self._output) > MANY_ANSWERS
                or self._output and self._clock.seconds() - self._turn > TURN):
            return None
        line = bytes(self._input[:end])
        del self._input[:end + 1]
        self._lines += 1
        if self._lines > self._admission.command_rate:
            self._look_at_rate()
        return line[:-1] if line.endswith(b"\r") else line

    def line_ahead(self, start: int, limit: int) -> bytes | None:
        """The line that begins at that octet of what has arrived, with its end, which stays where it is; None when it
        is not there whole, or longer than `limit`."""
        end = self._input.find(b"\n", start, start + limit) + 1
        return bytes(self._input[start:end]) if end else None

    async def some(self, most: int, timeout: float) -> bytes:
        """Between 1 and `most` octets of what has arrived. Raises ConnectionLost, TimedOut."""
        deadline = self._clock.seconds() + timeout
        while not self._input:
            self._begin_waiting(deadline, False)
            await INPUT
        data = bytes(self._input) if len(self._input) <= most else bytes(self._input[:most])     # copied once, or twice
        self._took(len(data))
        return data

    def unread(self, data: bytes) -> None:
        """Put octets back in front of the input."""
        self._input[:0] = data

    @property
    def input_waiting(self) -> bool:
        """Whether octets have arrived that the session has not read yet."""
        return bool(self._input)

    @property
    def unread_octets(self) -> bytes:
        """What has arrived that the session has not read yet."""
        return bytes(self._input)

    @property
    def between_commands(self) -> bool:
        """Whether the session waits for a command, or for what it tells a client meanwhile."""
        return self._idle

    async def wait(self, timeout: float) -> bool:
        """Until input waits (True), or `wake` was called (False). Raises ConnectionLost, TimedOut, Stopping."""
        if not self._input and not self._woken:
            await self._more(self._clock.seconds() + timeout, idle=True)
        self._woken = False
        return bool(self._input)

    def wake(self) -> None:
        """End the session's `wait`, now or the next one: something happened that it wants to look at."""
        self._woken = True
        if self._idle:
            self._resume()

    def write(self, *pieces: bytes) -> None:
        """Answer the peer; goes out when the session next waits, or drains. Pieces that belong together are joined only
        then: large ones are copied once."""
        self._output += pieces

    @property
    def unsent(self) -> int:
        """How many pieces have been written and not sent."""
        return len(self._output)

    def take_back(self, unsent: int) -> None:
        """Of what has been written since there were so many pieces unsent, none goes out that has not yet."""
        del self._output[unsent:]

    def flush(self) -> None:
        """Send what was written, without waiting for the peer to take it."""
        self._send()

    @property
    def behind(self) -> bool:
        """Whether much of what was written has not been sent, or the peer is slow to take it: `drain` is due."""
        return self._full or len(self._output) > MANY_PIECES or sum(map(len, self._output)) > SMALL_ANSWER

    @property
    def held_back(self) -> bool:
        """Whether answers are not to wait any longer for those to commands that have come already."""
        return self._full or not self._input or len(self._output) > MANY_ANSWERS

    async def drain(self, timeout: float = 300.0) -> None:
        """Send what was written, and wait while the peer is slow to take it. So little that it goes out with the end of
        the answer stays here until then: a packet costs as much as a small command.

        Raises ConnectionLost, and TimedOut when it takes nothing for `timeout` seconds.
        """
        if self.behind:
            self._send()
        if self.lost:
            raise ConnectionLost
        if self._full:
            room: Wait[None] = Wait()
            room.waits_for, self._room = CLIENT, room
            self._set_deadline(self._clock.seconds() + timeout)
            await room
        elif self._clock.seconds() - self._turn > TURN:
            await self.breathe()

    def close(self) -> None:
        """End the connection after what was written has gone out."""
        if not self._closing:
            self._send()
            self._closing = True
            if not self.secure and not self._full:      # or else it may linger, and is counted until it has ended
                after_commit(self._depart)
            if not self.lost:
                self._transport.unregisterProducer()
                self._transport.loseConnection()
                self._set_deadline(self._clock.seconds() + (HANDSHAKE if self._handshaking else LINGER))

    def abort(self) -> None:
        """End the connection at once."""
        self._output.clear()
        self._closing = True
        if not self.lost:
            self._transport.abortConnection()

    # What the reactor calls

    def connectionMade(self) -> None:
        self._transport = cast(Any, self.transport)
        self.proxy = getattr(self._transport, "proxy", "")
        self.peer, self.local = host(self._transport.getPeer()), host(self._transport.getHost())
        if hasattr(self._transport, "setTcpNoDelay"):
            self._transport.setTcpNoDelay(True)
        self._plain = isinstance(self._transport, tcp.Connection) and not self._transport.TLS
        self._transport.registerProducer(self, True)
        self._turn = self._clock.seconds()
        if getattr(self._transport, "surplus", False):      # see `tools.server.process.accepting`
            self._admission.counted["connections turned away"] += 1
            self.write(self._factory.full)
            self.close()
            return
        if self._admission.watch is not None:
            self._admission.watch(self)
        try:
            self._session = self._factory.start(self)
        except Exception as error:
            self._failed(error)
            return
        self._running = Running(self._session.run(), self._failed, self.close, self.waited, self._clock.seconds)
        self._running.go_on()

    def dataReceived(self, data: bytes) -> None:
        self.received += len(data)
        if self.tap is not None:
            self.tap.received(data)
        self.heard = now = self._clock.seconds()
        if self._early:
            self._early = self._early - len(data) or -1     # below 0: `_more` tells, when what is whole has been read
        self._input += data
        if len(self._input) > READ_AHEAD and not self._paused:
            self._paused = True
            self._transport.pauseProducing()
        if self._waiting:
            self._waiting = self._idle = False
            self._turn = now
            self._running.go_on()

    def readConnectionLost(self) -> None:
        """The peer sends no more, and may still be reading: Exim does that behind its last BDAT and QUIT."""
        self._ended = True
        if self._waiting or (self._event is not None and not self._input):
            self._break(ConnectionLost())

    def writeConnectionLost(self) -> None:
        """Only we could have ended our side, and do not."""

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.lost = True
        if self.tap is not None:
            self.tap.lost()
        self._depart()
        if self._handshaking and not isinstance(reason.value, (ConnectionDone, TwistedConnectionLost)):
            log.info("%s: no TLS with %s: %s", self.id, self.peer, reason.getErrorMessage())
        self._factory.gone(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._break(ConnectionLost())

    def pauseProducing(self) -> None:
        """The transport holds more than enough that the peer has not taken."""
        self._full = True

    def resumeProducing(self) -> None:
        """The peer has taken what was written."""
        self._full = False
        room, self._room = self._room, None
        if room is not None:
            self._turn = self._clock.seconds()
            room.callback(None)

    def stopProducing(self) -> None:
        """The transport is closing; `connectionLost` follows."""

    # Inside

    def _failed(self, error: BaseException) -> None:
        """Tell the log of an error that the session did not catch."""
        if isinstance(error, LimitReached):         # of a server whose sessions do not say so
            refusallines.refused(refusallines.LIMIT, self.peer, error.user, self._admission.limits.server, error.public,
                                 session=self.id)
        elif isinstance(error, ConnectionLost | TimedOut | Stopping):
            log.debug("%s ended: %s", self.id, type(error).__name__)
        else:
            log.error("%s: a session failed", self.id, exc_info=error)
            self.abort()
            return
        self.close()

    async def _more(self, deadline: float, idle: bool = False) -> None:
        self._begin_waiting(deadline, idle)
        await INPUT

    def _begin_waiting(self, deadline: float, idle: bool) -> None:
        """What comes before `await INPUT`."""
        if self.lost or self._ended:
            raise ConnectionLost
        if idle and self.stopping:
            raise Stopping
        if self._early < 0:
            raise LimitReached(TOO_MUCH_BEFORE_LOGIN)
        if self._output:
            self._send()
        self._idle = idle
        self._waiting = True
        self._deadline = deadline
        if self._timer is None or self._timer_due > deadline:
            self._set_timer()

    async def _swallow_line(self, limit: int, deadline: float) -> None:
        start = bytes(self._input[:limit])
        while (end := self._input.find(b"\n")) < 0:
            self._took(max(0, len(self._input) - KEPT - 1))
            await self._more(deadline)
        last = bytes(self._input[max(0, end - KEPT - 1):end]).removesuffix(b"\r")
        self._took(end + 1)
        raise LineTooLong(start, last[-KEPT:])

    def _took(self, count: int) -> None:
        del self._input[:count]
        if self._paused and len(self._input) < READ_AHEAD // 2:
            self._paused = False
            if not self.lost:
                self._transport.resumeProducing()

    def _send(self) -> None:
        if self._output:
            data = b"".join(self._output) if len(self._output) > 1 else self._output[0]
            self._output.clear()
            self.sent += len(data)
            if self.tap is not None:
                self.tap.sent(data)
            if self.lost or self._closing:
                return
            transport = self._transport
            if self._plain and not transport.dataBuffer and not transport._tempDataBuffer:
                try:        # Twisted would wait for the loop's next turn, and ask the kernel twice about the socket
                    sent = transport.socket.send(data)
                except OSError:         # full, or broken: Twisted's own writing finds the same
                    sent = 0
                if sent == len(data):
                    return
                data = data[sent:]
            transport.write(data)


def host(address: object) -> str:
    """The address without its port; "local" for a UNIX socket."""
    return str(getattr(address, "host", "local"))
