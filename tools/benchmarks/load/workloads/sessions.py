"""Workloads about sessions: logins, POP3 visits, many idle connections."""

import time

from tools.benchmarks.load.loadpop3 import Pop3
from tools.benchmarks.load.measuring import Context
from tools.benchmarks.load.messages import Message, standard_messages
from tools.benchmarks.load.workloads.delivering import close_lmtp, deliver_all, open_lmtp, ready_inboxes

_PARALLEL = 8


def login(ctx: Context) -> None:
    """Connect, LOGIN, SELECT INBOX, LOGOUT, 8 at a time: sessions a second."""
    users = range(min(100, ctx.target.users))
    ctx.clear_inboxes(users)
    numbers = iter(range(ctx.options.scaled(1000)))
    deadline = ctx.deadline()

    async def worker() -> int:
        done = 0
        for number in numbers:
            imap = await ctx.session(number % len(users), 1 << 13)
            await imap.select(b"INBOX")
            await imap.logout()
            done += 1
            if time.perf_counter() > deadline:
                break
        return done

    with ctx.span() as span:
        done = sum(ctx.together(*(worker() for _ in range(_PARALLEL))))
    ctx.rate("login", span, done, "sess/s")


def pop3(ctx: Context) -> None:
    """Visits that fetch and delete 100 messages each: messages a second."""
    users = range(min(20, ctx.target.users))
    each = ctx.options.scaled(100, 2)
    messages = standard_messages(ctx.salt + "/pop3", len(users) * each)
    _deal_out(ctx, users, messages)
    todo = iter(users)

    async def worker() -> int:
        return sum([await _visit(ctx, index, each) for index in todo])

    with ctx.span() as span:
        done = sum(ctx.together(*(worker() for _ in range(_PARALLEL))))
    ctx.rate("pop3", span, done, "msg/s")
    ctx.expect("messages left after the visits", ctx.count_inboxes(users), 0)


def _deal_out(ctx: Context, users: range, messages: list[Message]) -> None:
    """Empty the users' INBOXes and deal `messages` out to them by LMTP."""
    ready_inboxes(ctx, users)
    connections = open_lmtp(ctx, _PARALLEL)
    parcels = ((one.lmtp_data(), (at % len(users),)) for at, one in enumerate(messages))
    _, accepted = deliver_all(ctx, connections, parcels, float("inf"))
    ctx.expect("messages refilled", accepted, len(messages))
    close_lmtp(connections)


async def _visit(ctx: Context, index: int, expected: int) -> int:
    """One POP3 session that empties the mailbox; messages fetched."""
    client = Pop3(ctx.target.pop3)
    await client.login(ctx.target.user_name(index), ctx.target.password)
    count, total = await client.stat()
    ctx.expect("STAT: messages", count, expected)
    ids = (await client.multi(b"UIDL")).splitlines()
    ctx.expect("UIDL: lines", len(ids), count)
    size = 0
    for number in range(1, count + 1):
        text = await client.multi(b"RETR %d" % number)
        size += len(text) - text.count(b"\n..")
    ctx.expect("RETR: bytes against STAT", size, total)
    for number in range(1, count + 1):
        await client.ask(b"DELE %d" % number)
    await client.quit()
    return count
