"""What a connection's session waits for: input, room to write, an event, time that passes. Every wait has an end."""

from functools import partial
from typing import Any, Protocol

from twisted.internet.defer import Deferred

from store.net.admission import AdmissionControl
from store.net.countedconnection import Counted
from store.net.linestates import Clock, ConnectionLost, Stopping, TimedOut
from store.news.turns import Turns

TURN = 0.01                 # seconds of work after which a busy session lets others in (`breathe`)


class Resumed(Protocol):
    """The coroutine of a session: see `Running` of `stream`."""

    def go_on(self) -> None:
        """Let the coroutine go on, since what it waits for has come."""

    def fail(self, reason: BaseException) -> None:
        """Raise `reason` in the coroutine, at the place where it waits."""


class Waits(Counted):
    """The waits of a `Stream`; the rest of it reads and writes."""

    def __init__(self, admission: AdmissionControl, clock: Clock, number: int, *, stopping: bool) -> None:
        super().__init__(admission, clock, number, stopping=stopping)
        self._running: Resumed                          # from `connectionMade` on
        self._waiting = False                           # the session waits for input
        self._room: Deferred[None] | None = None        # the session waits until the peer has taken some
        self._event: Deferred[None] | None = None       # the session waits for something else
        self._idle = False                              # waiting between commands: may hear of a stop
        self._deadline = 0.0
        self._timer: Any = None
        self._timer_due = 0.0
        self._turn = 0.0                                # when it last went on after a wait
        self.lost = False       # the connection has ended: nobody waits for an answer any more
        self._closing = False
        self.farewell = ""                              # what to say at a stop that is meant for this one alone

    def _send(self) -> None:
        """See `Stream`."""
        raise NotImplementedError

    @property
    def closing(self) -> bool:
        """Whether the session has ended; what was written last may yet go out."""
        return self._closing

    async def until(self, event: "Deferred[None]", timeout: float) -> bool:
        """Wait for something that is no input; whether it has come in time. Raises ConnectionLost, Stopping at once."""
        self._send()
        if self.lost:
            raise ConnectionLost
        if self.stopping:
            raise Stopping
        self._event, self._idle = event, True
        timer = self._clock.callLater(timeout, self._event_is_late, event)
        try:
            await event
            return True
        except TimedOut:
            return False
        finally:
            self._event, self._idle = None, False
            self._turn = self._clock.seconds()
            if timer.active():
                timer.cancel()

    async def pause(self, seconds: float) -> None:
        """Let so many seconds pass, and read nothing. Raises ConnectionLost, Stopping at once."""
        await self.until(Deferred(), seconds)

    async def breathe(self) -> None:
        """Let other connections in, if this session has been at work for a while without waiting."""
        if self._clock.seconds() - self._turn > TURN:
            await self._next_turn()

    async def take_turn(self, turns: Turns) -> None:
        """Wait among those who have much to write at the same time: where the peers of hundreds take something at one
        moment, all of these would go on before anybody else is heard. Raises ConnectionLost."""
        turn: Deferred[None] = Deferred()
        turns.add(self._clock, partial(turn.callback, None))
        await self._resumed(turn)

    async def look_again(self) -> None:
        """Have what the peer has sent meanwhile arrive, and others go on, and wait for nothing."""
        await self._next_turn()         # which may begin with this,
        await self._next_turn()         # and this one looks at the sockets before

    async def _next_turn(self) -> None:
        turn: Deferred[None] = Deferred()
        self._clock.callLater(0, turn.callback, None)
        await self._resumed(turn)

    async def _resumed(self, turn: "Deferred[None]") -> None:
        await turn
        self._turn = self._clock.seconds()
        if self.lost:
            raise ConnectionLost

    def stop(self) -> None:
        """The server is going down: a session between two commands hears of it at once, another at its next pause."""
        self.stopping = True
        if self._idle:
            self._break(Stopping())

    def dismiss(self, farewell: str) -> None:
        """An administrator ends this connection: as at a stop, in other words."""
        self.farewell = farewell
        self.stop()

    # Inside

    def _resume(self) -> None:
        if self._waiting:
            self._waiting = self._idle = False
            self._turn = self._clock.seconds()
            self._running.go_on()

    def _break(self, reason: Exception) -> None:
        self._idle = False
        if self._waiting:
            self._waiting = False
            self._running.fail(reason)
            return
        for event in (self._room, self._event):
            if event is not None:
                self._room = self._event = None
                event.errback(reason)

    def _event_is_late(self, event: "Deferred[None]") -> None:
        if self._event is event:
            self._event = None
            event.errback(TimedOut())

    def _set_deadline(self, deadline: float) -> None:
        self._deadline = deadline
        if self._timer is None or self._timer_due > deadline:
            self._set_timer()

    def _set_timer(self) -> None:
        """Have the timer fire at the deadline. A timer that fires before does no harm."""
        left = max(0.0, self._deadline - self._clock.seconds())
        if self._timer is None:
            self._timer = self._clock.callLater(left, self._time_is_up)
        else:
            self._timer.reset(left)
        self._timer_due = self._deadline

    def _time_is_up(self) -> None:
        """One timer serves all waits: it is not moved for each, but looks at the deadline when it fires."""
        self._timer = None
        if not self._waiting and self._room is None and not self._closing:
            return
        if self._deadline > self._clock.seconds():
            self._set_deadline(self._deadline)
        elif self._closing:
            self.abort()
        else:
            self._break(TimedOut())
