"""Workloads that read a large mailbox."""

import time
from collections.abc import Sequence

from tools.benchmarks.load.loadimap import Imap
from tools.benchmarks.load.loop import run_one
from tools.benchmarks.load.measuring import Context, Span
from tools.benchmarks.load.messages import Message, small_messages
from tools.benchmarks.load.preparing import drop_mailbox, fresh_mailbox, prepared_mailbox

_MIB = 1 << 20
_ENVELOPE = b"FETCH 1:* (UID FLAGS INTERNALDATE RFC822.SIZE ENVELOPE BODYSTRUCTURE)"
_HEADER = b"FETCH 1:* BODY.PEEK[HEADER.FIELDS (FROM TO CC SUBJECT DATE MESSAGE-ID REFERENCES)]"
# Sessions of one user at a time; servers limit them.
_SESSIONS = 5
# Rounds of a quick command, so that its time and CPU can be told.
_ROUNDS = 10
_SELECT_ROUNDS = 5


def open_prepared(ctx: Context) -> tuple[Imap, list[Message]]:
    """A session with the prepared mailbox selected."""
    mailbox, messages = prepared_mailbox(ctx)
    imap = ctx.login()
    run_one(imap.select(mailbox))
    return imap, messages


def fetch_flags(ctx: Context) -> None:
    """SELECT of the large mailbox in new sessions, and all of its flags."""
    mailbox, messages = prepared_mailbox(ctx)
    _time_select(ctx, mailbox, len(messages))
    imap = ctx.login()
    run_one(imap.select(mailbox))
    with ctx.span() as span:
        replies = [run_one(imap.command(b"UID FETCH 1:* (FLAGS)")) for _ in range(_ROUNDS)]
    ctx.rate("fetch-flags", span, _ROUNDS * len(messages), "msg/s")
    for reply in replies:
        ctx.check(reply.ok, "UID FETCH FLAGS failed")
        ctx.expect("UID FETCH FLAGS: responses", reply.fetches, len(messages))
    run_one(imap.logout())


def _time_select(ctx: Context, mailbox: bytes, size: int) -> None:
    """SELECT once in each of some sessions already logged in, one after the other; of several rounds the median by CPU:
    what a server does from time to time by itself costs more than the few SELECTs of one round."""
    rounds = [_select_once(ctx, mailbox, size) for _ in range(_SELECT_ROUNDS)]
    ctx.each("select", sorted(rounds, key=lambda one: one.server_cpu)[len(rounds) // 2], _SESSIONS)


def _select_once(ctx: Context, mailbox: bytes, size: int) -> Span:
    sessions = [ctx.login() for _ in range(_SESSIONS)]
    with ctx.span() as span:
        counts = [run_one(imap.select(mailbox))[0] for imap in sessions]
    for count in counts:
        ctx.expect("SELECT: messages", count, size)
    for imap in sessions:
        run_one(imap.logout())
    return span


def fetch_envelope(ctx: Context) -> None:
    """What a mail program lists: on mailboxes just filled, and again in a new session."""
    _cold_and_warm(ctx, "fetch-envelope", _ENVELOPE)


def fetch_header(ctx: Context) -> None:
    """Some header fields of all messages: on mailboxes just filled, and again."""
    _cold_and_warm(ctx, "fetch-header", _HEADER)


def _cold_and_warm(ctx: Context, metric: str, command: bytes) -> None:
    """Run one FETCH over mailboxes nobody has read yet, then in another session.

    Cold is for a user of whom no client has read anything, new for one whose
    clients have; a server may have learned from those what to keep in its
    indexes. In both the files are in the page cache.
    """
    messages = small_messages(f"{ctx.salt}/{metric}", ctx.options.cold_size)
    last = ctx.target.users - 1
    for user, states in ((last, ["cold"]), (0, ["new", "warm"])):
        mailbox = fresh_mailbox(ctx, user, f"load-{metric}", messages)
        for state in states:
            _fetch_all(ctx, user, mailbox, f"{metric}.{state}", command, len(messages))
        drop_mailbox(ctx, user, mailbox)


def _fetch_all(ctx: Context, user: int, mailbox: bytes, metric: str, command: bytes,
               size: int) -> None:
    """One FETCH over a whole mailbox in a new session."""
    imap = ctx.login(user)
    run_one(imap.select(mailbox))
    with ctx.span() as span:
        reply = run_one(imap.command(command))
    ctx.rate(metric, span, size, "msg/s")
    ctx.check(reply.ok, f"{metric} failed")
    ctx.expect(f"{metric}: responses", reply.fetches, size)
    run_one(imap.logout())


def fetch_body(ctx: Context) -> None:
    """Whole messages, one by one and 50 at a time: MiB and messages a second."""
    imap, messages = open_prepared(ctx)
    uids = run_one(imap.must(b"UID SEARCH ALL", keep=True)).numbers(b"SEARCH")
    ctx.expect("UID SEARCH ALL", len(uids), len(messages))
    if len(uids) == len(messages):
        _fetch_in_steps(ctx, imap, "fetch-body.1", uids, messages, 1)
        _fetch_in_steps(ctx, imap, "fetch-body.50", uids, messages, 50)
        _verify_bodies(ctx, imap, uids, messages)
    run_one(imap.logout())


def _fetch_in_steps(ctx: Context, imap: Imap, metric: str, uids: Sequence[int],
                    messages: Sequence[Message], step: int) -> None:
    """UID FETCH BODY.PEEK[] of `step` messages at a time."""
    commands = [_fetch_body_of(uids[at], uids[min(at + step, len(uids)) - 1])
                for at in range(0, len(uids), step)]

    async def work() -> tuple[int, int]:
        deadline = ctx.deadline(0.5)
        count = size = 0
        for command in commands:
            reply = await imap.command(command)
            count += reply.literals
            size += reply.literal_bytes
            if not reply.ok:
                ctx.errors[f"{metric}: {reply.line!r}"] += 1
            if time.perf_counter() > deadline:
                break
        return count, size

    with ctx.span() as span:
        count, size = run_one(work())
    ctx.rate(metric, span, count, "msg/s")
    ctx.rate(f"{metric}.bytes", span, 0, "MiB/s", amount=size / _MIB)
    ctx.expect(f"{metric}: bytes", size, sum(len(one.raw) for one in messages[:count]))


def _fetch_body_of(first: int, last: int) -> bytes:
    which = b"%d" % first if first == last else b"%d:%d" % (first, last)
    return b"UID FETCH %b BODY.PEEK[]" % which


def _verify_bodies(ctx: Context, imap: Imap, uids: Sequence[int],
                   messages: Sequence[Message]) -> None:
    """Compare some bodies with what was stored, byte by byte."""
    for at in range(0, len(uids), max(1, len(uids) // 20)):
        reply = run_one(imap.command(_fetch_body_of(uids[at], uids[at]), keep_literals=True))
        ctx.check(reply.kept == [messages[at].raw], "a body is not what was stored")
