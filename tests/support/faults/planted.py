"""Faults planted in functions of the product, and what others do at that moment.

A test says what fails, or what happens before or after a call; the rest is as ever. Here is the one place that puts a
function in another's place for that.
"""

from collections.abc import Callable
from inspect import iscoroutinefunction
from typing import Any

import pytest
from attrs import define, field

Call = Callable[..., Any]


async def _raised(error: BaseException | type[BaseException]) -> None:
    raise error


def always(*_: Any, **__: Any) -> bool:
    """Every call."""
    return True


@define
class Faults:
    """What is planted until it is mended; the fixture `faults` mends it at the end of the test.

    `where` is a module, a class or an object, and `name` one of its functions. What is called in its place, before or
    after it is given the arguments of the call; of a method of a class the object comes first.
    """

    _patch: pytest.MonkeyPatch = field(factory=pytest.MonkeyPatch)
    _awaited: list[tuple[str, list[Call]]] = field(factory=list)     # what `first` has planted, and is left of it

    def around(self, where: Any, name: str, call: Call) -> None:
        """`call` is made in place of each call, with the function itself before its arguments."""
        real = getattr(where, name)

        def planted(*given: Any, **options: Any) -> Any:
            return call(real, *given, **options)

        self._patch.setattr(where, name, planted)

    def fail(self, where: Any, name: str, error: BaseException | type[BaseException], when: Call = always) -> None:
        """Those calls for which `when` holds raise `error`, and do nothing; of a coroutine, when it is waited for."""
        def call(real: Call, *given: Any, **options: Any) -> Any:
            if not when(*given, **options):
                return real(*given, **options)
            if iscoroutinefunction(real):
                return _raised(error)
            raise error

        self.around(where, name, call)

    def fail_second(self, where: Any, name: str, error: BaseException, counts: Call = always) -> None:
        """The second of the calls for which `counts` holds raises `error`, and does nothing."""
        seen: list[None] = []

        def second(*given: Any, **options: Any) -> bool:
            if counts(*given, **options):
                seen.append(None)
            return len(seen) == 2

        self.fail(where, name, error, when=second)

    def before(self, where: Any, name: str, work: Call) -> None:
        """`work` is done before each call."""
        def call(real: Call, *given: Any, **options: Any) -> Any:
            work(*given, **options)
            return real(*given, **options)

        self.around(where, name, call)

    def first(self, where: Any, name: str, *works: Call) -> None:
        """Each of `works` is done once, before one call each: the first one's before the first call. All of them must
        have been done when the test ends: it would test nothing if the function is not called any more."""
        left = list(works)
        self._awaited.append((name, left))

        def work(*given: Any, **options: Any) -> None:
            if left:
                left.pop(0)(*given, **options)

        self.before(where, name, work)

    def after(self, where: Any, name: str, work: Call) -> None:
        """`work` is done after each call; nothing follows a call that fails."""
        def call(real: Call, *given: Any, **options: Any) -> Any:
            result = real(*given, **options)
            work(*given, **options)
            return result

        self.around(where, name, call)

    def watch(self, where: Any, name: str, what: Call = lambda first, *_, **__: first) -> list[Any]:
        """The first argument of each call from now on, or what `what` makes of all."""
        seen: list[Any] = []
        self.before(where, name, lambda *given, **options: seen.append(what(*given, **options)))
        return seen

    def forbid(self, where: Any, name: str) -> None:
        """No call is to be made."""
        self.fail(where, name, AssertionError(f"{name} is called"))

    def mend(self) -> None:
        """Everything is as it was."""
        self._patch.undo()

    def __enter__(self) -> "Faults":
        return self

    def __exit__(self, error: object, *_: object) -> None:
        self.mend()
        missed = [name for name, left in self._awaited if left]
        assert error is not None or not missed, f"never called: {', '.join(missed)}"
