"""Measuring: spans of time with the CPU they cost, samples, errors."""

import gc
import os
import time
from collections import Counter
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, TypeVar

from attrs import define, field

from tools.benchmarks.load import procfs
from tools.benchmarks.load.loadimap import Imap
from tools.benchmarks.load.loop import run, run_one
from tools.benchmarks.load.target import Target

T = TypeVar("T")

# The server may work on after its last answer; its CPU counts until it has
# been (nearly) quiet for one step, in seconds, or the limit is reached.
_SETTLE_STEP = 0.04
_SETTLE_QUIET = 0.003
_SETTLE_LIMIT = 1.5


class Skip(Exception):
    """The workload does not apply to this target."""


@define
class Options:
    """What holds for all workloads: messages in the prepared mailbox and in those read for the first time, connections
    in IDLE, the seconds after which measuring ends, and what the workloads' counts are multiplied with."""

    mailbox_size: int = 20000
    cold_size: int = 5000
    connections: int = 500
    max_seconds: float = 20.0
    scale: float = 1.0
    seed: str = "1"

    def scaled(self, count: int, least: int = 1) -> int:
        """A workload's default count, as this run has it."""
        return max(least, round(count * self.scale))


@define
class Span:
    """A measured stretch of time, all in seconds.

    `server_cpu` is the target's process tree, `client_cpu` this program,
    `kernel_cpu` the kernel's threads, `other_cpu` the rest of the machine;
    `written` the bytes the server caused to be written.
    """

    wall: float = 0.0
    client_cpu: float = 0.0
    kernel_cpu: float = 0.0
    server_cpu: float = 0.0
    other_cpu: float = 0.0
    written: int = 0


@define
class Sample:
    """One result of one run.

    `operations` is what CPU is divided by; `more_is_better` says which way
    the value counts.
    """

    target: str
    workload: str
    metric: str
    value: float
    unit: str
    more_is_better: bool
    run: int
    operations: float = 0.0
    span: Span | None = None

    def cpu_per_operation(self) -> float | None:
        """The server's CPU, in microseconds."""
        if not self.span or not self.operations:
            return None
        return self.span.server_cpu / self.operations * 1e6


@define
class Context:
    """A workload's surroundings: the target, the options, where results go.

    `salt` differs from run to run but not between the targets of a run:
    messages delivered are new to every server each time, and the same for all.
    """

    target: Target
    options: Options
    workload: str
    run: int
    salt: str
    samples: list[Sample] = field(factory=list)
    errors: Counter[str] = field(factory=Counter)

    # -- results -------------------------------------------------------------

    @contextmanager
    def span(self) -> Iterator[Span]:
        """Measure what runs inside; the numbers are there when it ends.

        What was written before goes to disk first, not in the measured time.
        """
        span = Span()
        pid = self.target.pid
        os.sync()
        gc.collect()
        gc.disable()
        written, server = procfs.written_bytes(pid), procfs.cpu_seconds(pid)
        kernel = procfs.kernel_thread_seconds()
        machine = procfs.machine_cpu_seconds()
        client, before = _own_cpu(), time.perf_counter()
        try:
            yield span
        finally:
            span.wall = time.perf_counter() - before
            span.client_cpu = _own_cpu() - client
            machine = procfs.machine_cpu_seconds() - machine
            span.kernel_cpu = procfs.growth(kernel, procfs.kernel_thread_seconds())
            known = procfs.cpu_seconds(pid) - server + span.client_cpu + span.kernel_cpu
            span.other_cpu = max(0.0, machine - known)
            span.server_cpu = settled_cpu(pid) - server
            span.written = procfs.written_bytes(pid) - written
            gc.enable()

    def rate(self, metric: str, span: Span, operations: float, unit: str,
             amount: float | None = None) -> None:
        """Report `amount` (or the operations) a second.

        Without operations nothing is told of the CPU for one.
        """
        amount = operations if amount is None else amount
        value = amount / span.wall if span.wall else 0.0
        self._add(metric, value, unit, True, operations, span)

    def each(self, metric: str, span: Span, operations: float) -> None:
        """Report the milliseconds an operation took."""
        self._add(metric, span.wall / max(operations, 1) * 1e3, "ms", False, operations, span)

    def cost(self, metric: str, span: Span, operations: float) -> None:
        """Report only the server's CPU for an operation, in microseconds."""
        self._add(metric, span.server_cpu / max(operations, 1) * 1e6, "us CPU", False, operations, span)

    def number(self, metric: str, value: float, unit: str, more_is_better: bool = False) -> None:
        """Report a value that is not of a span."""
        self._add(metric, value, unit, more_is_better, 0.0, None)

    def _add(self, metric: str, value: float, unit: str, more: bool, operations: float,
             span: Span | None) -> None:
        self.samples.append(Sample(self.target.name, self.workload, metric, value, unit, more,
                                   self.run, operations, span))

    def check(self, good: bool, complaint: str) -> None:
        """Count an error unless `good`."""
        if not good:
            self.errors[complaint] += 1

    def expect(self, what: str, got: object, wanted: object) -> None:
        """Count an error unless two values are equal."""
        self.check(got == wanted, f"{what}: got {got}, expected {wanted}")

    # -- running ----------------------------------------------------------------

    def together(self, *coros: Coroutine[Any, Any, T]) -> list[T]:
        """Run coroutines side by side, count the ones that failed, return the others' results."""
        results = run(*coros)
        for one in results:
            if isinstance(one, Exception):
                self.errors[_described(one)] += 1
        return [one for one in results if not isinstance(one, Exception)]

    def deadline(self, share: float = 1.0) -> float:
        """The time.perf_counter() at which a loop that starts now must stop."""
        return time.perf_counter() + self.options.max_seconds * share

    # -- the target ---------------------------------------------------------------

    async def session(self, index: int = 0, buffer_size: int = 1 << 16) -> Imap:
        """A new IMAP connection, logged in as the `index`-th user."""
        return await session(self.target, index, buffer_size)

    def login(self, index: int = 0, buffer_size: int = 1 << 18) -> Imap:
        """One, ready at once, for workloads of one connection."""
        imap: Imap = run_one(self.session(index, buffer_size))
        return imap

    def offers(self, capability: str) -> bool:
        """Whether the server names a capability after LOGIN."""
        return capability in features(self.target)[0]

    def mailbox(self, name: str) -> bytes:
        """The full name of a personal mailbox other than INBOX."""
        return features(self.target)[1] + name.encode()

    def clear_inboxes(self, users: Iterable[int]) -> None:
        """Empty (and so create) the INBOX of these users."""
        self.over_users(users, self._clear_one)

    def count_inboxes(self, users: Iterable[int]) -> int:
        """The number of messages in the INBOX of all these users."""
        return sum(self.over_users(users, self._count_one))

    def over_users(self, users: Iterable[int], work: Any) -> list[int]:
        """Do something once for every different user, some side by side."""
        todo = iter(sorted({one % self.target.users for one in users}))

        async def worker() -> int:
            total = 0
            for index in todo:
                total += await work(index)
            return total

        return self.together(*(worker() for _ in range(4)))

    async def _clear_one(self, index: int) -> int:
        imap = await self.session(index)
        await imap.empty()
        await imap.logout()
        return 0

    async def _count_one(self, index: int) -> int:
        imap = await self.session(index)
        exists, _ = await imap.select(b"INBOX", b"EXAMINE")
        await imap.logout()
        return exists


async def session(target: Target, index: int = 0, buffer_size: int = 1 << 16) -> Imap:
    """A new IMAP connection, logged in as the `index`-th user."""
    imap = Imap(target.imap, buffer_size)
    await imap.greeting()
    await imap.login(target.user_name(index), target.password)
    return imap


@lru_cache
def features(target: Target) -> tuple[frozenset[str], bytes]:
    """A target's capabilities and the prefix of its personal mailboxes."""
    imap = run_one(session(target))
    found = run_one(imap.capability()), run_one(imap.prefix())
    run_one(imap.logout())
    return found


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` of the values lie (nearest rank)."""
    ordered = sorted(values)
    if not ordered:
        return float("nan")
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _described(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _own_cpu() -> float:
    """CPU seconds of this program."""
    times = os.times()
    return time.process_time() + times.children_user + times.children_system


def settled_cpu(pid: int) -> float:
    """The server's CPU seconds once it has become quiet."""
    end = time.perf_counter() + _SETTLE_LIMIT
    last = procfs.cpu_seconds(pid)
    while time.perf_counter() < end:
        time.sleep(_SETTLE_STEP)
        now = procfs.cpu_seconds(pid)
        if now - last < _SETTLE_QUIET:
            return now
        last = now
    return last
