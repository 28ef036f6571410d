"""Runs the store's tasks at their times, in threads, a slice at a time."""

import logging
from collections.abc import Sequence
from math import floor
from typing import Any

from attrs import define, field
from twisted.python.failure import Failure

from mboxlist.engine.troubles import TROUBLES
from store.housekeeping import tasks as housekeeping
from store.housekeeping.tasks import Round, Status, Task
from store.net.threads import ReactorThreads
from store.store import Store

log = logging.getLogger(__name__)


@define(eq=False)
class Housekeeping:
    """The tasks of one process. `reactor` is Twisted's, or a test's clock."""

    reactor: Any
    store: Store
    threads: ReactorThreads
    tasks: Sequence[Task]
    _rounds: dict[str, Round] = field(factory=dict, init=False)
    _calls: dict[str, Any] = field(factory=dict, init=False)
    _stopped: bool = field(default=False, init=False)
    _began: float = field(default=0.0, init=False)

    def start(self) -> None:
        """Begin a round of each task after its interval, and again that long after it has ended."""
        self._began = self.reactor.seconds()
        for task in self.tasks:
            self._rounds[task.name] = Round(task, self.store)
            self._later(task, self._pause(task.interval))

    def stop(self) -> None:
        """Begin no more; a round under way leaves off after the item that it is at."""
        self._stopped = True
        for partition in self.store.partitions.values():
            partition.unwritten.stop.set()
        for call in self._calls.values():
            if call.active():
                call.cancel()

    @property
    def stopped(self) -> bool:
        """Whether no more is begun."""
        return self._stopped

    def status(self) -> list[Status]:
        """How the tasks stand."""
        return [each.status() for each in self._rounds.values()]

    def _pause(self, interval: float) -> float:
        """The seconds until a round is due again, up to one less than its interval: in a whole number of seconds since
        the start. So tasks wake a process together that has nothing else to do, and each process by itself."""
        now = self.reactor.seconds() - self._began
        return interval if interval < 1 else floor(now + interval) - now

    def _later(self, task: Task, seconds: float) -> None:
        if not self._stopped:
            self._calls[task.name] = self.reactor.callLater(seconds, self._step, task)

    def _step(self, task: Task) -> None:
        try:
            done = self.threads.run("housekeeping", lambda: self._rounds[task.name].step(lambda: self._stopped))
        except RuntimeError as error:           # there is no thread: it is tried again
            TROUBLES.met("housekeeping waits for a thread", str(error))
            self._later(task, self._pause(task.interval))
            return
        done.addErrback(self._failed, task)
        done.addCallback(lambda pause: self._later(task, self._pause(task.interval) if pause is None else pause))

    def _failed(self, failure: Failure, task: Task) -> None:
        log.error("housekeeping: %s: %s", task.name, failure.getTraceback())


def tasks(store: Store, *, keeper: bool) -> list[Task]:
    """What a process has to do; the keeper does it for the whole store. Nothing that writes in a copy for reading."""
    if store.read_only:
        return [task for task in housekeeping.every_process(store) if task.name == housekeeping.TROUBLES_TASK]
    return housekeeping.every_process(store) + (housekeeping.one_process(store) if keeper else [])
