"""The event loop: Twisted's own for epoll(7), without the log context that it makes for each event, which costs as much
as reading a line does. Our logs do not use it."""

import logging
from typing import Any, cast

from twisted.internet.epollreactor import EPollReactor
from twisted.internet.main import installReactor

log = logging.getLogger(__name__)


class Reactor(EPollReactor):
    """See the module's text."""

    def doPoll(self, timeout: float | None) -> None:
        """Wait for events, at most so many seconds (None: without an end), and have each dealt with."""
        connections: dict[int, Any] = self._selectables
        deal: Any = self._doReadOrWrite
        for handle, event in self._poller.poll(-1 if timeout is None else timeout, max(1, len(connections))):
            connection = connections.get(handle)        # an earlier event may have closed it
            if connection is not None:
                try:
                    deal(connection, handle, event)
                except Exception:
                    log.exception("an event of %s could not be dealt with", type(connection).__name__)

    doIteration = doPoll


def install() -> Reactor:
    """Make it this process's reactor; before anything imports `twisted.internet.reactor`."""
    made: Reactor = cast(Any, Reactor)()
    cast(Any, installReactor)(made)
    return made
