"""Tasks are called at their times, one round of a task at a time, and leave off when the server stops."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from store.housekeeping import tasks
from store.housekeeping.tasks import Task
from store.settings import Settings
from tests.support.faults.planted import Faults
from tools.server.process.housekeeper import Housekeeping


class Threads:
    """Threads whose work ends when the test says so."""

    def __init__(self) -> None:
        self.ends: list[Callable[[], None]] = []

    def run(self, kind: str, work: Callable[[], Any]) -> "Deferred[Any]":
        assert kind == "housekeeping"
        done: Deferred[Any] = Deferred()
        self.ends.append(lambda: done.callback(work()))
        return done


def housekeeping(clock: Clock, threads: Threads, *wanted: Task, rate: int = 0) -> Housekeeping:
    store = SimpleNamespace(settings=Settings(housekeeping_rate=rate), partitions={})
    made = Housekeeping(clock, store, threads, wanted)          # type: ignore[arg-type]
    made.start()
    return made


def called(found: list[Any]) -> Callable[[Any, Any], int]:
    def work(store: Any, item: Any) -> int:
        found.append(item)
        return 1
    return work


def test_intervals_begin_at_the_end() -> None:
    clock, threads, found = Clock(), Threads(), []
    made = housekeeping(clock, threads, Task("often", 5, lambda store: ["often"], called(found)),
                        Task("seldom", 60, lambda store: ["seldom"], called(found)))
    clock.advance(4.9)
    assert threads.ends == []
    clock.pump([0.2, 20, 20])
    assert len(threads.ends) == 1           # it runs still, so it is not called again
    threads.ends.pop()()
    assert found == ["often"]
    clock.advance(5)
    assert len(threads.ends) == 1
    clock.advance(15)
    assert len(threads.ends) == 2
    threads.ends.pop(0)()                   # it waits for its time, the other one runs
    assert [(status.name, status.rounds, status.done, status.running) for status in made.status()] == [
        ("often", 2, 2, False), ("seldom", 0, 0, False)]
    made.stop()
    threads.ends.pop()()
    assert found == ["often", "often"]      # it had not begun


def test_tasks_wake_a_process_together() -> None:
    """However long their rounds took: in whole seconds since the start."""
    clock, threads, began = Clock(), Threads(), list[tuple[float, int]]()
    clock.advance(0.75)
    housekeeping(clock, threads, Task("quick", 2, lambda store: [0], called([])),
                 Task("slow", 5, lambda store: [0], called([])))
    for _ in range(48):
        clock.advance(0.25)
        if threads.ends:
            began.append((clock.seconds() - 0.75, len(threads.ends)))
            clock.advance(0.25)
            while threads.ends:
                threads.ends.pop()()
    assert began == [(2, 1), (4, 1), (5, 1), (6, 1), (8, 1), (10, 2), (12, 1)]



def test_a_long_task_goes_on_slice_by_slice_and_leaves_off_at_a_stop(monkeypatch: Any) -> None:
    monkeypatch.setattr(tasks, "SLICE", 0.0)        # every item is a slice
    clock, threads, found = Clock(), Threads(), []
    made = housekeeping(clock, threads, Task("long", 5, lambda store: range(100), called(found)))
    clock.advance(5)
    for _ in range(3):
        threads.ends.pop()()
        clock.advance(0)
    assert found == [0, 1, 2]
    assert made.status()[0].running
    made.stop()
    threads.ends.pop()()
    assert found == [0, 1, 2]
    assert clock.getDelayedCalls() == []


def test_a_limited_task_waits_between_its_slices() -> None:
    clock, threads, found = Clock(), Threads(), []
    housekeeping(clock, threads, Task("long", 5, lambda store: range(100), called(found), limited=True), rate=1)
    clock.advance(5)
    threads.ends.pop()()
    assert found == [0]                             # one message a second, and little time has passed
    clock.advance(0.5)
    assert threads.ends == []
    clock.advance(0.5)
    threads.ends.pop()()
    assert found == [0, 1]


def test_a_task_that_fails_comes_again() -> None:
    def fail(store: object) -> list[object]:
        raise OSError("no")

    clock, threads = Clock(), Threads()
    made = housekeeping(clock, threads, Task("bad", 5, fail, called([])))
    for _ in range(2):
        clock.advance(5)
        threads.ends.pop()()
    assert made.status()[0].failures == 2


def test_a_task_that_finds_no_thread_is_tried_again(faults: Faults) -> None:
    clock, threads, found = Clock(), Threads(), []
    made = housekeeping(clock, threads, Task("often", 5, lambda store: ["often"], called(found)))
    faults.fail(Threads, "run", RuntimeError("can't start new thread"))
    clock.advance(5)
    faults.mend()
    clock.advance(5)
    threads.ends.pop()()
    assert found == ["often"]
    made.stop()
