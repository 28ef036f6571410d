"""What takes long to find out is found out once for all who ask at the same time."""

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from attrs import define, field
from twisted.internet.defer import Deferred

T = TypeVar("T")


@define(eq=False)
class Gathering(Generic[T]):
    """Calls `gather`, never twice at a time: who asks meanwhile gets what that call gives, or raises."""

    _gather: Callable[[], Awaitable[T]]
    _waiting: "list[Deferred[T]] | None" = field(default=None, init=False)

    async def get(self) -> T:
        """What is found out now."""
        if self._waiting is not None:
            mine: Deferred[T] = Deferred()
            self._waiting.append(mine)
            return await mine
        self._waiting = []
        try:
            found = await self._gather()
        except Exception as error:
            for each in self._end():
                each.errback(error)
            raise
        for each in self._end():
            each.callback(found)
        return found

    def _end(self) -> "list[Deferred[T]]":
        waiting, self._waiting = self._waiting or [], None
        return waiting
