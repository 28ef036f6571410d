"""What one change gives hundreds of sessions to do is done a few at a time. Each few have a turn of the event loop of
their own: everything that is due at one moment is one turn, in which nobody else is heard."""

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from mboxlist.engine.troubles import after_commit

AT_ONCE = 4                 # sessions that are told in one turn what has become of 10,000 messages: about 6 ms


class Turns:
    """The queue of one event loop, first come, first served. What is added comes in a later turn, in any case."""

    _all: WeakKeyDictionary[Any, "Turns"] = WeakKeyDictionary()

    def __init__(self) -> None:
        self._waiting: list[Callable[[], object]] = []

    @classmethod
    def of(cls, clock: Any) -> "Turns":
        """That of this reactor, or of a test's clock."""
        found = cls._all.get(clock)
        if found is None:
            found = cls._all[clock] = cls()
        return found

    def add(self, clock: Any, step: Callable[[], object]) -> None:
        """Have it called after all that waits already. `clock`: that which the queue is of."""
        if not self._waiting:
            clock.callLater(0, self._go_on, clock)
        self._waiting += (step,)

    def _go_on(self, clock: Any) -> None:
        steps = self._waiting[:AT_ONCE]
        for step in steps:
            after_commit(step)
        del self._waiting[:AT_ONCE]         # not before: who adds meanwhile finds that somebody waits
        if self._waiting:
            clock.callLater(0, self._go_on, clock)
