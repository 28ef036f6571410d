"""The event loop: Twisted's own for epoll(7), without the log context that it makes for each event, and without looking
for timers that are not due: both together cost as much as a small command does. Our logs do not use that context.

Its timers go by a clock that nobody sets. Twisted's go by the clock of the day: when that is set back by a day, nothing
that waits for its time is done for a day, neither housekeeping nor the end of a silent connection. When it is set
forward, all ends at once.
"""

import logging
import time
from bisect import bisect_left
from select import EPOLLET, EPOLLIN
from time import monotonic
from typing import Any, cast

from twisted.internet.epollreactor import EPollReactor
from twisted.internet.main import installReactor

from store.metrics.histograms import Histogram
from store.metrics.processcounters import TURN_SECONDS

log = logging.getLogger(__name__)

LONGEST = 2_000_000.0       # seconds that epoll_wait(2) can be told to wait
_STARTED = time.time() - monotonic()


def steady() -> float:
    """The Unix time, by the clock as it was when this program began."""
    return _STARTED + monotonic()


class Reactor(EPollReactor):
    """See the module's text. `turns`: how long each turn took, from when `doPoll` had been told of events until it is
    called again. An event that comes meanwhile waits for that."""

    seconds = staticmethod(steady)
    today = staticmethod(time.time)         # the Unix time by the clock as it is now
    turns = Histogram(TURN_SECONDS)         # a process has one reactor
    _woken = 0.0

    def mainLoop(self) -> None:
        """Do what is due by time or was asked for by threads, and wait for events, until the reactor is stopped."""
        self._woken = steady()
        turns, started = self.turns, _STARTED
        while self._started:
            try:
                while self._started:
                    timers: list[Any] = self._pendingTimedCalls
                    now = started + monotonic()         # `steady`, without a call
                    wait: float | None
                    if (self.threadCallQueue or self._newTimedCalls or self._justStopped
                            or timers and timers[0].time <= now):
                        self.runUntilCurrent()
                        wait, now = self.timeout() if self.running else 0, self.seconds()
                    else:
                        wait = min(LONGEST, max(0.0, timers[0].time - now)) if timers else None
                    took = max(0.0, now - self._woken)
                    turns.counts[bisect_left(TURN_SECONDS, took)] += 1
                    turns.total += took
                    self.doPoll(wait)
            except Exception:
                log.exception("something that was due has failed")

    def doPoll(self, timeout: float | None) -> None:
        """Wait for events, at most so many seconds (None: without an end), and have each dealt with."""
        connections: dict[int, Any] = self._selectables
        deal: Any = self._doReadOrWrite
        disconnect: Any = self._disconnectSelectable
        events = self._poller.poll(-1 if timeout is None else timeout, max(1, len(connections)))
        self._woken = _STARTED + monotonic()
        for handle, event in events:
            connection = connections.get(handle)        # an earlier event may have closed it
            if connection is not None:
                try:
                    if event != EPOLLIN:
                        deal(connection, handle, event)
                    elif ended := connection.doRead():
                        disconnect(connection, ended, True)
                except Exception as error:
                    log.exception("an event of %s could not be dealt with", type(connection).__name__)
                    if event == EPOLLIN:
                        disconnect(connection, error, True)

    doIteration = doPoll

    def add_signalled(self, reader: Any) -> None:
        """`addReader` for an eventfd that is not read: its `doRead` is called after each signal, once (EPOLLET in
        epoll_ctl(2)), and must take all that there is."""
        add: Any = self.addReader
        add(reader)
        self._poller.modify(reader.fileno(), EPOLLIN | EPOLLET)


def install() -> Reactor:
    """Make it this process's reactor; before anything imports `twisted.internet.reactor`."""
    made: Reactor = cast(Any, Reactor)()
    cast(Any, installReactor)(made)
    return made
