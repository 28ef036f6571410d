"""onecopy beside Dovecot and Cyrus under one load, on loopback. Writes the tables and the charts into docs/speed.md. As
root, since the servers change users. Their passwords and mail are made up; nothing of the host is changed."""

import argparse
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from mboxlist import privatefiles
from tools.benchmarks.compare import bars, speedpage
from tools.benchmarks.compare.disks import REACHED, disk
from tools.benchmarks.compare.inturn import Outcome, measured
from tools.benchmarks.compare.ratios import Line, lines, table
from tools.benchmarks.compare.variants import COMPARISONS, VARIANTS
from tools.benchmarks.load.measuring import Options
from tools.benchmarks.load.target import Target
from tools.benchmarks.load.workloads.catalogue import WORKLOADS
from tools.cli import program
from tools.exits import Failure

APART = "apart"             # the first argument of the program in a mount namespace of its own
UNSHARE = ("unshare", "--mount", "--propagation", "private")
WATCHES = Path("/proc/sys/fs/inotify/max_user_instances")
SPARE_WATCHES = 28          # that Dovecot and others need beside those of clients in IDLE


def parse(words: Sequence[str]) -> argparse.Namespace:
    """The arguments."""
    parser = argparse.ArgumentParser("tools/bench compare", allow_abbrev=False, description=__doc__)
    parser.add_argument("--workloads", type=names(WORKLOADS), default=list(WORKLOADS), metavar="NAME,...",
                        help=f"these, or with a minus all but these: {', '.join(WORKLOADS)}")
    parser.add_argument("--only", type=names(VARIANTS), default=list(VARIANTS), metavar="NAME,...",
                        help=f"these servers, or with a minus all but these: {', '.join(VARIANTS)}")
    parser.add_argument("--repeats", type=int, default=1, metavar="N", help="runs of each workload on each server (1)")
    parser.add_argument("--scale", type=float, default=0.25, metavar="X",
                        help="how much of each workload: 1 takes several times as long (0.25)")
    parser.add_argument("--users", type=int, default=300, metavar="N", help="accounts on each server (300)")
    parser.add_argument("--mailbox", type=int, default=5000, metavar="N", help="messages in the large mailbox (5000)")
    parser.add_argument("--connections", type=int, default=500, metavar="N",
                        help="in IDLE (500); fewer where the kernel does not let Dovecot watch as many mailboxes")
    parser.add_argument("--wait-quiet", type=float, default=0.0, metavar="S",
                        help="before each run wait as long until other programs are quiet (0)")
    parser.add_argument("--disk", type=float, default=6.0, metavar="GIB", help="of each server, in a sparse file (6)")
    parser.add_argument("--dir", type=Path, metavar="FOLDER", help="where to make the temporary folder")
    parser.add_argument("--part", default="compare", metavar="NAME",
                        help="which part of the page to write, between comments that name it (compare, with charts); "
                             "sieve is for --workloads lmtp-1,sieve-1,lmtp-50,sieve-50")
    parser.add_argument("--out", type=Path, default=speedpage.PAGE, metavar="FILE", help="the page (docs/speed.md)")
    return parser.parse_args(words)


def names(known: Iterable[str]) -> Callable[[str], list[str]]:
    """For an argument: a list of these names, or of those to leave out."""
    def chosen(given: str) -> list[str]:
        words = given.split(",")
        if unknown := {word.removeprefix("-") for word in words} - set(known):
            raise argparse.ArgumentTypeError(f"not known: {', '.join(sorted(unknown))}")
        if all(word.startswith("-") for word in words):
            return [name for name in known if f"-{name}" not in words]
        return [name for name in known if name in words]
    return chosen


def refuse_what_lacks(servers: Sequence[str]) -> None:
    """Before anything is started. Raises Failure."""
    if os.geteuid() != 0:
        raise Failure("the servers change users: it must be root that compares them", 1)
    if packages := sorted({package for server in servers for package in VARIANTS[server].missing()}):
        raise Failure(f"missing: {', '.join(packages)} (Debian packages; tools/test installs or unpacks what the lists "
                      "in tools/packages name); or leave servers out with --only", 1)


def connections(wanted: int, servers: Sequence[str]) -> int:
    """How many can be in IDLE at the same time. Dovecot watches a mailbox for each, and polls where it cannot."""
    if not any(server.startswith("dovecot") for server in servers):
        return wanted
    return max(2, min(wanted, int(privatefiles.read_named(WATCHES)) - SPARE_WATCHES))


def compare(chosen: argparse.Namespace) -> None:
    """Start all, measure, end all, write. Raises Failure."""
    refuse_what_lacks(chosen.only)
    idle = connections(chosen.connections, chosen.only)
    options = Options(chosen.mailbox, max(100, chosen.mailbox // 2), idle, max_seconds=20 * chosen.scale,
                      scale=chosen.scale)
    begun = time.monotonic()
    with privatefiles.temporary_folder("onecopy-compare-", chosen.dir) as folder, ExitStack() as servers:
        privatefiles.share(folder, 0o711, REACHED)
        kinds, targets = set(), []
        for name in chosen.only:
            kinds.add(servers.enter_context(disk(folder / name, int(chosen.disk * (1 << 30)))))
            targets.append(servers.enter_context(VARIANTS[name].serve(folder / name, chosen.users)))
        outcome = measured(targets, chosen.workloads, chosen.repeats, options, chosen.wait_quiet)
    minutes = (time.monotonic() - begun) / 60
    found = lines(outcome.samples)
    drawn = _drawn(found) if chosen.part == "compare" else []
    page = "\n\n".join([_circumstances(chosen, options, targets, kinds, outcome, minutes),
                        *_tables(found, chosen.only), *(_charts(found) if drawn else []), *_wrong(outcome)])
    print(page)
    speedpage.write_part(chosen.out, chosen.part, page, {name: bars.bars(_of(found, name)) for name in drawn})


def _circumstances(chosen: argparse.Namespace, options: Options, targets: Sequence[Target], kinds: set[str],
                   outcome: Outcome, minutes: float) -> str:
    others = outcome.others() or [0.0]
    versions = dict.fromkeys(target.version for target in targets)
    noisy = ("**The machine was not quiet**: only what is several times better or worse means anything. "
             if median(others) > 25 else "")
    idle = (f" ({chosen.connections} were wanted; `fs.inotify.max_user_instances` does not let Dovecot watch for more)"
            if options.connections < chosen.connections else "")
    return (f"{speedpage.day()}: {', '.join(versions)}. {speedpage.machine()}; each server on {' or '.join(kinds)}. "
            f"Median of {chosen.repeats} run{'s' if chosen.repeats > 1 else ''}, {max(1, round(minutes))} min in all; "
            f"{chosen.users} users, mailboxes of {chosen.mailbox:,} messages, {options.connections} clients in "
            f"IDLE{idle}. {noisy}While it was measured other programs took {median(others):.0f} % of a core (median; "
            f"at most {max(others):.0f} %).\n\n    {_command(chosen)}")


def _command(chosen: argparse.Namespace) -> str:
    """What to type to have as much measured again."""
    usual, words = vars(parse([])), ["tools/bench", "compare"]
    for name, value in vars(chosen).items():
        if value != usual[name] and name not in ("out", "dir"):
            words += [f"--{name.replace('_', '-')}", ",".join(value) if isinstance(value, list) else str(value)]
    return shlex.join(words)


def _tables(found: Sequence[Line], servers: Sequence[str]) -> list[str]:
    parts = []
    for comparison in COMPARISONS:
        if comparison.ours not in servers or not set(comparison.peers) & set(servers):
            continue
        ratios = [ratio for line in found if (ratio := line.ratio(comparison)) is not None]
        ahead = sum(ratio >= 1 for ratio in ratios)
        parts += [f"### {comparison.title}", f"{comparison.promise} At or ahead of the better peer in {ahead} of "
                  f"{len(ratios)} lines.", "\n".join(table(found, comparison))]
    return parts


def _charts(found: Sequence[Line]) -> list[str]:
    return ["### Charts", *(f"![{name}](speed/{name}.svg)" for name in _drawn(found))]


def _drawn(found: Sequence[Line]) -> list[str]:
    return list(dict.fromkeys(line.workload for line in found))


def _of(found: Sequence[Line], workload: str) -> list[Line]:
    return [line for line in found if line.workload == workload]


def _wrong(outcome: Outcome) -> list[str]:
    """What was answered otherwise than it must be."""
    if not outcome.errors:
        return ["All answers were as they must be."]
    return ["### Answers that were not as they must be",
            "\n".join(f"* {workload}, {server}: {count} times: `{complaint[:200]}`"
                      for (workload, server), counts in outcome.errors.items()
                      for complaint, count in counts.most_common(3))]


def main(words: list[str]) -> int:
    """0: all has been measured, and written."""
    if words[:1] != [APART]:
        refuse_what_lacks(parse(words).only)
        os.execvp(UNSHARE[0], [*UNSHARE, sys.executable, "-P", "-m", "tools.benchmarks.compare.sidebyside", APART,
                               *words])
    chosen = parse(words[1:])
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    compare(chosen)
    return 0


if __name__ == "__main__":
    sys.exit(program.guarded(lambda: main(sys.argv[1:])))
