"""Work in place of time: a clock that goes on by one microsecond with each call of a function in the event loop. So
sessions let others in as they do in a server, and how long a turn of the loop is can be said exactly.

What is done in threads does not count: it is done at once, with the clock standing still. The largest transaction is
noted, by the octets of records that it writes.
"""

import sys
from contextlib import contextmanager
from typing import Any

from twisted.internet.task import Clock

from store.offload import Threads
from store.partition.transactions import WriteTxn, units
from tests.support.conversations.wire import Wire

UNIT = 1e-6                 # seconds of the clock for a call


class WorkClock(Clock):
    """See the module's text. `longest` is the work of the longest turn; `between` is called between two turns."""

    def __init__(self) -> None:
        super().__init__()
        self.done = 0
        self.longest = self.turns = 0
        self.between = lambda: None
        self._inside = False

    def seconds(self) -> float:
        return super().seconds() + self.done * UNIT

    def callLater(self, delay: float, func: Any, *args: Any, **more: Any) -> Any:
        """Each call is a turn."""
        return super().callLater(delay, self._call, func, args, more)

    def _call(self, func: Any, args: Any, more: Any) -> None:
        self.between()
        with self.turn():
            func(*args, **more)

    @contextmanager
    def turn(self) -> Any:
        """What is done within is a turn."""
        before, outer, self._inside = self.done, self._inside, True
        self._count(on=True)
        try:
            yield
        finally:
            self._inside = outer
            self._count(on=outer)
            self.turns += 1
            self.longest = max(self.longest, self.done - before)

    @contextmanager
    def paused(self) -> Any:
        """What is done within is done in a thread."""
        self._count(on=False)
        try:
            yield
        finally:
            self._count(on=self._inside)

    def _count(self, *, on: bool) -> None:
        sys.setprofile(self._called if on else None)

    def _called(self, frame: Any, event: str, argument: Any) -> None:
        if event in ("call", "c_call"):
            self.done += 1


class PausingThreads(Threads):
    """Does what is for threads at once; it is no work of the event loop."""

    def __init__(self, clock: WorkClock) -> None:
        self.clock = clock

    def run(self, kind, work, then=None, user=""):
        """The result of `work`."""
        def paused():
            with self.clock.paused():
                return work()

        return super().run(kind, paused, then, user)

    def start(self, kind, work):
        """Have it done."""
        with self.clock.paused():
            super().start(kind, work)


class WorkWire(Wire):
    """A connection; what comes in from the client is a turn."""

    clock: WorkClock

    def send(self, data: bytes) -> None:
        """Octets from the client, in pieces as they come from a socket."""
        for at in range(0, len(data), 65536):
            if not self.closed:
                with self.clock.turn():
                    self.protocol.dataReceived(data[at:at + 65536])
                self.settle()


@contextmanager
def transactions_noted(monkeypatch):
    """A list of the work of each change of records, one after the other: (transaction, units)."""
    found: list[tuple[WriteTxn, int]] = []
    rewrite, append = WriteTxn.rewrite, WriteTxn.append

    def rewritten(txn, mailbox, rows, changed, kept=None):
        found.append((txn, units(rows["uid"][changed], 1)))
        rewrite(txn, mailbox, rows, changed, kept)

    def appended(txn, mailbox, rows):
        found.append((txn, units(rows["uid"], 1)))
        append(txn, mailbox, rows)

    with monkeypatch.context() as patch:
        patch.setattr(WriteTxn, "rewrite", rewritten)
        patch.setattr(WriteTxn, "append", appended)
        yield found
