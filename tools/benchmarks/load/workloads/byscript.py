"""Deliveries by scripts: all recipients have the ten rules of `tenrules`."""

from collections.abc import Sequence
from itertools import islice

from attrs import evolve

from tools.benchmarks import tenrules
from tools.benchmarks.load.measuring import Context
from tools.benchmarks.load.messages import Message, standard_messages
from tools.benchmarks.load.workloads.delivering import close_lmtp, deliver_all, open_lmtp, ready_inboxes


def sieve_1(ctx: Context) -> None:
    """One recipient with a script a message over 8 connections: messages a second."""
    _deliver(ctx, "sieve-1", "msg/s", standard_messages(ctx.salt + "/sieve", ctx.options.scaled(2000)), 1)


def sieve_50(ctx: Context) -> None:
    """50 recipients a message, each with a script: deliveries a second."""
    _deliver(ctx, "sieve-50", "rcpt/s", standard_messages(ctx.salt + "/sieve50", ctx.options.scaled(200)), 50)


def _deliver(ctx: Context, metric: str, unit: str, messages: Sequence[Message], recipients: int) -> None:
    ctx.target = evolve(ctx.target, user=tenrules.USER, users=min(ctx.target.users, tenrules.MOST))
    users, mailboxes = range(ctx.target.users), [ctx.mailbox(name) for name in tenrules.MAILBOXES]
    recipients = min(recipients, len(users))
    parcels = [(one.lmtp_data(), [users[(at * 7 + more) % len(users)] for more in range(recipients)])
               for at, one in enumerate(messages)]
    ready_inboxes(ctx, users)
    before = sum(ctx.over_users(users, lambda user: _filed(ctx, user, mailboxes)))
    connections = open_lmtp(ctx, 8)
    with ctx.span() as span:
        sent, accepted = deliver_all(ctx, connections, iter(parcels), ctx.deadline())
    ctx.rate(metric, span, accepted, unit)
    close_lmtp(connections)
    filed = recipients * sum(tenrules.is_filed(one.raw) for one in islice(messages, sent))
    after = sum(ctx.over_users(users, lambda user: _filed(ctx, user, mailboxes)))
    ctx.expect("messages that were filed", after - before, filed)
    ctx.expect("messages in the INBOXes", ctx.count_inboxes(users), accepted - filed)
    ctx.clear_inboxes(users)


async def _filed(ctx: Context, user: int, mailboxes: Sequence[bytes]) -> int:
    """How many messages are in these mailboxes; those that are not there are made."""
    imap, total = await ctx.session(user), 0
    for mailbox in mailboxes:
        count = await imap.status(mailbox)
        if count < 0:
            await imap.must(b"CREATE " + mailbox)
        total += max(count, 0)
    await imap.logout()
    return total
