"""onecopy check, scrub"""

import argparse
import contextlib
import re
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs
from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from store.check.scrub import FOLDERS, Pace, Stopped, low_priority, scrub
from store.check.wholecheck import check
from store.partition.partition import Partition
from store.store import Store
from store.values import Finding
from tools.cli import options
from tools.cli.invocation import Invocation, Parsers
from tools.cli.output import print_json
from tools.commands import check_spark
from tools.exits import Failure

Shown = Callable[[int, int], None]          # folders that are done, octets that were read


def add(parser: Parsers) -> None:
    """Make the parsers."""
    made = parser("check", check_store, "check all that must hold in the store; exit status 1 if something does not")
    made.add_argument("--json", action="store_true")
    check_spark.add_options(made)
    made = parser("scrub", scrub_store, "read all message files; exit status 1 if one is not what it should be")
    made.add_argument("--partition", metavar="NAME", help="this partition alone")
    made.add_argument("--rate", type=_rate, metavar="SIZE", help="octets a second, such as 50M; 0: as many as it can")
    made.add_argument("--from", type=_place, dest="place", metavar="PLACE", help="where an earlier scrub was stopped")
    made.add_argument("--sweep", action="store_true", help="remove the files that nobody knows")
    made.add_argument("--json", action="store_true")


def check_store(invocation: Invocation) -> int:
    """onecopy check"""
    if check_spark.is_asked(invocation):
        return int(check_spark.verify_store(invocation))
    with invocation.store() as store:
        findings = check(store)
    if invocation.arguments.json:
        print_json([attrs.asdict(finding) for finding in findings])
    else:
        for finding in findings:
            _print(finding)
        if not findings:
            print("nothing wrong was found")
    return 1 if findings else 0


def scrub_store(invocation: Invocation) -> int:
    """onecopy scrub"""
    arguments = invocation.arguments
    findings: list[Finding] = []
    files, octets, stopped = 0, 0, None
    with invocation.store() as store, low_priority(), _interruptible() as stop:
        partitions = _partitions(store, arguments.partition, arguments.place)
        pace = Pace(store.settings.scrub_rate if arguments.rate is None else arguments.rate)
        first = arguments.place[1] if arguments.place else 0
        total = FOLDERS * len(partitions) - first
        with _progress("scrub", total) as show:
            done = 0
            for partition in partitions:
                try:
                    for folder in scrub(partition, pace, first=first, sweep=arguments.sweep, stop=stop):
                        first, done, files = folder.number + 1, done + 1, files + folder.files
                        findings += folder.findings
                        for finding in folder.findings if not arguments.json else ():
                            _print(finding)
                        show(done, pace.octets)
                except Stopped:
                    stopped = f"{partition.name}/{first:03x}"
                    break
                first = 0
        octets = pace.octets
    if arguments.json:
        print_json({"files": files, "octets": octets, "stopped": stopped,
                    "findings": [attrs.asdict(finding) for finding in findings]})
    else:
        print(f"{files} files, {octets} octets: {len(findings) or 'nothing'} wrong")
    if stopped is not None:
        print(f"onecopy: stopped; --from {stopped} goes on from there", file=sys.stderr)
        raise KeyboardInterrupt
    return 1 if findings else 0


def _print(finding: Finding) -> None:
    print(f"{finding.where}: {finding.what} (repair: onecopy {finding.repair})", flush=True)


def _rate(text: str) -> int:
    try:
        return options.size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from None


def _place(text: str) -> tuple[str, int]:
    name, _, folder = text.rpartition("/")
    if not name or not re.fullmatch("[0-9a-f]{3}", folder):
        raise argparse.ArgumentTypeError(f"{text!r} is not a place such as primary/3fa")
    return name, int(folder, 16)


def _partitions(store: Store, name: str | None, place: tuple[str, int] | None) -> list[Partition]:
    """Those that are asked for, in order; from that of the place on. Raises Failure."""
    for wanted in (name, place and place[0]):
        if wanted is not None and wanted not in store.partitions:
            raise Failure(f"there is no partition {wanted}")
    names: Sequence[str] = sorted(store.partitions) if name is None else [name]
    if place is not None:
        if place[0] not in names:
            raise Failure(f"{place[0]} is not the partition {name}")
        names = names[names.index(place[0]):]
    return [store.partitions[found] for found in names]


@contextlib.contextmanager
def _interruptible() -> Iterator[Callable[[], bool]]:
    """Whether SIGINT has come; the second one interrupts at once, as usual."""
    asked: list[int] = []

    def ask(number: int, frame: Any) -> None:
        asked.append(number)
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield lambda: bool(asked)
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def _progress(what: str, total: int) -> Iterator[Shown]:
    """A bar on standard error while a person watches."""
    if not sys.stderr.isatty():
        yield lambda done, octets: None
        return
    columns = (TextColumn(what), BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[octets]}"),
               TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=total, octets="")
        yield lambda done, octets: progress.update(task, completed=done, octets=decimal(octets))
