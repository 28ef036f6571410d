"""The threads of a server: a few for each kind of work, so that one kind cannot hold up another."""

import logging
from collections import Counter, deque
from collections.abc import Callable
from queue import SimpleQueue
from threading import Lock, Thread, Timer
from time import monotonic
from typing import TypeVar

from twisted.internet.defer import Deferred

from store.delivery import lockedmailboxes
from store.net.linestates import Wait
from store.observing.loglines import DIRECTORY, DISK, LIMIT, LOCK, WORK, tell_slow_work
from store.offload import Threads

log = logging.getLogger(__name__)

T = TypeVar("T")

#: How many threads there are for each kind of work. Every batch of synced files (`sharedsyncs.SYNCS`) needs one, and so
#: does the flush of a log.
POOLS = {"sync": 10, "search": 2, "directory": 2, "remote": 8, "doubtful": 1, "tokens": 4, "hosts": 4, "files": 4,
         "placing": 4, "changes": 2, "views": 8, "snapshots": 2, "names": 1, "held": 4,
         "locked": lockedmailboxes.THREADS, "housekeeping": 4, "pages": 4, "scope": 4, "outbox": 2, "operations": 8,
         "waiting": 8, "audit": 1, "transcripts": 1}
#: What a session waits for whose work is done there: for the thread, and for the work; it is WORK of all others.
WAITS_FOR = {"held": LOCK, "locked": LOCK, "sync": DISK, "files": DISK, "placing": DISK, "audit": DISK,
             "directory": DIRECTORY, "remote": DIRECTORY, "doubtful": DIRECTORY, "tokens": DIRECTORY,
             "hosts": DIRECTORY, "scope": DIRECTORY}
#: Those whose work only answers a client: at a stop, what has not been begun is left undone.
ANSWERING = frozenset({"directory", "remote", "doubtful", "tokens", "hosts", "pages", "scope"})
SIDE_BY_SIDE = 8            # files synced at the same time within a batch: the journal merges what comes together


class ReactorThreads(Threads):
    """Threads for each kind of work, made when they are first needed; results come back in the reactor's thread."""

    real = True

    def __init__(self, call_from_thread: Callable[..., object]) -> None:
        self._call = call_from_thread
        self._pools = {kind: _Pool(kind, size) for kind, size in POOLS.items()}
        self._files = _Pool("file", SIDE_BY_SIDE)

    def run(self, kind: str, work: Callable[[], T], then: Callable[[], None] | None = None, user: str = ""
            ) -> "Deferred[T]":
        """The result of `work`. Raises RuntimeError where no thread can be begun."""
        done: Wait[T] = Wait()
        done.waits_for = WAITS_FOR.get(kind, WORK)
        put = monotonic()

        def task() -> None:
            begun = monotonic()
            try:
                try:
                    result = work()
                finally:
                    if monotonic() - put > LIMIT.slow:
                        tell_slow_work(kind, user, begun - put, monotonic() - begun)
            except BaseException as error:
                self._call(done.errback, error)
            else:
                self._call(done.callback, result)
                if then is not None:
                    then()

        self._pools[kind].put(task, user)
        return done

    def start(self, kind: str, work: Callable[[], object]) -> None:
        """Have `work` done in a thread; what it raises goes to the log."""
        self.run(kind, work).addErrback(lambda failure: log.error("work in a thread failed: %s", failure.value))

    def pause(self, seconds: float) -> "Deferred[None]":
        """Fires so many seconds from now, in the reactor's thread."""
        done: Deferred[None] = Deferred()
        timer = Timer(seconds, lambda: self._call(done.callback, None))
        timer.daemon = True
        try:
            timer.start()
        except RuntimeError:            # there is no thread: the next turn of the event loop comes first
            self._call(done.callback, None)
        return done

    def side_by_side(self, work: list[Callable[[], None]]) -> None:
        """Do all of `work` at the same time: the last in this thread, the others in threads of their own where these
        can begin."""
        ended: SimpleQueue[BaseException | None] = SimpleQueue()
        for one in work[:-1]:
            try:
                self._files.put(lambda one=one: ended.put(_caught(one)))    # type: ignore[misc]
            except RuntimeError:
                ended.put(_caught(one))
        failures = [_caught(work[-1]), *(ended.get() for _ in work[:-1])]
        for failure in failures:
            if failure is not None:
                raise failure

    def stop(self) -> None:
        """Wait for what is under way, and take no more."""
        for kind, pool in self._pools.items():
            if kind in ANSWERING:
                pool.forget()
        for pool in (*self._pools.values(), self._files):
            pool.stop()


class _Pool:
    """Up to `size` threads. Users take turns: each has a queue, and at most all threads but one; what is nobody's is a
    user of its own without that bound."""

    def __init__(self, name: str, size: int) -> None:
        self._name = name
        self._size = size
        self._queues: dict[str, deque[Callable[[], None]]] = {}     # in the order in which it is their turn
        self._busy: Counter[str] = Counter()
        self._wakes: SimpleQueue[bool] = SimpleQueue()  # True for each task that may be due
        self._passed_over = 0       # wakes of tasks whose users have to wait
        self._threads: list[Thread] = []
        self._lock = Lock()
        self._under_way = 0         # tasks that were put and have not ended
        self._stopping = False

    def put(self, task: Callable[[], None], user: str = "") -> None:
        """Have the work done; it must not raise. Raises RuntimeError where no thread can begin: then it is never
        done."""
        with self._lock:
            if len(self._threads) < min(self._under_way + 1, self._size):
                self._begin_another()
            self._queues.setdefault(user, deque()).append(task)
            self._under_way += 1
        self._wakes.put(True)

    def _begin_another(self) -> None:
        """Where that cannot be, the others do it, if there are any. Raises RuntimeError."""
        thread = Thread(target=self._work, name=f"{self._name}-{len(self._threads)}", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            if not self._threads:
                raise
        else:
            self._threads.append(thread)

    def _work(self) -> None:
        while self._wakes.get():
            with self._lock:
                user = next(filter(self._may, self._queues), None)
                if user is None:
                    self._passed_over += bool(self._queues)
                    continue
                queue = self._queues.pop(user)
                task = queue.popleft()
                if queue:
                    self._queues[user] = queue
                self._busy[user] += 1
            task()
            with self._lock:
                self._under_way -= 1
                self._busy[user] -= 1
                if not self._busy[user]:
                    del self._busy[user]
                if self._passed_over:
                    self._passed_over -= 1
                    self._wakes.put(True)

    def _may(self, user: str) -> bool:
        return not user or self._stopping or self._busy[user] < max(1, self._size - 1)

    def forget(self) -> None:
        """Leave undone all work that has not begun."""
        with self._lock:
            self._queues.clear()

    def stop(self) -> None:
        """Wait until all is done, and end the threads."""
        with self._lock:
            self._stopping = True
            for _ in range(self._passed_over):
                self._wakes.put(True)
            self._passed_over = 0
        for _ in self._threads:
            self._wakes.put(False)
        for thread in self._threads:
            thread.join()


def _caught(work: Callable[[], None]) -> BaseException | None:
    try:
        work()
    except BaseException as error:
        return error
    return None
