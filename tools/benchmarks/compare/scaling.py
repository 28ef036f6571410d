"""onecopy alone with more and more workers, messages, users, connections, partitions: what an operation costs must not
grow with what it has nothing to do with. Writes tables and charts into docs/speed.md. As root, for mounts."""

import argparse
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from mboxlist import privatefiles
from tools.benchmarks.compare import speedpage
from tools.benchmarks.compare.curves import curves
from tools.benchmarks.compare.dimensions import DIMENSIONS, MEMORY, Dimension
from tools.benchmarks.compare.disks import disk
from tools.benchmarks.compare.growth import allow_many_files
from tools.benchmarks.compare.ourselves import commit
from tools.benchmarks.compare.ratios import number
from tools.benchmarks.compare.sidebyside import APART, UNSHARE, names
from tools.cli import program
from tools.exits import Failure

GROWN = 1.5                 # times the cost with the least: more is marked
SPARE_FILES = 500           # descriptors that are not for connections
DISK = 8 << 30              # octets, in a sparse file
UNIT = "us of CPU for one operation"

Costs = dict[int, dict[str, float]]


def parse(words: Sequence[str]) -> argparse.Namespace:
    """The arguments."""
    parser = argparse.ArgumentParser("tools/bench scaling", allow_abbrev=False, description=__doc__)
    parser.add_argument("--only", type=names(DIMENSIONS), default=list(DIMENSIONS), metavar="NAME,...",
                        help=f"these, or with a minus all but these: {', '.join(DIMENSIONS)}")
    parser.add_argument("--most", type=int, default=1_000_000, metavar="N", help="of anything (1000000)")
    parser.add_argument("--dir", type=Path, metavar="FOLDER", help="where to make the temporary folder")
    parser.add_argument("--out", type=Path, default=speedpage.PAGE, metavar="FILE", help="the page (docs/speed.md)")
    return parser.parse_args(words)


def measured(dimension: Dimension, values: Sequence[int], parent: Path | None) -> Costs:
    """What each operation costs with each of these numbers, on a fresh store each time."""
    found = {}
    for value in values:
        with privatefiles.temporary_folder("onecopy-scaling-", parent) as folder, disk(folder / "disk", DISK):
            found[value] = dimension.measure(folder / "disk", value)
        shown = ", ".join(f"{name} {number(cost)}" for name, cost in found[value].items())
        print(time.strftime("%H:%M:%S"), f"{dimension.heading} {value:,}: {shown}", file=sys.stderr, flush=True)
    return found


def table(dimension: Dimension, costs: Costs) -> list[str]:
    """A line for each operation, with how many times as much it costs at the end as at the beginning."""
    rows = [["us of CPU", *(f"{value:,}" for value in costs), "times"], ["---", *["---:"] * (len(costs) + 1)]]
    for name, line in by_operation(costs).items():
        times = line[-1] / line[0] if line[0] > 0 else 0.0
        grown = times > GROWN and name not in dimension.may_grow
        rows.append([name, *map(number, line), f"**{times:.2f}**" if grown else f"{times:.2f}"])
    return [f"| {' | '.join(row)} |" for row in rows]


def by_operation(costs: Costs) -> Mapping[str, list[float]]:
    """The costs of each operation, from the least to the most."""
    return {name: [found[name] for found in costs.values()] for name in next(iter(costs.values()))}


def scale(chosen: argparse.Namespace) -> None:
    """Measure and write. Raises Failure."""
    most = min(chosen.most, 10 ** 9)
    connections = allow_many_files() - SPARE_FILES
    load, parts, drawings = os.getloadavg()[0], [], {}
    for name in chosen.only:
        dimension = DIMENSIONS[name]
        limit = min(most, connections) if name == "connections" else most
        values = sorted({min(value, limit) for value in dimension.values})
        costs = measured(dimension, values, chosen.dir)
        drawn = {line: found for line, found in by_operation(costs).items() if line != MEMORY}
        drawings[f"scaling-{name}"] = curves(dimension.heading, UNIT, values, drawn)
        parts += [f"### {dimension.heading}", "\n".join(table(dimension, costs)),
                  f"![{dimension.heading}](speed/scaling-{name}.svg)"]
    head = (f"{speedpage.day()}: onecopy{commit()}. {speedpage.machine()}; the load of the machine was {load:.1f} at "
            f"the beginning, {os.getloadavg()[0]:.1f} at the end. All processes of the server count, with what they "
            f"put off for later. What costs more than {GROWN} times as much at the end is marked.\n\n"
            "    tools/bench scaling")
    page = "\n\n".join([head, *parts])
    print(page)
    speedpage.write_part(chosen.out, "scaling", page, drawings)


def main(words: list[str]) -> int:
    """0: all has been measured, and written."""
    if words[:1] != [APART]:
        parse(words)
        if os.geteuid() != 0:
            raise Failure("each store has a file system of its own: it must be root that measures", 1)
        os.execvp(UNSHARE[0], [*UNSHARE, sys.executable, "-P", "-m", "tools.benchmarks.compare.scaling", APART, *words])
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    scale(parse(words[1:]))
    return 0


if __name__ == "__main__":
    sys.exit(program.guarded(lambda: main(sys.argv[1:])))
