"""What one operation costs the server, in microseconds of CPU, with as much of everything as there is just now."""

import resource
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import count

from tools.benchmarks.load import procfs
from tools.benchmarks.load.loadimap import Imap
from tools.benchmarks.load.loadlmtp import Lmtp
from tools.benchmarks.load.loop import run, run_one
from tools.benchmarks.load.measuring import Context, Options, settled_cpu
from tools.benchmarks.load.messages import Message, MessageFactory
from tools.benchmarks.load.target import Target

WARM = 5                    # times that an operation is done before it is measured
SECONDS = 0.2               # that it is measured for, if it is done often enough in them, and not too often
LEAST, MOST = 40, 1000
STEP = 7919                 # users are taken far from each other
FILES = 45_000              # descriptors that are wanted, for clients as for servers
PARALLEL = 8                # connections that are opened at the same time

Operation = Callable[[], object]


def allow_many_files() -> int:
    """As many descriptors as the system gives; how many. Servers started from here on inherit it."""
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES))
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def costs(target: Target, mailbox: bytes) -> dict[str, float]:
    """By operation. `mailbox` is one of the first user's; the others' INBOXes get deliveries."""
    context = Context(target, Options(), "scaling", 0, f"{time.time_ns():x}")
    lmtp = Lmtp(target.lmtp)
    run_one(lmtp.hello())
    imap = context.login()
    run_one(imap.select(mailbox))
    found = {}
    for name, operation in _operations(target, context, imap, lmtp, mailbox).items():
        begun = time.perf_counter()
        for _ in range(WARM):
            operation()
        times = int(min(MOST, max(LEAST, SECONDS * WARM / (time.perf_counter() - begun))))
        before = settled_cpu(target.pid)
        for _ in range(times):
            operation()
        found[name] = (settled_cpu(target.pid) - before) / times * 1e6
    run_one(lmtp.quit())
    run_one(imap.logout())
    return found


def _operations(target: Target, context: Context, imap: Imap, lmtp: Lmtp, mailbox: bytes) -> dict[str, Operation]:
    messages, number, uids = MessageFactory(context.salt), count(), _some_uids(imap)

    def deliver() -> None:
        rcpt = target.recipient(1 + next(number) * STEP)
        run_one(lmtp.deliver(b"sender@example.org", [rcpt], messages.small().lmtp_data()))

    def uid() -> int:
        return uids[next(number) * STEP % len(uids)]

    def session() -> None:
        other = context.login(1 + next(number) % WARM, 1 << 14)
        run_one(other.select(b"INBOX"))
        run_one(other.logout())

    return {
        "delivery to one of the users": deliver,
        "LOGIN, SELECT INBOX, LOGOUT": session,
        "NOOP": lambda: run_one(imap.must(b"NOOP")),
        "SELECT again": lambda: run_one(imap.select(mailbox)),
        "UID FETCH of a body": lambda: run_one(imap.must(b"UID FETCH %d BODY.PEEK[]" % uid())),
        "UID STORE of a flag": lambda: run_one(imap.must(b"UID STORE %d +FLAGS (\\Answered)" % uid())),
        "UID SEARCH of a flag in 100": lambda: run_one(imap.must(b"UID SEARCH UID %d:%d UNSEEN" % (
            uids[0], uids[min(99, len(uids) - 1)]))),
        "APPEND": lambda: run_one(_append(imap, mailbox, messages.small())),
    }


def _some_uids(imap: Imap) -> list[int]:
    found = run_one(imap.must(b"UID SEARCH ALL", keep=True)).numbers(b"SEARCH")
    return found or [1]


async def _append(imap: Imap, mailbox: bytes, message: Message) -> None:
    await imap.reply(await imap.send_append(mailbox, [message]))


def idle(target: Target, wanted: int) -> tuple[list[Imap], float]:
    """So many connections in IDLE, and what each adds to the server's memory, in KiB."""
    before, numbers = procfs.proportional_bytes(target.pid), iter(range(wanted))
    context, opened = Context(target, Options(), "scaling", 0, ""), []

    async def worker() -> None:
        for number in numbers:
            imap = await context.session(number, 1 << 10)
            await imap.select(b"INBOX")
            await imap.idle()
            opened.append(imap)

    for ended in run(*(worker() for _ in range(PARALLEL))):
        if isinstance(ended, Exception):
            raise ended
    return opened, (procfs.proportional_bytes(target.pid) - before) / max(1, wanted) / 1024
