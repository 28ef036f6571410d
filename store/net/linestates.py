"""What a connection can do instead of giving the octets that were asked for; the clock that it goes by."""

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from twisted.internet.defer import Deferred

from store.observing.loglines import TURN

T = TypeVar("T")

KEPT = 64


class Wait(Deferred[T]):
    """A Deferred that says what it is that one waits for."""

    waits_for = TURN


class LineTooLong(Exception):
    """The line had more octets than allowed; it has been swallowed to its end.

    `start` is its beginning, `end` its last octets (up to KEPT) without the line end.
    """

    def __init__(self, start: bytes, end: bytes) -> None:
        super().__init__("line too long")
        self.start = start
        self.end = end


class ConnectionLost(Exception):
    """The other side is gone, or the connection was cut off."""


class TimedOut(Exception):
    """Nothing, or not enough, came within the time allowed."""


class Stopping(Exception):
    """The server is going down and this session was waiting for its client: say goodbye."""


class LimitReached(Exception):
    """The client is past a limit that holds for every session: say `public`, and that is the end. `user`: whose limit
    that is, if it is a user's."""

    def __init__(self, public: str, user: str = "") -> None:
        super().__init__(public)
        self.public = public
        self.user = user


class Clock(Protocol):
    """The reactor's clock, or a test's."""

    def seconds(self) -> float:
        """Now, in seconds since some moment."""

    def callLater(self, delay: float, callable: Callable[..., Any], *args: Any) -> Any:
        """Call something after `delay` seconds; an IDelayedCall."""
