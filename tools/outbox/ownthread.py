"""A thread of one receiver's own, for what may wait without an end: a file on a volume that hangs, a slow relay.

While it waits nothing more is begun there, so a receiver has one such thread at most, and no other receiver waits.
Nobody waits for it at a stop either.
"""

from collections.abc import Callable
from threading import Thread
from typing import Any, TypeVar

from attrs import define, field
from twisted.internet.defer import Deferred

from tools.outbox.destination import Down

T = TypeVar("T")


@define(eq=False)
class OwnThread:
    """A thread of that name; `call` has a function called on the event loop."""

    name: str
    call: Callable[..., object]
    _busy: bool = field(default=False, init=False)

    def run(self, work: Callable[[], T]) -> "Deferred[T]":
        """The result of `work`. Raises Down while the last work, which nobody waits for any more, has not ended."""
        if self._busy:
            raise Down("what was begun before has not ended")
        done: Deferred[T] = Deferred()
        self._busy = True
        Thread(target=self._work, args=(work, done), name=self.name, daemon=True).start()
        return done

    def _work(self, work: Callable[[], Any], done: "Deferred[Any]") -> None:
        try:
            result = work()
        except BaseException as error:
            self.call(self._ended, done.errback, error)
        else:
            self.call(self._ended, done.callback, result)

    def _ended(self, answer: Callable[[Any], None], result: Any) -> None:
        self._busy = False
        answer(result)
