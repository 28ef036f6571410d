"""SEARCH, SORT and THREAD over the prepared mailbox: milliseconds each."""

import re
from datetime import timedelta

from tools.benchmarks.load.loadimap import Imap, Reply
from tools.benchmarks.load.loop import run_one
from tools.benchmarks.load.measuring import Context, Skip
from tools.benchmarks.load.messages import GAP_EVERY, MARKER_WORD, Message, search_date
from tools.benchmarks.load.workloads.fetching import open_prepared

# Rounds of a query that the server's indexes can answer.
_ROUNDS = 5


def search(ctx: Context) -> None:
    """SEARCH by flag, header and date, and in the text."""
    imap, messages = open_prepared(ctx)
    since = _gap_before_the_end(messages)
    sender = messages[0].sender.address.split("@")[0]
    queries = [
        ("search.unseen", "UNSEEN", [not one.seen for one in messages], _ROUNDS),
        ("search.from", f"FROM {sender}",
         [sender in one.sender.address for one in messages], _ROUNDS),
        ("search.since", f"SINCE {search_date(messages[since].sent - timedelta(days=1))}",
         [at >= since for at in range(len(messages))], _ROUNDS),
        ("search.text", f"TEXT {MARKER_WORD}", [one.marked for one in messages], 1),
        ("search.body", f"BODY {MARKER_WORD}", [one.marked for one in messages], 1),
    ]
    for metric, query, answers, rounds in queries:
        expected = [at for at, good in enumerate(answers, 1) if good]
        for reply in _time_rounds(ctx, imap, metric, b"SEARCH " + query.encode(), rounds):
            ctx.check(reply.ok, f"{metric}: {reply.line!r}")
            found = reply.numbers(b"SEARCH")
            ctx.check(found == expected, f"{metric}: {len(found)} messages found, "
                                         f"expected {len(expected)} (or others)")
    run_one(imap.logout())


def _time_rounds(ctx: Context, imap: Imap, metric: str, command: bytes,
                 rounds: int) -> list[Reply]:
    """Time a command, once if it is slow, else in some rounds after a first one.

    The first one may fill the server's caches; what it costs depends on what
    was asked before, so it is left out.
    """
    if rounds > 1:
        run_one(imap.command(command))
    with ctx.span() as span:
        replies = [run_one(imap.command(command, keep=True)) for _ in range(rounds)]
    ctx.each(metric, span, rounds)
    return replies


def _gap_before_the_end(messages: list[Message]) -> int:
    """The index of the last message that follows a gap of three days."""
    return (len(messages) - 1) // GAP_EVERY * GAP_EVERY


def sort(ctx: Context) -> None:
    """SORT by date and THREAD by references, where the server has them."""
    if not (ctx.offers("SORT") or ctx.offers("THREAD=REFERENCES")):
        raise Skip("neither SORT nor THREAD=REFERENCES")
    imap, messages = open_prepared(ctx)
    if ctx.offers("SORT"):
        _sort(ctx, imap, messages)
    if ctx.offers("THREAD=REFERENCES"):
        _thread(ctx, imap, messages)
    run_one(imap.logout())


def _sort(ctx: Context, imap: Imap, messages: list[Message]) -> None:
    order = list(range(len(messages), 0, -1))       # Dates grow with the numbers
    command = b"SORT (REVERSE DATE) UTF-8 ALL"
    for reply in _time_rounds(ctx, imap, "sort.date", command, _ROUNDS):
        ctx.check(reply.ok, f"SORT: {reply.line!r}")
        ctx.check(reply.numbers(b"SORT") == order, "SORT: not the right order")


def _thread(ctx: Context, imap: Imap, messages: list[Message]) -> None:
    command = b"THREAD REFERENCES UTF-8 ALL"
    for reply in _time_rounds(ctx, imap, "thread.references", command, _ROUNDS):
        ctx.check(reply.ok, f"THREAD: {reply.line!r}")
        line = reply.untagged[reply.untagged.find(b"* THREAD"):]
        numbers = {int(one) for one in re.findall(rb"\d+", line)}
        ctx.check(numbers == set(range(1, len(messages) + 1)), "THREAD: messages are missing")
