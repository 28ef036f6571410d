"""Work in place of time: a clock that goes on by one microsecond with each call of a function in the event loop. So
sessions let others in as they do in a server, and how long a turn of the loop is can be said exactly.

What is done in threads does not count: it is done at once, with the clock standing still. The largest transaction is
noted, by the octets of records that it writes.

One call into C may do much. It makes what it hands back, so the octets that a turn has allocated at the same time are
noted, too: numpy's arrays, what Berkeley DB reads in bulk, what zlib inflates, lists of a split.
"""

import sys
import tracemalloc
from collections import deque
from contextlib import contextmanager
from typing import Any

from twisted.internet.protocol import Factory
from twisted.internet.task import Clock

from mboxlist.table import MailboxList
from store.offload import Threads
from store.partition.transactions import WriteTxn
from store.tables.slices import units
from tests.support.conversations.wire import Wire
from tests.support.faults.planted import Faults

UNIT = 1e-6                 # seconds of the clock for a call
EVERY = 50
WRITTEN = 100               # octets of answers that are as much work as a call
NAMED = 250                 # units of work, some microseconds less, for a mailbox that gets a name in the list
PIECES = 20


class WorkClock(Clock):
    """See the module's text. `longest` is the work of the longest turn, `largest` the octets of the one that took most
    at the same time; `between` is called between two turns."""

    def __init__(self) -> None:
        super().__init__()
        self.done = 0
        self.longest = self.largest = self.turns = 0
        self.between = lambda: None
        self.weighing = False       # whether octets are noted, of each of the first turns and of one of EVERY others:
        self._weighed = 0           # it makes all much slower
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
        if tracemalloc.is_tracing():
            self.largest = max(self.largest, tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
        if on and self.weighing:
            self._weighed += 1
            if self._weighed < EVERY or not self._weighed % EVERY:
                tracemalloc.start()
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


class _Pieces(deque[bytes]):
    """What has been written to a transport: the end of it. To write it is work, too."""

    def __init__(self, clock: WorkClock) -> None:
        super().__init__(maxlen=PIECES)
        self._clock = clock

    def write(self, octets: bytes) -> None:
        """More of it."""
        self.append(octets)
        self._clock.done += len(octets) // WRITTEN

    def getvalue(self) -> bytes:
        """What there is."""
        return b"".join(self)


class WorkWire(Wire):
    """A connection; what comes in from the client is a turn."""

    clock: WorkClock

    def __init__(self, factory: Factory, clock: WorkClock) -> None:
        super().__init__(factory, clock)
        self.received()

    def received(self) -> bytes:
        """The end of what the server has sent since the last call; all of it would be weighed."""
        data = self.transport.value()
        self.transport.io = _Pieces(self.clock)
        return data

    def send(self, data: bytes) -> None:
        """Octets from the client, in pieces as they come from a socket."""
        for at in range(0, len(data), 65536):
            if not self.closed:
                with self.clock.turn():
                    self.protocol.dataReceived(data[at:at + 65536])
                self.settle()


@contextmanager
def transactions_noted():
    """A list of the work of each change of records, or of the list of mailboxes, one after the other: (transaction,
    units)."""
    found: list[tuple[Any, int]] = []
    with Faults() as planted:
        planted.before(MailboxList, "write", lambda mailboxes, entry, txn, **more: found.append((txn, NAMED)))
        planted.before(WriteTxn, "rewrite", lambda txn, mailbox, rows, changed, kept=None, **how: found.append(
            (txn, units(rows["uid"][changed], 1))))
        planted.before(WriteTxn, "append", lambda txn, mailbox, rows: found.append((txn, units(rows["uid"], 1))))
        yield found
