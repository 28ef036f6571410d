"""Calls the store's tasks at their times, in a thread."""

from collections.abc import Sequence
from typing import Any

from attrs import define, field

from store import housekeeping
from store.housekeeping import Task
from store.net.threads import Threads
from store.store import Store


@define(eq=False)
class Housekeeping:
    """The tasks of one process. `reactor` is Twisted's, or a test's clock."""

    reactor: Any
    store: Store
    threads: Threads
    tasks: Sequence[Task]
    _calls: dict[str, Any] = field(factory=dict, init=False)
    _stopped: bool = field(default=False, init=False)

    def start(self) -> None:
        """Call each task after its interval, and again that long after it has ended."""
        for task in self.tasks:
            self._later(task)

    def stop(self) -> None:
        """Call no more."""
        self._stopped = True
        for call in self._calls.values():
            if call.active():
                call.cancel()

    def _later(self, task: Task) -> None:
        if not self._stopped:
            self._calls[task.name] = self.reactor.callLater(task.interval, self._run, task)

    def _run(self, task: Task) -> None:
        done = self.threads.run("housekeeping", lambda: housekeeping.run(task, self.store))
        done.addBoth(lambda _: self._later(task))


def tasks(store: Store, *, keeper: bool) -> list[Task]:
    """What a process has to do; the keeper does it for the whole store."""
    return housekeeping.every_process(store) + (housekeeping.one_process(store) if keeper else [])
