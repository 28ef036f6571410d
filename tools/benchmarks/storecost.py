"""`tools/bench store`: what the store costs by itself, without a protocol, beside the bare system calls.

Each figure is the median of some runs on a fresh store. Messages are of 8 KiB and all different; big mailboxes are made
by copying them.
"""

import itertools
import os
import resource
import shutil
import statistics
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred, ensureDeferred, gatherResults

from mboxlist import privatefiles
from mboxlist.entry import MailboxEntry
from mboxlist.names import MailboxName
from store.accounts.base import Account
from store.delivery import durable
from store.delivery.commit import Target, commit
from store.mailboxes import namespace
from store.mailboxes.copymessages import copy_messages
from store.mailboxes.expunge import remove
from store.mailboxes.flagchanges import change_flags
from store.net import sharedsyncs
from store.net.threads import ReactorThreads
from store.opening import make_empty_store, open_store
from store.settings import Settings
from store.store import Store
from store.userarea import idxfile, idxreading, writing
from store.values import Flag, FlagAction, Flags, InternalDate
from tools.cli.output import print_json, print_table

SIZE = 8192
FLIGHT = 8              # deliveries under way at the same time
RUNS = 5
FAN_OUT = 50
MESSAGES_AT_A_TIME = 10_000          # messages that are copied at a time

reactor: Any = _reactor


class Bench:
    """A store in a temporary folder, and what was measured. `messages` is the size of the large mailbox."""

    def __init__(self, parent: Path | None, messages: int) -> None:
        self.folder = privatefiles.new_folder("onecopy-bench-", parent)
        self.messages = messages
        self.many = min(MESSAGES_AT_A_TIME, messages)
        self.figures: list[dict[str, object]] = []
        self._made = 0
        self._users = itertools.count()
        make_empty_store(self.folder / "store")
        self.store = open_store(self.folder / "store", Settings(mailbox_limit=10_000), who="tools/bench")

    def close(self) -> None:
        """Remove it."""
        self.store.close()
        shutil.rmtree(self.folder)

    def note(self, what: str, value: float, unit: str, goal: str) -> None:
        """A figure."""
        self.figures.append({"what": what, "value": round(value, 2), "unit": unit, "goal": goal})

    def mailbox(self, name: str) -> MailboxEntry:
        """A new mailbox."""
        user = f"bench{next(self._users)}"
        account: Account = self.store.directory.add(user, "none")
        return namespace.create_mailbox(self.store, MailboxName(account.user, name))

    def message(self) -> bytes:
        """A message like no other."""
        self._made += 1
        head = b"From: a@example.org\r\nTo: b@example.org\r\nMessage-ID: <%d@example.org>\r\nSubject: %d\r\n\r\n" % (
            self._made, self._made)
        return head + os.urandom(32).hex().encode() * ((SIZE - len(head)) // 64)

    async def deliver(self, *entries: MailboxEntry) -> None:
        """One message."""
        staged = self.store.stage(entries[0])
        staged.write(self.message())
        await durable.deliver(self.store, staged, [Target(entry) for entry in entries])

    def fill(self, entry: MailboxEntry, messages: int) -> None:
        """Messages that are all different, without syncing, up to `many`; then copies of them."""
        source = self.mailbox("Source")
        for _ in range(self.many):
            staged = self.store.stage(source)
            staged.write(self.message())
            staged.finish()
            staged.spill()
            staged.on_disk = True       # as far as this is concerned
            commit(self.store.partition_of(source), staged, [Target(source)], InternalDate(int(time.time())))
            staged.close()
            staged.place()
        uids = self.store.open_mailbox(source).rows["uid"]
        for _ in range(messages // self.many):
            copy_messages(self.store, source, entry, uids)


@contextmanager
def _cpu(into: list[float]) -> Iterator[None]:
    before = resource.getrusage(resource.RUSAGE_SELF)
    yield
    after = resource.getrusage(resource.RUSAGE_SELF)
    into.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def _timed(work: Callable[[], object], runs: int = RUNS) -> float:
    """Seconds, the median."""
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def bare_loop(folder: Path, count: int, data: bytes) -> float:
    """Seconds for one message: write a file, sync it and its folder, rename; `FLIGHT` threads."""
    privatefiles.make_folder(folder / "new")
    privatefiles.make_folder(folder / "cur")
    names = iter(range(count))
    lock = threading.Lock()

    def work() -> None:
        while True:
            with lock:
                name = next(names, None)
            if name is None:
                return
            handle = privatefiles.open_handle(folder / "new" / str(name), os.O_WRONLY | os.O_CREAT)
            os.write(handle, data)
            os.fsync(handle)
            os.close(handle)
            os.rename(folder / "new" / str(name), folder / "cur" / str(name))

    threads = [threading.Thread(target=work) for _ in range(FLIGHT)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return (time.perf_counter() - start) / count


async def deliveries(bench: Bench, count: int) -> None:
    """Synced deliveries, `FLIGHT` at a time, beside the bare loop, turn by turn."""
    entries = [bench.mailbox("INBOX") for _ in range(FLIGHT)]

    async def one(entry: MailboxEntry) -> None:
        for _ in range(count // FLIGHT):
            await bench.deliver(entry)

    ours, bare = [], []
    for run in range(RUNS):
        folder = bench.folder / f"bare{run}"
        privatefiles.make_folder(folder)
        bare.append(bare_loop(folder, count, bytes(SIZE)))
        shutil.rmtree(folder)
        start = time.perf_counter()
        await gatherResults([ensureDeferred(one(entry)) for entry in entries])
        ours.append((time.perf_counter() - start) / count)
    bench.note("deliver 8 KiB, synced, 8 in flight", statistics.median(ours) * 1e6, "us", "")
    bench.note("write, sync, rename of the same", statistics.median(bare) * 1e6, "us", "")
    bench.note("ratio", statistics.median(ours) / statistics.median(bare), "", "1.5")


async def fan_out(bench: Bench, count: int) -> None:
    """CPU of each further recipient."""
    entries = [bench.mailbox("INBOX") for _ in range(FAN_OUT)]
    one: list[float] = []
    many: list[float] = []
    for _ in range(RUNS):
        for used, targets in ((one, entries[:1]), (many, entries)):
            with _cpu(used):
                for _ in range(count):
                    await bench.deliver(*targets)
    further = (statistics.median(many) - statistics.median(one)) / count / (FAN_OUT - 1)
    bench.note("each of 49 further recipients, CPU", further * 1e6, "us", "10")


def large(bench: Bench) -> None:
    """A large mailbox: open, flag, copy, expunge, its store.idx."""
    store, big = bench.store, bench.mailbox("Big")
    bench.fill(big, bench.messages)
    uids = store.open_mailbox(big).rows["uid"]
    count = len(uids)
    bench.note(f"open {count}", _timed(lambda: _read(store, big)) * 1e3, "ms", "40")
    bench.note("open it again", _timed(lambda: store.open_mailbox(big)) * 1e3, "ms", "1")
    store.partition_of(big).views.forget()
    tracemalloc.start()
    kept = store.open_mailbox(big)
    bench.note(f"memory of an open mailbox of {count}, a message", tracemalloc.get_traced_memory()[0] / count, "octets",
               "120")
    del kept
    tracemalloc.stop()
    bench.note(f"set a flag on {count}", _timed(lambda: change_flags(
        store, big, uids, FlagAction.ADD, Flags(Flag.FLAGGED)), 1) * 1e3, "ms", "100")
    shown, turns = [store.open_mailbox(big), store.open_mailbox(big)], itertools.count()

    def one() -> None:
        action = (FlagAction.ADD, FlagAction.REMOVE)[next(turns) % 2]
        change_flags(store, big, uids[count // 2:][:1], action, Flags(Flag.DRAFT))
        shown[:] = [store.refresh(view) for view in shown]

    bench.note("set a flag on one of them, and show it to two sessions", _timed(one, 50) * 1e6, "us", "300")
    del shown[:]
    many, other = uids[:bench.many], bench.mailbox("Other")
    copied = _timed(lambda: copy_messages(store, big, other, many))
    bench.note(f"COPY {len(many)}, a message", copied / len(many) * 1e6, "us", "10")
    bench.note(f"expunge {len(many)} of {count}", _timed(lambda: remove(store, big, many), 1) * 1e3, "ms", "200")
    file = bench.folder / "store.idx"
    bench.note("write its store.idx", _timed(lambda: idxfile.write(file, _contents(store, big))) * 1e3, "ms", "50")
    bench.note("read it", _timed(lambda: idxreading.read(file)) * 1e3, "ms", "50")


def _read(store: Store, entry: MailboxEntry) -> None:
    """Open a mailbox of which nothing is in memory."""
    store.partition_of(entry).views.forget()
    store.open_mailbox(entry)


def _contents(store: Store, entry: MailboxEntry) -> idxfile.Contents:
    found = writing.view(store, store.partition_of(entry), entry.id)
    assert found is not None
    return found[1]


async def into_large(bench: Bench, count: int) -> None:
    """A delivery into a mailbox of a million beside one into an empty mailbox, turn by turn."""
    big, empty = bench.mailbox("Million"), bench.mailbox("Empty")
    bench.fill(big, bench.messages * 10)
    store = bench.store
    bench.note(f"open {bench.messages * 10}", _timed(lambda: _read(store, big)) * 1e3, "ms", "400")
    used: dict[str, list[float]] = {"big": [], "empty": []}
    for _ in range(RUNS * 2):
        for name, entry in (("big", big), ("empty", empty)):
            with _cpu(used[name]):
                for _ in range(count):
                    await bench.deliver(entry)
    figures = {name: statistics.median(times) for name, times in used.items()}
    bench.note("delivery into it, CPU, beside one into an empty one", figures["big"] / figures["empty"], "", "1.2")


async def _measure(bench: Bench) -> None:
    threads = ReactorThreads(reactor.callFromThread)
    sharedsyncs.attach(bench.store, threads)
    few = max(FLIGHT, bench.messages // 100)
    try:
        await deliveries(bench, few)
        await fan_out(bench, max(10, few // 5))
        large(bench)
        await into_large(bench, max(10, few // 5))
    finally:
        threads.stop()


def run(parent: Path | None, messages: int, *, as_json: bool) -> Sequence[dict[str, object]]:
    """Measure, print, and return the figures."""
    bench = Bench(parent, messages)
    failed: list[object] = []

    def begin() -> None:
        done: Deferred[None] = ensureDeferred(_measure(bench))
        done.addErrback(failed.append)
        done.addBoth(lambda _: reactor.stop())

    try:
        reactor.callWhenRunning(begin)
        reactor.run()
    finally:
        bench.close()
    if as_json:
        print_json(bench.figures)
    else:
        print_table(bench.figures, ("what", "value", "unit", "goal"))
    if failed:
        failed[0].raiseException()      # type: ignore[attr-defined]
    return bench.figures
