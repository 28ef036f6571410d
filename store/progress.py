"""How far long work is, and whether anybody still waits for it."""

from collections.abc import Callable

from attrs import define

Tell = Callable[[str, int, int], None]      # what is worked on, how many of these are done, and of how many; 0: unknown


def silent(what: str, done: int, total: int) -> None:
    """The `Tell` of those who need not know."""


class Abandoned(Exception):
    """Nobody waits for the result any more: the work has been left off."""


@define(eq=False)
class Progress:
    """One piece of work, as the thread that does it and the loop that waits for it see it.

    The thread counts what is `done` of a `total`, which is 0 as long as nobody knows; `unwanted` says, in any thread,
    whether the work can be left off.
    """

    unwanted: Callable[[], bool] = bool
    done: int = 0
    total: int = 0

    def begin(self, count: int) -> None:
        """So much more is to be done. Raises Abandoned."""
        self.total += count
        self.step(0)

    def step(self, count: int) -> None:
        """So much more has been done. Raises Abandoned."""
        if self.unwanted():
            raise Abandoned
        self.done += count
