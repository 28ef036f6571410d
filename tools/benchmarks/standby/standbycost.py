"""What a standby costs: `tools/bench standby`. Three servers, without a standby, with an asynchronous and with a
synchronous one on loopback, have short bursts of the same load in turn.

It prints a table of medians: operations a second, and the processor time for one operation of the first machine's
processes and of the process that follows, which on loopback takes from the same cores.
"""

import argparse
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median, quantiles

from attrs import define, field, frozen

from mboxlist import privatefiles
from tools.benchmarks import benchserver, benchstandby
from tools.benchmarks.load import procfs
from tools.benchmarks.load.measuring import Context, Options
from tools.benchmarks.load.messages import standard_messages
from tools.benchmarks.load.preparing import break_in
from tools.benchmarks.load.target import Target
from tools.benchmarks.load.workloads.delivering import Parcel, close_lmtp, deliver_all, open_lmtp
from tools.benchmarks.load.workloads.mixedload import Mixed
from tools.benchmarks.temporaryserver import ADDRESS, SERVERS
from tools.cli import program

WITHOUT = "without"
USERS = 100
CATCH_UP = 0.2              # seconds after a burst in which what it left to do is done, and counted


@frozen
class Burst:
    """A workload: connections, recipients of each message, and messages of a burst."""

    connections: int
    recipients: int
    messages: int


BURSTS = {"lmtp-1, 1 connection": Burst(1, 1, 240), "lmtp-1, 8 connections": Burst(8, 1, 240),
          "lmtp-1, 32 connections": Burst(32, 1, 480), "lmtp-50, a recipient": Burst(8, 50, 40)}
MIXED = "mixed"


@frozen
class Machine:
    """A server of one mode, and the process that follows it (0: none)."""

    mode: str
    target: Target
    follower: int


@define
class Figures:
    """Of each burst of one workload on one server: operations a second, and microseconds of CPU for each of them."""

    rates: list[float] = field(factory=list)
    serving: list[float] = field(factory=list)
    following: list[float] = field(factory=list)


def parse(words: Sequence[str]) -> argparse.Namespace:
    """The arguments."""
    parser = argparse.ArgumentParser("tools/bench standby", allow_abbrev=False, description=__doc__)
    parser.add_argument("--rounds", type=int, default=7, metavar="N", help="bursts of each workload on each server (7)")
    parser.add_argument("--only", choices=(*BURSTS, MIXED), action="append", metavar="NAME", help="this workload alone")
    parser.add_argument("--modes", choices=benchstandby.MODES, action="append", metavar="MODE", help="this mode alone")
    parser.add_argument("--mixed-seconds", type=float, default=3.0, metavar="S", help="of a burst of mixed (3)")
    parser.add_argument("--dir", type=Path, metavar="FOLDER", help="where to make the temporary folders")
    parser.add_argument("--option", action="append", default=[], metavar="WORD", help="a word for `onecopy serve`")
    return parser.parse_args(words)


@contextmanager
def machine(mode: str, folder: Path, options: Sequence[str]) -> Iterator[Machine]:
    """A server on a fresh store, with its standby."""
    place = folder / f"{mode}.json"
    try:
        found = benchserver.up(place, 1, USERS, folder, list(options), None if mode == WITHOUT else mode)
        imap, pop3, lmtp = ((ADDRESS, found[name][1]) for name in SERVERS)
        target = Target(mode, found["user"], found["password"], USERS, imap, pop3, lmtp, found["pid"],
                        Path(found["data"]))
        yield Machine(mode, target, found["standby"]["pid"] if mode != WITHOUT else 0)
    finally:
        benchserver.down(place)


@contextmanager
def counted(machine: Machine, figures: Figures) -> Iterator[list[int]]:
    """Measure what runs inside; it appends the number of its operations."""
    done = list[int]()
    serving, following, began = _used(machine.target.pid), _used(machine.follower), time.perf_counter()
    yield done
    seconds = time.perf_counter() - began
    time.sleep(CATCH_UP)
    count = max(1, sum(done))
    figures.rates.append(count / seconds)
    figures.serving.append((_used(machine.target.pid) - serving) / count * 1e6)
    figures.following.append((_used(machine.follower) - following) / count * 1e6)


def _used(pid: int) -> float:
    return procfs.cpu_seconds(pid) if pid else 0.0


def deliver(burst: Burst, machine: Machine, context: Context, figures: Figures) -> None:
    """A burst of deliveries."""
    messages = standard_messages(context.salt, burst.messages)
    parcels: list[Parcel] = [(one.lmtp_data(), [(at * 7 + each) % USERS for each in range(burst.recipients)])
                             for at, one in enumerate(messages)]
    connections = open_lmtp(context, burst.connections)
    with counted(machine, figures) as done:
        done.append(deliver_all(context, connections, iter(parcels), context.deadline())[1])
    close_lmtp(connections)


def mix(mixes: dict[str, Mixed], seconds: float, machine: Machine, context: Context, figures: Figures) -> None:
    """A burst of clients and deliveries; the first one on a server makes its mailboxes."""
    if machine.mode not in mixes:
        mixes[machine.mode] = Mixed.ready(context)
    letters = mixes[machine.mode].letters(context, seconds)
    with counted(machine, figures) as done:
        done.append(mixes[machine.mode].run(context, letters, seconds).operations)


def table(found: dict[tuple[str, str], Figures], modes: Sequence[str]) -> str:
    """In Markdown: what there is a second, and CPU microseconds, with the ratio to a server without a standby."""
    head = ["workload", *(f"{what} {mode}" for what in ("a second,", "CPU,") for mode in modes),
            *(f"CPU there, {mode}" for mode in modes if mode != WITHOUT)]
    lines = [head, ["---", *["---:"] * (len(head) - 1)]]
    for name in dict.fromkeys(workload for workload, _ in found):
        each = [found[name, mode] for mode in modes]
        lines.append([name, *_with_ratios([one.rates for one in each]), *_with_ratios([one.serving for one in each]),
                      *(f"{median(one.following):,.0f}" for one in each[1:])])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _with_ratios(values: Sequence[list[float]]) -> list[str]:
    """Medians; of ratios of bursts that were next to each other, since the machine is another one a minute later, with
    the quarters of these."""
    return [f"{median(values[0]):,.0f}", *(f"{median(one):,.0f} ({_ratio(one, values[0])})" for one in values[1:])]


def _ratio(one: Sequence[float], other: Sequence[float]) -> str:
    ratios = [a / b for a, b in zip(one, other, strict=True)]
    low, middle, high = quantiles(ratios, method="inclusive") if len(ratios) > 1 else 3 * ratios
    return f"{middle:.2f}, {low:.2f} to {high:.2f}"


def measure(chosen: argparse.Namespace, servers: Sequence[Machine]) -> dict[tuple[str, str], Figures]:
    """All bursts, by workload and mode."""
    salt, mixes = f"{time.time_ns():x}", dict[str, Mixed]()
    work: dict[str, Callable[[Machine, Context, Figures], None]] = {
        **{name: partial(deliver, burst) for name, burst in BURSTS.items()},
        MIXED: partial(mix, mixes, chosen.mixed_seconds)}
    names = [name for name in work if chosen.only is None or name in chosen.only]
    found = {(name, each.mode): Figures() for name in names for each in servers}
    for each in servers:
        break_in(Context(each.target, Options(), "all", 0, salt), range(USERS))
    for name, round_ in product(names, range(chosen.rounds)):
        for each in servers if round_ % 2 else servers[::-1]:       # who comes after whom is not always the same
            context = Context(each.target, Options(), name, round_, f"{salt}/{name}/{round_}")
            work[name](each, context, found[name, each.mode])
            for complaint, count in context.errors.most_common(3):
                _note(f"{name}, {each.mode}: wrong, {count} times: {complaint}")
        _note(f"{name}: " + ", ".join(f"{each.mode} {found[name, each.mode].rates[-1]:,.0f} a second"
                                      for each in servers))
    return found


def _note(text: str) -> None:
    print(time.strftime("%H:%M:%S"), text, file=sys.stderr, flush=True)


def run(words: Sequence[str]) -> int:
    """The command."""
    chosen = parse(words)
    signal.signal(signal.SIGTERM, signal.default_int_handler)       # the servers are ended then, too
    modes = [WITHOUT, *(chosen.modes or reversed(benchstandby.MODES))]
    with privatefiles.temporary_folder("onecopy-standby-", chosen.dir) as folder, ExitStack() as up:
        servers = [up.enter_context(machine(mode, folder, chosen.option)) for mode in modes]
        before, began = procfs.machine_cpu_seconds(), time.monotonic()
        found = measure(chosen, servers)
        busy = (procfs.machine_cpu_seconds() - before) / (time.monotonic() - began)
    print(f"Medians of {chosen.rounds} bursts in turn; the machine used {busy:.1f} cores in all.\n")
    print(table(found, modes))
    return 0


if __name__ == "__main__":
    sys.exit(program.guarded(lambda: run(sys.argv[1:])))
