"""Workloads that bring messages in: LMTP and APPEND."""

import time
from collections.abc import Iterator, Sequence

from tools.benchmarks.load import procfs
from tools.benchmarks.load.loadlmtp import Lmtp
from tools.benchmarks.load.loop import run_one, sleep
from tools.benchmarks.load.measuring import Context
from tools.benchmarks.load.messages import Message, big_messages, standard_messages
from tools.benchmarks.load.preparing import append_in_turn, append_pipelined, break_in, create, remove

_SENDER = b"sender@example.org"
_MIB = 1 << 20

# A message to deliver: its data as LMTP wants it, and users' numbers.
Parcel = tuple[bytes, Sequence[int]]


def ready_inboxes(ctx: Context, users: range) -> None:
    """Make the users' INBOXes empty, on a server that has delivered to them before."""
    ctx.clear_inboxes(users)
    break_in(ctx, users)


def open_lmtp(ctx: Context, count: int) -> list[Lmtp]:
    """`count` LMTP connections past LHLO."""
    connections = [Lmtp(ctx.target.lmtp) for _ in range(count)]
    for one in connections:
        run_one(one.hello())
    return connections


def deliver_all(ctx: Context, connections: Sequence[Lmtp], parcels: Iterator[Parcel],
                deadline: float) -> tuple[int, int]:
    """Deliver over all connections; numbers of messages and of recipients."""

    async def worker(lmtp: Lmtp) -> tuple[int, int]:
        messages = accepted = 0
        for data, users in parcels:
            rcpts = [ctx.target.recipient(one) for one in users]
            taken = await lmtp.deliver(_SENDER, rcpts, data)
            ctx.check(taken == len(rcpts), "LMTP: a recipient was refused")
            messages += 1
            accepted += taken
            if time.perf_counter() > deadline:
                break
        return messages, accepted

    totals = ctx.together(*(worker(one) for one in connections))
    return sum(one[0] for one in totals), sum(one[1] for one in totals)


def close_lmtp(connections: Sequence[Lmtp]) -> None:
    """QUIT on all connections."""
    for one in connections:
        run_one(one.quit())


def verify_delivery(ctx: Context, users: Sequence[int], accepted: int,
                    messages: Sequence[Message]) -> None:
    """Compare the INBOXes with what was accepted, and one message's text."""
    ctx.expect("messages in the INBOXes", ctx.count_inboxes(users), accepted)
    imap = ctx.login(users[0])
    if run_one(imap.select(b"INBOX", b"EXAMINE"))[0]:
        reply = run_one(imap.command(b"FETCH 1 BODY.PEEK[]", keep_literals=True))
        good = any(one.endswith(message.raw) for one in reply.kept for message in messages)
        ctx.check(good, "a delivered message is not what was sent")
    run_one(imap.logout())


def lmtp_1(ctx: Context) -> None:
    """One recipient a message over 8 connections: messages a second."""
    messages = standard_messages(ctx.salt, ctx.options.scaled(2000))
    users = range(min(100, ctx.target.users))
    parcels = [(one.lmtp_data(), (at % len(users),)) for at, one in enumerate(messages)]
    ready_inboxes(ctx, users)
    connections = open_lmtp(ctx, 8)
    with ctx.span() as span:
        _, accepted = deliver_all(ctx, connections, iter(parcels), ctx.deadline())
    ctx.rate("lmtp-1", span, accepted, "msg/s")
    close_lmtp(connections)
    verify_delivery(ctx, users, accepted, messages)
    ctx.clear_inboxes(users)


def lmtp_50(ctx: Context) -> None:
    """50 recipients a message: deliveries a second, and disk used by a message."""
    messages = standard_messages(ctx.salt + "/50", ctx.options.scaled(200))
    users = range(min(100, ctx.target.users))
    each = min(50, len(users))
    parcels = [(one.lmtp_data(), [(at * 7 + k) % len(users) for k in range(each)])
               for at, one in enumerate(messages)]
    ready_inboxes(ctx, users)
    connections = open_lmtp(ctx, 8)
    folder = ctx.target.data
    before = procfs.disk_usage(folder)
    with ctx.span() as span:
        sent, accepted = deliver_all(ctx, connections, iter(parcels), ctx.deadline())
    ctx.rate("lmtp-50", span, accepted, "rcpt/s")
    if sent:
        used = procfs.disk_usage(folder) - before
        ctx.number("lmtp-50.disk", used / sent / 1024, "KiB/msg")
    close_lmtp(connections)
    verify_delivery(ctx, users, accepted, messages)
    ctx.clear_inboxes(users)


def lmtp_big(ctx: Context) -> None:
    """Messages of 25 MiB over 2 connections: MiB a second, and memory taken."""
    messages = big_messages(ctx.salt, ctx.options.scaled(20, 2), 25 * _MIB)
    users = range(min(10, ctx.target.users))
    parcels = [(one.lmtp_data(), (at % len(users),)) for at, one in enumerate(messages)]
    ready_inboxes(ctx, users)
    connections = open_lmtp(ctx, 2)
    peak = _PeakMemory(ctx.target.pid)
    with ctx.span() as span:
        accepted = _deliver_watched(ctx, connections, iter(parcels), peak)
    size = len(parcels[0][0])
    ctx.rate("lmtp-big", span, accepted, "MiB/s", amount=accepted * size / _MIB)
    ctx.number("lmtp-big.rss", peak.growth() / _MIB, "MiB")
    close_lmtp(connections)
    verify_delivery(ctx, users, accepted, messages)
    ctx.clear_inboxes(users)


class _PeakMemory:
    """Samples the resident memory of a process tree, in bytes."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._first = self._peak = procfs.resident_bytes(pid)
        self.stop = False

    async def watch(self) -> None:
        """Sample twenty times a second until `stop` is set."""
        while not self.stop:
            await sleep(0.05)
            self._peak = max(self._peak, procfs.resident_bytes(self._pid))

    def growth(self) -> int:
        """The peak above the first sample."""
        return self._peak - self._first


def _deliver_watched(ctx: Context, connections: Sequence[Lmtp], parcels: Iterator[Parcel],
                     peak: _PeakMemory) -> int:
    """Deliver to one recipient each while memory is watched; deliveries made."""
    deadline = ctx.deadline()
    busy = len(connections)

    async def worker(lmtp: Lmtp) -> int:
        nonlocal busy
        accepted = 0
        try:
            for data, users in parcels:
                taken = await lmtp.deliver(_SENDER, [ctx.target.recipient(users[0])], data)
                ctx.check(taken == 1, "LMTP: a recipient was refused")
                accepted += taken
                if time.perf_counter() > deadline:
                    break
        finally:
            busy -= 1
            peak.stop = not busy
        return accepted

    counts = ctx.together(peak.watch(), *(worker(one) for one in connections))
    return sum(one or 0 for one in counts)


def append(ctx: Context) -> None:
    """APPEND of 8 KiB messages over one connection, in four ways: messages a second. Each way has messages of its own:
    a server that keeps equal messages once has no file of them yet."""
    imap = ctx.login()
    # The metric, messages in one command and commands under way (0: synchronizing).
    ways = [("append.sync", 1, 0)]
    if ctx.offers("LITERAL+"):
        ways += [("append.literal+", 1, 1), ("append.pipelined", 1, 16)]
        if ctx.offers("MULTIAPPEND"):
            ways.append(("append.multi", 50, 2))
    for metric, size, window in ways:
        mailbox = ctx.mailbox("load-" + metric.replace(".", "-"))
        create(imap, mailbox)
        messages = standard_messages(f"{ctx.salt}/{metric}", ctx.options.scaled(1000, 50))
        batches = [messages[at:at + size] for at in range(0, len(messages), size)]
        with ctx.span() as span:
            deadline = ctx.deadline(1 / len(ways))
            if window:
                work = append_pipelined(imap, mailbox, batches, window, deadline)
            else:
                work = append_in_turn(imap, mailbox, messages, deadline)
            stored, failed = run_one(work)
        ctx.rate(metric, span, stored, "msg/s")
        ctx.expect(f"{metric}: failures", failed, 0)
        ctx.expect(f"{metric}: messages", run_one(imap.status(mailbox)), stored)
        remove(imap, mailbox)
    run_one(imap.logout())
