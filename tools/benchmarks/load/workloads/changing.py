"""Workloads that change flags and move messages about."""

import time
from collections.abc import Iterable

from tools.benchmarks.load.loadimap import Imap
from tools.benchmarks.load.loop import run_one
from tools.benchmarks.load.measuring import Context
from tools.benchmarks.load.preparing import create, drop_mailbox, fill, prepared_messages, remove
from tools.benchmarks.load.workloads.fetching import open_prepared


def number_set(numbers: Iterable[int]) -> bytes:
    """An IMAP sequence set of growing numbers, ranges joined."""
    runs: list[list[int]] = []
    for one in numbers:
        if runs and runs[-1][1] == one - 1:
            runs[-1][1] = one
        else:
            runs.append([one, one])
    return b",".join(b"%d" % a if a == b else b"%d:%d" % (a, b) for a, b in runs)


def store(ctx: Context) -> None:
    r"""\Seen one by one, \Flagged on all at once; both are taken back at the end."""
    imap, messages = open_prepared(ctx)
    uids = run_one(imap.must(b"UID SEARCH UNSEEN", keep=True)).numbers(b"SEARCH")
    uids = uids[:ctx.options.scaled(2000)]

    async def one_by_one() -> int:
        deadline = ctx.deadline(0.5)
        done = 0
        for uid in uids:
            reply = await imap.command(b"UID STORE %d +FLAGS (\\Seen)" % uid)
            ctx.check(reply.ok and reply.fetches == 1, "UID STORE: no FETCH response")
            done += 1
            if time.perf_counter() > deadline:
                break
        return done

    with ctx.span() as span:
        done = run_one(one_by_one())
    ctx.rate("store.1", span, done, "msg/s")
    still = run_one(imap.must(b"UID SEARCH UNSEEN UID " + number_set(uids[:done]), keep=True))
    ctx.expect("messages not made \\Seen", len(still.numbers(b"SEARCH")), 0)
    run_one(imap.must(b"UID STORE %b -FLAGS.SILENT (\\Seen)" % number_set(uids[:done])))

    with ctx.span() as span:
        replies = [run_one(imap.command(b"STORE 1:* %bFLAGS.SILENT (\\Flagged)" % sign))
                   for sign in (b"+", b"-", b"+", b"-", b"+")]
    ctx.rate("store.bulk", span, len(replies) * len(messages), "msg/s")
    ctx.check(all(one.ok for one in replies), "STORE 1:* failed")
    flagged = run_one(imap.must(b"SEARCH FLAGGED", keep=True)).numbers(b"SEARCH")
    ctx.expect("messages made \\Flagged", len(flagged), len(messages))
    run_one(imap.must(b"STORE 1:* -FLAGS.SILENT (\\Flagged)"))
    run_one(imap.logout())


def _portion(ctx: Context) -> int:
    """How many messages copy and expunge handle."""
    return min(ctx.options.scaled(5000), ctx.options.mailbox_size)


def copy(ctx: Context) -> None:
    """COPY of 5,000 messages to a new mailbox, and MOVE of them on to another."""
    imap, _ = open_prepared(ctx)
    count = _portion(ctx)
    first, second = ctx.mailbox("load-copy"), ctx.mailbox("load-move")
    create(imap, first)
    create(imap, second)
    with ctx.span() as span:
        reply = run_one(imap.command(b"COPY 1:%d %b" % (count, first)))
    ctx.rate("copy", span, count, "msg/s")
    ctx.check(reply.ok, f"COPY: {reply.line!r}")
    ctx.expect("COPY: messages", run_one(imap.status(first)), count)
    if ctx.offers("MOVE"):
        _move(ctx, imap, first, second, count)
    run_one(imap.logout())
    for mailbox in first, second:
        drop_mailbox(ctx, 0, mailbox)


def _move(ctx: Context, imap: Imap, first: bytes, second: bytes, count: int) -> None:
    run_one(imap.select(first))
    with ctx.span() as span:
        reply = run_one(imap.command(b"MOVE 1:* " + second, keep=True))
    ctx.rate("move", span, count, "msg/s")
    ctx.check(reply.ok, f"MOVE: {reply.line!r}")
    ctx.expect("MOVE: EXPUNGE responses", reply.untagged.count(b" EXPUNGE"), count)
    ctx.expect("MOVE: messages there", run_one(imap.status(second)), count)
    run_one(imap.must(b"CLOSE"))


def expunge(ctx: Context) -> None:
    r"""\Deleted on 5,000 messages of a mailbox of their own, and EXPUNGE."""
    messages = prepared_messages(ctx)[:_portion(ctx)]
    mailbox = ctx.mailbox("load-expunge")
    imap = ctx.login()
    create(imap, mailbox)
    fill(ctx, imap, mailbox, messages)
    run_one(imap.select(mailbox))
    with ctx.span() as span:
        run_one(imap.must(b"STORE 1:* +FLAGS.SILENT (\\Deleted)"))
        reply = run_one(imap.command(b"EXPUNGE", keep=True))
    ctx.rate("expunge", span, len(messages), "msg/s")
    ctx.check(reply.ok, f"EXPUNGE: {reply.line!r}")
    ctx.expect("EXPUNGE responses", reply.untagged.count(b" EXPUNGE"), len(messages))
    run_one(imap.must(b"CLOSE"))
    ctx.expect("messages after EXPUNGE", run_one(imap.status(mailbox)), 0)
    remove(imap, mailbox)
    run_one(imap.logout())
