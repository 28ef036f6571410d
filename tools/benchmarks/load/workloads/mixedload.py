"""A mix of clients and deliveries at the same time."""

import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from itertools import accumulate
from random import Random

from attrs import define, field

from tools.benchmarks.load.loadimap import Imap
from tools.benchmarks.load.loadlmtp import Lmtp
from tools.benchmarks.load.loop import run_one, sleep
from tools.benchmarks.load.measuring import Context, percentile
from tools.benchmarks.load.messages import Message, standard_messages
from tools.benchmarks.load.preparing import fill
from tools.benchmarks.load.workloads.delivering import close_lmtp, open_lmtp, ready_inboxes

_CLIENTS = 64
_DELIVERERS = 4
# Messages in each INBOX at the start.
_INITIAL = 100
# One message is delivered for so many IMAP operations, whatever the speed,
# so that every server does the same work per operation.
_OPERATIONS_PER_DELIVERY = 16
# Messages at hand for each second; more than any server takes.
_LETTERS_PER_SECOND = 500
# Longest stay in IDLE, in seconds; short, so that the clients keep a server busy.
_IDLE_SECONDS = 0.01

_WEIGHTS = {"select": 10, "fetch-new": 25, "fetch-body": 25, "store": 20, "search": 10, "idle": 10}


@define
class _Totals:
    """What all clients did: latencies in milliseconds by operation."""

    end: float
    latencies: dict[str, list[float]] = field(factory=lambda: defaultdict(list))
    imap_operations: int = 0
    deliveries: int = 0

    @property
    def operations(self) -> int:
        """All of them."""
        return self.imap_operations + self.deliveries

    def running(self) -> bool:
        """Whether there is time left."""
        return time.perf_counter() < self.end

    def note(self, operation: str, since: float) -> None:
        """Record an operation that began at `since`."""
        self.latencies[operation].append((time.perf_counter() - since) * 1e3)


def mixed(ctx: Context) -> None:
    """64 IMAP clients and 4 deliverers for 20 s: operations a second and latencies."""
    ready, seconds = Mixed.ready(ctx), min(20.0 * ctx.options.scale, ctx.options.max_seconds)
    letters = ready.letters(ctx, seconds)
    with ctx.span() as span:
        totals = ready.run(ctx, letters, seconds)
    ctx.rate("mixed", span, totals.operations, "op/s")
    for name in [*_WEIGHTS, "deliver"]:
        ctx.number(f"mixed.{name}.p50", percentile(totals.latencies[name], 0.5), "ms")
        ctx.number(f"mixed.{name}.p99", percentile(totals.latencies[name], 0.99), "ms")
    ready.end(ctx, totals.deliveries)


@define
class Mixed:
    """The clients, logged in, with some messages in each INBOX, and the deliverers."""

    _clients: list["_Client"]
    _deliverers: list[Lmtp]
    _users: range

    @classmethod
    def ready(cls, ctx: Context) -> "Mixed":
        """Make the mailboxes, and connect."""
        users = range(min(_CLIENTS, ctx.target.users))
        return cls(_set_up(ctx, users), open_lmtp(ctx, _DELIVERERS), users)

    def letters(self, ctx: Context, seconds: float) -> list[Message]:
        """As many as so many seconds can take."""
        return standard_messages(ctx.salt + "/mixed", int(seconds * _LETTERS_PER_SECOND))

    def run(self, ctx: Context, letters: list[Message], seconds: float) -> "_Totals":
        """Have all work for so many seconds."""
        totals = _Totals(time.perf_counter() + seconds)
        letter_box = _LetterBox(ctx, totals, letters, len(self._users))
        ctx.together(*(one.work(totals) for one in self._clients),
                     *(letter_box.work(one) for one in self._deliverers))
        return totals

    def end(self, ctx: Context, deliveries: int) -> None:
        """Compare the INBOXes with what was delivered, and empty them."""
        for client in self._clients:
            run_one(client.imap.logout())
        close_lmtp(self._deliverers)
        ctx.expect("messages in the INBOXes", ctx.count_inboxes(self._users),
                   _INITIAL * len(self._users) + deliveries)
        ctx.clear_inboxes(self._users)


def _set_up(ctx: Context, users: range) -> list["_Client"]:
    """One client a user, with some messages in its INBOX."""
    ready_inboxes(ctx, users)
    messages = standard_messages(ctx.salt + "/mixed-initial", _INITIAL * len(users))
    clients = []
    for index in users:
        imap = ctx.login(index, 1 << 15)
        own = messages[index * _INITIAL:(index + 1) * _INITIAL]
        fill(ctx, imap, b"INBOX", own)
        client = _Client(ctx, imap, Random(f"{ctx.options.seed}/{index}"))
        run_one(client.begin(own))
        clients.append(client)
    return clients


class _Client:
    """One user's mail program."""

    def __init__(self, ctx: Context, imap: Imap, rng: Random) -> None:
        self.imap = imap
        self._ctx = ctx
        self._rng = rng
        self._uids: list[int] = []
        self._seen: set[int] = set()
        self._next = 1                  # no message below this UID is new
        self._operations: dict[str, Callable[[], Awaitable[float]]] = {
            "select": self._select, "fetch-new": self._fetch_new,
            "fetch-body": self._fetch_body, "store": self._store,
            "search": self._search, "idle": self._idle}

    async def begin(self, messages: Sequence[Message]) -> None:
        """SELECT and learn the UIDs of `messages`, which the INBOX holds."""
        await self.imap.select(b"INBOX")
        reply = await self.imap.must(b"UID SEARCH ALL", keep=True)
        self._uids = reply.numbers(b"SEARCH")
        self._seen = {uid for uid, one in zip(self._uids, messages, strict=True) if one.seen}
        self._next = self._uids[-1] + 1

    async def work(self, totals: _Totals) -> None:
        """Operations in a random order, until the time is over."""
        names = list(_WEIGHTS)
        weights = list(accumulate(_WEIGHTS.values()))
        while totals.running():
            name = self._rng.choices(names, cum_weights=weights)[0]
            began = await self._operations[name]()
            totals.note(name, began)
            totals.imap_operations += 1

    # Each operation returns the time.perf_counter() it is to be timed from.

    async def _select(self) -> float:
        began = time.perf_counter()
        exists, _ = await self.imap.select(b"INBOX")
        self._ctx.check(exists >= len(self._uids), "mixed: SELECT lost messages")
        return began

    async def _fetch_new(self) -> float:
        began = time.perf_counter()
        await self.imap.must(b"NOOP")
        reply = await self.imap.command(
            b"UID FETCH %d:* (UID FLAGS RFC822.SIZE ENVELOPE)" % self._next, keep=True)
        # n:* always holds the last message, new or not.
        self._ctx.check(reply.ok and reply.fetches >= 1, "mixed: fetch-new failed")
        for word in reply.untagged.split(b"UID ")[1:]:
            uid = int(word.split(None, 1)[0].rstrip(b")"))
            if uid >= self._next:
                self._uids.append(uid)
        self._next = self._uids[-1] + 1
        return began

    async def _fetch_body(self) -> float:
        began = time.perf_counter()
        uid = self._rng.choice(self._uids)
        reply = await self.imap.command(b"UID FETCH %d BODY.PEEK[]" % uid)
        self._ctx.check(reply.ok and reply.literals == 1, "mixed: fetch-body failed")
        return began

    async def _store(self) -> float:
        began = time.perf_counter()
        uid = self._rng.choice(self._uids)
        sign = b"-" if uid in self._seen else b"+"
        self._seen ^= {uid}
        reply = await self.imap.command(b"UID STORE %d %bFLAGS (\\Seen)" % (uid, sign))
        self._ctx.check(reply.ok and reply.fetches >= 1, "mixed: store failed")
        return began

    async def _search(self) -> float:
        began = time.perf_counter()
        reply = await self.imap.command(b"UID SEARCH UNSEEN")
        self._ctx.check(reply.ok, "mixed: search failed")
        return began

    async def _idle(self) -> float:
        """IDLE for a moment; only its beginning and end count."""
        began = time.perf_counter()
        tag = await self.imap.idle()
        waiting = time.perf_counter()
        await self.imap.exists_within(_IDLE_SECONDS)
        waited = time.perf_counter() - waiting
        self._ctx.check((await self.imap.done(tag)).ok, "mixed: idle failed")
        return began + waited


class _LetterBox:
    """Deliveries in step with the IMAP operations."""

    def __init__(self, ctx: Context, totals: _Totals, letters: list[Message], users: int) -> None:
        self._ctx = ctx
        self._totals = totals
        self._letters = iter([one.lmtp_data() for one in letters])
        self._users = users
        self._begun = 0

    async def work(self, lmtp: Lmtp) -> None:
        """Deliver whenever one is due, until the time or the letters are over."""
        totals = self._totals
        while totals.running():
            if self._begun * _OPERATIONS_PER_DELIVERY > totals.imap_operations:
                await sleep(0.003)
                continue
            data = next(self._letters, None)
            if data is None:
                self._ctx.errors["mixed: too few messages were made"] += 1
                return
            number = self._begun
            self._begun += 1
            began = time.perf_counter()
            rcpt = self._ctx.target.recipient(number * 29 % self._users)
            taken = await lmtp.deliver(b"sender@example.org", [rcpt], data)
            self._ctx.check(taken == 1, "LMTP: a recipient was refused")
            totals.note("deliver", began)
            totals.deliveries += 1
