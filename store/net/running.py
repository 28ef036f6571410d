"""Runs the coroutine of a connection. It may wait for Deferreds; and for input and for syncs (`Done`), for which a
Deferred's callbacks would cost much of what a short command costs."""

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, cast

from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure


class _Input(tuple[object]):
    """Awaiting it waits until `Running.go_on` or `Running.fail` is called. It is iterated over as any tuple is, without
    a function of Python's: its one item is what the coroutine then yields."""

    __slots__ = ()
    __await__ = tuple.__iter__


_WAITS = object()
INPUT = cast(Awaitable[None], _Input((_WAITS,)))


class Done(Deferred[None]):
    """What one coroutine waits for. `Running` goes on with it directly; for all others it is a Deferred."""

    waiting: "Running | None" = None

    def __await__(self) -> Any:
        """Its own, once: nobody gives it another value than None."""
        return super().__await__() if self.called else iter((self,))

    def end(self, failure: Exception | None = None) -> None:
        """It is done, or has failed."""
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
    did not, which is called when it has come to its end."""

    coroutine: Coroutine[Any, None, None]
    failed: Callable[[BaseException], None]
    ended: Callable[[], None] = lambda: None
    _step: Callable[[None], Any] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._step = self.coroutine.send

    def go_on(self) -> None:
        """Run it until it waits again: at its beginning, and when it awaits INPUT and there is some."""
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
        """Where it waits it gets `reason` instead."""
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
        if isinstance(event, Done):
            event.waiting = self
        else:
            event.addBoth(self._happened)

    def _happened(self, result: object) -> object:
        """What it waited for. A result stays with the Deferred, from which the coroutine takes it."""
        if isinstance(result, Failure):
            self.fail(cast(BaseException, result.value))
            return None
        self.go_on()
        return result
