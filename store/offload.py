"""Work that may wait for the disk or takes long, done in threads, so that the event loop goes on.

A store that no server has opened has no threads: everything is done at once, where it is asked for.
"""

import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any, TypeVar

from store.errors import NotAtOnce

if TYPE_CHECKING:           # who only asks for quota loads no store
    from store.store import Store

log = logging.getLogger(__name__)

T = TypeVar("T")

AT_ONCE = 0.01              # seconds in which a transaction must get its locks on the event loop


class Threads:
    """Where work is done that must not hold up the event loop. Here there are no threads: it is done at once."""

    real = False            # whether there are threads

    def run(self, kind: str, work: Callable[[], T], then: Callable[[], None] | None = None, user: str = ""
            ) -> Awaitable[T]:
        """The result of `work`, which runs in a thread of that kind (`net.threads.POOLS`). Users take turns there, and
        no `user` has all threads of a kind.

        `then` is called there when the result is on its way, unless `work` raised; it must not raise.
        """
        return _done(work, then)

    def start(self, kind: str, work: Callable[[], object]) -> None:
        """Have `work` done in a thread of that kind. Nobody waits for it: what it raises goes to the log."""
        try:
            work()
        except Exception as error:
            log.error("work that nobody waits for failed: %s", error)

    def pause(self, seconds: float) -> Awaitable[None]:
        """Ends so many seconds from now."""
        return _done(lambda: time.sleep(seconds))

    def side_by_side(self, work: list[Callable[[], None]]) -> None:
        """Run all of `work` at the same time and wait for it; raises what one of them raised. For a thread."""
        for one in work:
            one()


async def _done(work: Callable[[], T], then: Callable[[], None] | None = None) -> T:
    result = work()
    if then is not None:
        then()
    return result


def threads_of(store: "Store") -> Threads:
    """Those of whoever serves the store."""
    return store.owned.get(Threads, Threads)


async def run(store: "Store", kind: str, function: Callable[..., T], *args: Any, user: str = "") -> T:
    """The result of a function that takes long, or waits: `kind` is one of `net.threads.POOLS`, `user` whose work it
    is."""
    return await threads_of(store).run(kind, lambda: function(*args), user=user)


def start(store: "Store", kind: str, function: Callable[[], object]) -> None:
    """Have a function done in a thread of that kind; nobody waits for it."""
    threads_of(store).start(kind, function)


def at_once(store: "Store", work: Callable[[], T]) -> T:
    """The result of short work, which is one transaction, or reads. Raises NotAtOnce where it would wait for a lock or
    the end of a write freeze, or where much would have to be read; then it has done nothing."""
    freeze = store.write_freeze
    freeze.hurried = True
    try:
        return work()
    finally:
        freeze.hurried = False


async def change(store: "Store", work: Callable[[], T], user: str = "", kind: str = "held") -> T:
    """The result of `work`: `at_once`, or else from a thread of that kind, and the event loop goes on meanwhile."""
    freeze = store.write_freeze
    freeze.hurried = True               # as in `at_once`, which every message would call three times
    try:
        return work()
    except NotAtOnce:
        pass
    finally:
        freeze.hurried = False
    return await run(store, kind, work, user=user)


def sometime(store: "Store", work: Callable[[], object]) -> None:
    """`change` for work that nobody waits for: what it raises in a thread goes to the log."""
    try:
        at_once(store, work)
    except NotAtOnce:
        start(store, "held", work)


def now(work: Coroutine[Any, Any, T]) -> T:
    """The result of work that does not wait for anything: without threads, everything here."""
    steps: Generator[Any, Any, T] = work.__await__()
    try:
        next(steps)
    except StopIteration as end:
        result: T = end.value
        return result
    raise RuntimeError("this work waits for an event loop")
