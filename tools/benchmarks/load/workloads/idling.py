"""Many connections in IDLE (RFC 2177): the memory that they take, and how soon they hear of mail."""

import time

from attrs import define, field

from tools.benchmarks.load import procfs
from tools.benchmarks.load.loadimap import Imap
from tools.benchmarks.load.loadlmtp import Lmtp
from tools.benchmarks.load.loop import sleep
from tools.benchmarks.load.measuring import Context, percentile
from tools.benchmarks.load.messages import standard_messages
from tools.benchmarks.load.workloads.delivering import close_lmtp, open_lmtp, ready_inboxes

_PARALLEL = 8
# Messages delivered to idle connections, seconds between two of them, and
# how long a connection may take to say so.
_DELIVERIES = 50
_PACE = 0.1
_PATIENCE = 35.0
# How long processes of earlier sessions may stay, in seconds.
_LEFTOVER_PATIENCE = 150.0
# A change of memory smaller than this share in 1.5 s is none.
_MEMORY_STABLE = 0.005


@define
class _Times:
    """time.perf_counter() values of one delivery's steps, in seconds."""

    sent: list[float] = field(factory=list)         # the last byte went out
    accepted: list[float] = field(factory=list)     # LMTP said 250
    noticed: dict[int, float] = field(factory=dict)  # EXISTS came


def idle(ctx: Context) -> None:
    """Many connections in IDLE: memory for each, and how soon they hear of mail."""
    count = ctx.options.connections
    users = range(min(count, ctx.target.users))
    deliveries = min(ctx.options.scaled(_DELIVERIES, 2), len(users))
    ready_inboxes(ctx, users)
    lmtp = open_lmtp(ctx, 1)[0]
    connections: dict[int, tuple[Imap, bytes]] = {}
    half = count // 2
    _wait_for_leftovers(ctx, half)
    _open_idle(ctx, connections, range(half))
    before = _settled_memory(ctx), procfs.machine_memory_bytes()
    with ctx.span() as span:
        _open_idle(ctx, connections, range(half, count))
    ctx.rate("idle.open", span, count - half, "sess/s")
    ctx.expect("connections in IDLE", len(connections), count)
    _report_memory(ctx, before, count - half)
    _notify(ctx, lmtp, connections, deliveries)
    _close_idle(ctx, connections)
    close_lmtp([lmtp])
    ctx.expect("messages in the INBOXes", ctx.count_inboxes(range(deliveries)), deliveries)
    ctx.clear_inboxes(range(deliveries))


def _wait_for_leftovers(ctx: Context, limit: int) -> None:
    """Wait until the server has fewer than `limit` processes.

    Some keep those of ended sessions for another one, for about a minute; with
    many of them there is no telling what a new connection takes.
    """
    end = time.monotonic() + _LEFTOVER_PATIENCE
    while len(procfs.process_tree(ctx.target.pid)) >= max(limit, 50):
        if time.monotonic() > end:
            ctx.errors["idle: processes of earlier sessions stay; memory is not comparable"] += 1
            return
        time.sleep(1.0)


def _settled_memory(ctx: Context) -> int:
    """The server tree's PSS in bytes, once it changes no more (15 s at most).

    Some servers park connections that have been idle for a while.
    """
    time.sleep(1.5)
    now = procfs.proportional_bytes(ctx.target.pid)
    for _ in range(9):
        before = now
        time.sleep(1.5)
        now = procfs.proportional_bytes(ctx.target.pid)
        if abs(now - before) < _MEMORY_STABLE * before:
            break
    return now


def _report_memory(ctx: Context, before: tuple[int, int], added: int) -> None:
    """Memory of the connections added since `before`, and of the whole server.

    `before` is the server's PSS and what the machine used, in bytes; the
    latter adds what the kernel holds for processes and sockets, both ends.

    The first half of the connections is left out of the former: processes that
    a server had waiting, or left over from earlier sessions, took those in.
    """
    now = _settled_memory(ctx), procfs.machine_memory_bytes()
    ctx.number("idle.pss", (now[0] - before[0]) / added / 1024, "KiB/conn")
    ctx.number("idle.pss.total", now[0] / (1 << 20), "MiB")
    ctx.number("idle.machine", (now[1] - before[1]) / added / 1024, "KiB/conn")


def _open_idle(ctx: Context, connections: dict[int, tuple[Imap, bytes]], which: range) -> None:
    """Add connections in IDLE, by number, each with its command's tag."""
    numbers = iter(which)

    async def worker() -> None:
        for number in numbers:
            imap = await ctx.session(number, 1 << 12)
            await imap.select(b"INBOX")
            connections[number] = imap, await imap.idle()

    ctx.together(*(worker() for _ in range(_PARALLEL)))


def _notify(ctx: Context, lmtp: Lmtp, connections: dict[int, tuple[Imap, bytes]],
            deliveries: int) -> None:
    """Deliver one message to each of the first connections; time their answers."""
    messages = standard_messages(ctx.salt + "/idle", deliveries)
    times = _Times()

    async def deliverer() -> None:
        for number, message in enumerate(messages):
            due = time.perf_counter() + _PACE
            taken = await lmtp.deliver(b"sender@example.org", [ctx.target.recipient(number)],
                                       message.lmtp_data())
            ctx.check(taken == 1, "LMTP: a recipient was refused")
            times.sent.append(lmtp.sent_at)
            times.accepted.append(time.perf_counter())
            await sleep(max(0.0, due - time.perf_counter()))

    async def watcher(number: int) -> None:
        if await connections[number][0].exists_within(_PATIENCE):
            times.noticed[number] = time.perf_counter()

    watched = [number for number in range(deliveries) if number in connections]
    with ctx.span() as span:
        ctx.together(deliverer(), *(watcher(number) for number in watched))
    ctx.expect("connections that were told", len(times.noticed), deliveries)
    _report_latency(ctx, times)
    ctx.cost("idle.notify.cpu", span, deliveries)


def _report_latency(ctx: Context, times: _Times) -> None:
    """Median and 99th percentile, in milliseconds, from the data's last byte.

    Also the median from LMTP's 250, which is 0 when the connection heard sooner.
    """
    good = [one for one in times.noticed if one < len(times.accepted)]
    from_sent = [(times.noticed[one] - times.sent[one]) * 1e3 for one in good]
    from_accepted = [max(0.0, times.noticed[one] - times.accepted[one]) * 1e3 for one in good]
    ctx.number("idle.notify.p50", percentile(from_sent, 0.5), "ms")
    ctx.number("idle.notify.p99", percentile(from_sent, 0.99), "ms")
    ctx.number("idle.after-250.p50", percentile(from_accepted, 0.5), "ms")


def _close_idle(ctx: Context, connections: dict[int, tuple[Imap, bytes]]) -> None:
    """DONE and LOGOUT everywhere."""
    todo = iter(connections.values())

    async def worker() -> None:
        for imap, tag in todo:
            ctx.check((await imap.done(tag)).ok, "DONE failed")
            await imap.logout()

    ctx.together(*(worker() for _ in range(_PARALLEL)))
