"""Tasks are called at their times, one run of a task at a time."""

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from store.housekeeping import Task
from tools.housekeeping import Housekeeping


class Threads:
    """Threads whose work ends when the test says so."""

    def __init__(self) -> None:
        self.ends: list[Callable[[], None]] = []

    def run(self, kind: str, work: Callable[[], Any]) -> "Deferred[Any]":
        assert kind == "housekeeping"
        done: Deferred[Any] = Deferred()
        self.ends.append(lambda: done.callback(work()))
        return done


def test_intervals_begin_at_the_end() -> None:
    clock, threads, called = Clock(), Threads(), []
    housekeeping = Housekeeping(clock, "the store", threads, [      # type: ignore[arg-type]
        Task("often", 5, lambda store: called.append(("often", store))),
        Task("seldom", 60, lambda store: called.append(("seldom", store)))])
    housekeeping.start()
    clock.advance(4.9)
    assert threads.ends == []
    clock.pump([0.2, 20, 20])
    assert len(threads.ends) == 1           # it runs still, so it is not called again
    threads.ends.pop()()
    assert called == [("often", "the store")]
    clock.advance(5)
    assert len(threads.ends) == 1
    clock.advance(15)
    assert len(threads.ends) == 2
    threads.ends.pop(0)()                   # it waits for its time, the other one runs
    housekeeping.stop()
    threads.ends.pop()()
    assert sorted(name for name, _ in called) == ["often", "often", "seldom"]
    assert clock.getDelayedCalls() == []


def test_a_task_that_fails_comes_again() -> None:
    def fail(store: object) -> None:
        raise OSError("no")

    clock, threads = Clock(), Threads()
    Housekeeping(clock, None, threads, [Task("bad", 5, fail)]).start()      # type: ignore[arg-type]
    for _ in range(2):
        clock.advance(5)
        threads.ends.pop()()
