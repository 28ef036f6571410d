"""A very small scheduler for coroutines that wait on sockets.

The generator shares its two cores with the server under test, so it must be
cheap: one thread, one epoll, no futures or callbacks. A coroutine suspends
only in `wait` and `sleep`. While a single coroutine is left it is
resumed at once and its (blocking) receive is the wait, which saves the epoll
call for every round trip of the one-connection workloads.
"""

import select
import time
import types
from collections import deque
from collections.abc import Coroutine, Generator, Iterable
from heapq import heappop, heappush
from typing import Any

READ = select.EPOLLIN
WRITE = select.EPOLLOUT
# A coroutine that waits this many seconds for a socket has failed.
STALL_SECONDS = 30.0

_Request = tuple[int, int, float | None]


@types.coroutine
def wait(fd: int, mask: int, timeout: float | None = None) -> Generator[_Request, bool, bool]:
    """Suspend until `fd` is ready: True; or `timeout` seconds passed: False."""
    return (yield fd, mask, timeout)


@types.coroutine
def sleep(seconds: float) -> Generator[_Request, bool, bool]:
    """Suspend for `seconds`."""
    return (yield -1, 0, seconds)


class _Task:
    """A coroutine under way and what it waits for."""

    __slots__ = ("coro", "index", "fd", "serial", "since", "timed")

    def __init__(self, coro: Coroutine[Any, Any, Any], index: int) -> None:
        self.coro = coro
        self.index = index
        self.fd = -1
        self.serial = 0                 # counts waits, so that a stale timer is known
        self.since = 0.0
        self.timed = False


class Loop:
    """Runs coroutines side by side; see the module's text."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._armed: dict[int, int] = {}
        self._waiting: dict[int, _Task] = {}
        self._timers: list[tuple[float, int, _Task, int]] = []
        self._ready: deque[tuple[_Task, Any]] = deque()
        self._results: list[Any] = []
        self._alive = 0
        self._timer_count = 0
        self._now = self._checked = 0.0         # the last poll, the last look for stalls

    def run(self, coros: Iterable[Coroutine[Any, Any, Any]]) -> list[Any]:
        """Run all of `coros` to their end.

        Returns, in their order, what each returned or the exception it ended in.
        """
        tasks = [_Task(coro, index) for index, coro in enumerate(coros)]
        self._alive = len(tasks)
        self._results = [None] * len(tasks)
        self._ready.extend((task, None) for task in tasks)
        self._now = self._checked = time.monotonic()
        while self._alive:
            while self._ready:
                self._step(*self._ready.popleft())
            if self._alive:
                self._poll()
        return self._results

    def forget(self, fd: int) -> None:
        """Must be called before a socket that was waited on is closed."""
        if self._armed.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def _step(self, task: _Task, value: Any) -> None:
        """Resume one coroutine up to its next wait."""
        while True:
            try:
                if isinstance(value, Exception):
                    fd, mask, timeout = task.coro.throw(value)
                else:
                    fd, mask, timeout = task.coro.send(value)
            except StopIteration as stop:
                self._end(task, stop.value)
                return
            except Exception as error:          # noqa: BLE001 - handed to run's caller
                self._end(task, error)
                return
            if self._alive == 1 and mask == READ and timeout is None:
                value = True                    # its own receive blocks
                continue
            break
        task.fd = fd
        task.since = self._now
        task.timed = timeout is not None
        if fd >= 0:
            self._waiting[fd] = task
            if self._armed.get(fd) != mask:
                self._arm(fd, mask)
        if timeout is not None:
            self._timer_count += 1
            due = time.monotonic() + timeout
            heappush(self._timers, (due, self._timer_count, task, task.serial))

    def _end(self, task: _Task, result: Any) -> None:
        self._results[task.index] = result
        self._alive -= 1

    def _arm(self, fd: int, mask: int) -> None:
        """(Re-)register `fd`; registrations outlive the wait, to save calls."""
        if fd in self._armed:
            self._epoll.modify(fd, mask)
        else:
            self._epoll.register(fd, mask)
        self._armed[fd] = mask

    def _resume(self, task: _Task, value: Any) -> None:
        """Put a waiting task in line."""
        task.serial += 1
        if task.fd >= 0:
            self._waiting.pop(task.fd, None)
        self._ready.append((task, value))

    def _poll(self) -> None:
        """Wait for sockets and timers."""
        timers = self._timers
        while timers and timers[0][2].serial != timers[0][3]:
            heappop(timers)
        timeout = STALL_SECONDS / 4
        if timers:
            timeout = min(timeout, max(0.0, timers[0][0] - time.monotonic()))
        for fd, _ in self._epoll.poll(timeout):
            task = self._waiting.get(fd)
            if task is None:
                self.forget(fd)                 # data nobody waits for: keep quiet
            else:
                self._resume(task, True)
        self._now = now = time.monotonic()
        while timers and timers[0][0] <= now:
            _, _, task, serial = heappop(timers)
            if task.serial == serial:
                self._resume(task, False)
        if now - self._checked > STALL_SECONDS / 4:
            self._checked = now
            self._fail_stalled(now)

    def _fail_stalled(self, now: float) -> None:
        """End the waits that have lasted too long."""
        for task in list(self._waiting.values()):
            if not task.timed and now - task.since > STALL_SECONDS:
                self._resume(task, TimeoutError(f"no answer within {STALL_SECONDS:.0f} s"))


# The program's only loop: it has one thread.
LOOP = Loop()


def run(*coros: Coroutine[Any, Any, Any]) -> list[Any]:
    """Run coroutines side by side; results or exceptions, in order."""
    return LOOP.run(coros)


def run_one(coro: Coroutine[Any, Any, Any]) -> Any:
    """Run one coroutine; its exception is raised here."""
    result = LOOP.run([coro])[0]
    if isinstance(result, Exception):
        raise result
    return result
