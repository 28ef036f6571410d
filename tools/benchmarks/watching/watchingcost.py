"""What it costs to have everything on by which a store is watched: `tools/bench watching`. Servers of two workers,
with none of it, with each part alone and with all parts, have short bursts of the same load in turn.

It prints a table for each workload: operations a second, the processor time of all processes for one operation, and
what the supervisor and the keeper, which sends events, have of that. In brackets is the median of the ratios to the
burst just before on a server without any part, since the machine is another one a minute later. A second server without
any part ("nothing again") shows how far chance goes.
"""

import argparse
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import product
from pathlib import Path
from statistics import median

from attrs import define, field, frozen

from mboxlist import privatefiles
from tools.benchmarks import benchserver
from tools.benchmarks.load import procfs
from tools.benchmarks.load.loadimap import Imap
from tools.benchmarks.load.loop import run_one
from tools.benchmarks.load.measuring import Context, Options
from tools.benchmarks.load.messages import standard_messages
from tools.benchmarks.load.preparing import append_in_turn, create, fill
from tools.benchmarks.load.target import Target
from tools.benchmarks.load.workloads.delivering import close_lmtp, deliver_all, open_lmtp
from tools.benchmarks.load.workloads.mixedload import Mixed
from tools.benchmarks.temporaryserver import ADDRESS, SERVERS
from tools.cli import program

NOTHING, ALL = "nothing", "all"
USERS = 100
MAILBOX = 1000              # messages in the mailbox whose flags change
STORES, LETTERS, APPENDS = 400, 400, 150        # operations of a burst
CATCH_UP = 0.7              # seconds after a burst in which what it left to do is done: `gather`, and some more

OFF: dict[str, list[str]] = {"http": ["--http-port", "0"], "audit": ["--audit-kinds", ""], "events": [], "log": []}
#: What turns a part on, where something must; `%s` is the server's folder.
ON: dict[str, list[str]] = {"log": ["--log-format", "json", "--log-level", "info"], "events": ["--config", "%s"]}
RECEIVER = '[outbox.all]\nto = "file:%s"\n'
VARIANTS: dict[str, tuple[str, ...]] = {NOTHING: (), "nothing again": (), **{part: (part,) for part in OFF},
                                        ALL: tuple(OFF)}


@frozen
class Machine:
    """A server with some parts on; the processes that serve clients, and the others."""

    name: str
    target: Target
    workers: tuple[int, ...]
    others: tuple[int, ...]


@define
class Figures:
    """Of each burst of one workload on one server: operations a second, and microseconds of CPU for each of them."""

    rates: list[float] = field(factory=list)
    serving: list[float] = field(factory=list)
    beside: list[float] = field(factory=list)

    @property
    def together(self) -> list[float]:
        """CPU of all processes."""
        return [one + other for one, other in zip(self.serving, self.beside, strict=True)]


Load = Callable[[Machine, Context, Figures], None]


def parse(words: Sequence[str]) -> argparse.Namespace:
    """The arguments."""
    parser = argparse.ArgumentParser("tools/bench watching", allow_abbrev=False, description=__doc__)
    parser.add_argument("--rounds", type=int, default=15, metavar="N", help="bursts of each workload on each server "
                        "(15)")
    parser.add_argument("--only", choices=tuple(Loads.NAMES), action="append", metavar="NAME",
                        help=f"this workload alone ({', '.join(Loads.NAMES)})")
    parser.add_argument("--parts", choices=tuple(VARIANTS)[1:], action="append", metavar="PART",
                        help=f"this part alone beside none ({', '.join(tuple(VARIANTS)[1:])}); can be repeated")
    parser.add_argument("--mixed-seconds", type=float, default=2.0, metavar="S", help="of a burst of mixed (2)")
    parser.add_argument("--dir", type=Path, metavar="FOLDER", help="where to make the temporary folders")
    return parser.parse_args(words)


@contextmanager
def machine(name: str, folder: Path) -> Iterator[Machine]:
    """A server of two workers on a fresh store, with those parts on."""
    place, config = folder / f"{name}.json", folder / f"{name}.toml"
    privatefiles.write(config, RECEIVER % (folder / f"{name}.events"))
    on = VARIANTS[name]
    options = [word.replace("%s", str(config)) for part in OFF
               for word in (ON.get(part, []) if part in on else OFF[part])]
    try:
        found = benchserver.up(place, 2, USERS, folder, options)
        imap, pop3, lmtp = ((ADDRESS, found[server][1]) for server in SERVERS)
        pid = found["pid"]
        target = Target(name, found["user"], found["password"], USERS, imap, pop3, lmtp, pid, Path(found["data"]))
        below = sorted(set(procfs.process_tree(pid)) - {pid}, key=lambda each: (int(procfs.start_time(each)), each))
        yield Machine(name, target, tuple(below[1:]), (pid, *below[:1]))
    finally:
        benchserver.down(place)


@contextmanager
def counted(machine: Machine, figures: Figures) -> Iterator[list[int]]:
    """Measure what runs inside; it appends the number of its operations."""
    done = list[int]()
    serving, beside, began = _used(machine.workers), _used(machine.others), time.perf_counter()
    yield done
    seconds = time.perf_counter() - began
    time.sleep(CATCH_UP)
    count = max(1, sum(done))
    figures.rates.append(count / seconds)
    figures.serving.append((_used(machine.workers) - serving) / count * 1e6)
    figures.beside.append((_used(machine.others) - beside) / count * 1e6)


def _used(pids: Sequence[int]) -> float:
    return sum(procfs.cpu_of(pid) for pid in pids)


@define
class Loads:
    """The workloads, with what each keeps of a server from burst to burst."""

    mixed_seconds: float
    _clients: dict[str, Imap] = field(factory=dict, init=False)
    _mixes: dict[str, Mixed] = field(factory=dict, init=False)

    NAMES = ("store.1", "lmtp-1", "append", "mixed")

    def of(self, name: str) -> Load:
        """That workload."""
        loads: Mapping[str, Load] = dict(zip(self.NAMES, (self.store, self.deliver, self.append, self.mix),
                                             strict=True))
        return loads[name]

    def store(self, machine: Machine, context: Context, figures: Figures) -> None:
        r"""\Seen of one message after the other is set, and in the next burst cleared."""
        client = self._clients.get(machine.name)
        if client is None:
            client = self._clients[machine.name] = context.login()
            create(client, b"load-watched")
            fill(context, client, b"load-watched", standard_messages(context.salt, MAILBOX))
            run_one(client.select(b"load-watched"))

        async def one_by_one(sign: bytes) -> int:
            for uid in range(1, STORES + 1):
                context.check((await client.command(b"UID STORE %d %bFLAGS (\\Flagged)" % (uid, sign))).ok, "STORE")
            return STORES

        with counted(machine, figures) as done:
            done.append(run_one(one_by_one(b"-" if context.run % 2 else b"+")))

    def deliver(self, machine: Machine, context: Context, figures: Figures) -> None:
        """Messages to one recipient each, by eight connections."""
        parcels = [(one.lmtp_data(), [at % USERS]) for at, one in enumerate(standard_messages(context.salt, LETTERS))]
        connections = open_lmtp(context, 8)
        with counted(machine, figures) as done:
            done.append(deliver_all(context, connections, iter(parcels), context.deadline())[1])
        close_lmtp(connections)

    def append(self, machine: Machine, context: Context, figures: Figures) -> None:
        """APPEND of one message after the other."""
        client, messages = context.login(), standard_messages(context.salt, APPENDS)
        create(client, b"load-appended")
        with counted(machine, figures) as done:
            done.append(run_one(append_in_turn(client, b"load-appended", messages))[0])
        run_one(client.logout())

    def mix(self, machine: Machine, context: Context, figures: Figures) -> None:
        """Clients and deliveries; the first burst on a server makes its mailboxes."""
        if machine.name not in self._mixes:
            self._mixes[machine.name] = Mixed.ready(context)
        mix = self._mixes[machine.name]
        letters = mix.letters(context, self.mixed_seconds)
        with counted(machine, figures) as done:
            done.append(mix.run(context, letters, self.mixed_seconds).operations)


def measure(chosen: argparse.Namespace, servers: Sequence[Machine]) -> dict[str, dict[str, Figures]]:
    """All bursts, by workload and server. The first burst of each is not counted."""
    salt, loads, found = f"{time.time_ns():x}", Loads(chosen.mixed_seconds), dict[str, dict[str, Figures]]()
    for name in chosen.only or Loads.NAMES:
        found[name] = {each.name: Figures() for each in servers}
        for round_, each in product(range(chosen.rounds + 1), servers):
            context = Context(each.target, Options(), name, round_, f"{salt}/{name}/{round_}")
            loads.of(name)(each, context, found[name][each.name] if round_ else Figures())
            for complaint, count in context.errors.most_common(3):
                _note(f"{name}, {each.name}: wrong, {count} times: {complaint}")
        _note(f"{name} is through")
    return found


def table(found: Mapping[str, Figures]) -> str:
    """In Markdown."""
    lines = [["on", "a second", "CPU, us", "of these beside the workers"], ["---", "---:", "---:", "---:"]]
    base = found[NOTHING]
    for name, each in found.items():
        lines.append([name, _with_ratio(each.rates, base.rates), _with_ratio(each.together, base.together),
                      f"{median(each.beside):,.0f}"])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _with_ratio(values: Sequence[float], base: Sequence[float]) -> str:
    if values is base:
        return f"{median(values):,.0f}"
    ratios = sorted(one / other for one, other in zip(values, base, strict=True))
    quarter = len(ratios) // 4
    return (f"{median(values):,.0f} ({median(ratios):.3f}; half of them from {ratios[quarter]:.2f} to "
            f"{ratios[-1 - quarter]:.2f})")


def _note(text: str) -> None:
    print(time.strftime("%H:%M:%S"), text, file=sys.stderr, flush=True)


def run(words: Sequence[str]) -> int:
    """The command."""
    chosen = parse(words)
    signal.signal(signal.SIGTERM, signal.default_int_handler)       # the servers are ended then, too
    with privatefiles.temporary_folder("onecopy-watching-", chosen.dir) as folder, ExitStack() as up:
        servers = [up.enter_context(machine(name, folder)) for name in dict.fromkeys((NOTHING, *(
            chosen.parts or tuple(VARIANTS)[1:])))]
        before, began = procfs.machine_cpu_seconds(), time.monotonic()
        found = measure(chosen, servers)
        busy = (procfs.machine_cpu_seconds() - before) / (time.monotonic() - began)
        print(f"Medians of {chosen.rounds} bursts in turn; the machine used {busy:.1f} cores in all.")
        for name, figures in found.items():
            print(f"\n{name}\n\n{table(figures)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(program.guarded(lambda: run(sys.argv[1:])))
