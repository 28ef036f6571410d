"""onecopy check, scrub"""

import argparse
import contextlib
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs

from store import values
from store.accounts.loginsettings import Settings as LoginSettings
from store.check import lastcheck, layout
from store.check.causes import causes_among
from store.check.scrub import FOLDERS, Pace, Scrubbed, low_priority, scrub_all
from store.check.wholecheck import check_all
from store.partition.marks import READ_ONLY
from store.partition.partition import Partition
from store.store import Store
from store.values import Finding
from tools.cli.invocation import Invocation, Parsers, typed
from tools.cli.output import print_json, size
from tools.cli.progressbar import bar, changing_bar
from tools.commands import check_spark
from tools.commands.user import note_on_keys
from tools.exits import Failure, no_partition
from tools.serversettings import Workers
from tools.storeowner import Owner


def add(parser: Parsers) -> None:
    """Make the parsers."""
    made = parser("check", check_store, "check all that must hold in the store; exit status 1 if something does not")
    made.add_argument("--repair", action="store_true",
                      help="first set aside what stands where something else belongs, make folders that are missing, "
                           "and give all files to the owner of the store, which needs root where they belong to "
                           "others, and to nobody else")
    made.add_argument("--json", action="store_true")
    check_spark.add_options(made)
    made = parser("scrub", scrub_store, "read all message files; exit status 1 if one is not what it should be")
    made.add_argument("--partition", metavar="NAME", help="this partition alone")
    made.add_argument("--rate", type=typed(values.size), metavar="SIZE",
                      help="octets a second, such as 50M; 0: as many as it can")
    made.add_argument("--from", type=_place, dest="place", metavar="PLACE", help="where an earlier scrub was stopped")
    made.add_argument("--sweep", action="store_true", help="remove the files that nobody knows")
    made.add_argument("--bytes", action="store_true")
    made.add_argument("--json", action="store_true")


def check_store(invocation: Invocation) -> int:
    """onecopy check"""
    began = time.time()
    findings = _layout(invocation)
    if check_spark.is_asked(invocation):
        return int(check_spark.verify_store(invocation))
    try:
        with invocation.store() as store, changing_bar() as tell:
            findings += causes_among(store, check_all(store, with_layout=False, tell=tell))
            lastcheck.write(store.root, began, findings)
            said = note_on_keys(store, invocation.config.settings("login", LoginSettings).kept_keys)
    except Failure:
        _report(invocation, findings)       # perhaps the reason why
        raise
    if said:
        print(f"onecopy: {said}", file=sys.stderr)
    _report(invocation, findings)
    if not (findings or invocation.arguments.json):
        print("nothing wrong was found")
    return 1 if findings else 0


def _layout(invocation: Invocation) -> list[Finding]:
    """What is where, and whose it is, and mend that if it is wanted; from then on this is the owner's process.
    Raises Failure."""
    root, workers = invocation.config.root, invocation.config.settings("workers", Workers)
    owner = Owner.named(workers.user, workers.group) if workers.user else Owner.of(root)
    if owner is None or not root.is_dir():
        return []
    ids = owner.user, owner.group
    if invocation.arguments.repair:
        if (root / READ_ONLY).exists():
            raise Failure(f"{root} is a copy for reading: nothing is repaired there")
        repaired = layout.repair(root, ids)
        print(f"onecopy: {repaired.mended} files and folders were given to {owner.name}, and to nobody else",
              file=sys.stderr)
        for path, aside in repaired.aside:
            print(f"onecopy: {path} was set aside: it is {aside} now", file=sys.stderr)
        invocation.act_as_owner()
        return repaired.left
    invocation.act_as_owner()
    return layout.look(root, ids)


def _report(invocation: Invocation, findings: Sequence[Finding]) -> None:
    if invocation.arguments.json:
        print_json([attrs.asdict(finding) for finding in findings])
    else:
        for finding in findings:
            _print(finding)


def scrub_store(invocation: Invocation) -> int:
    """onecopy scrub"""
    arguments = invocation.arguments
    rate, number = arguments.rate, arguments.place[1] if arguments.place else 0
    on_record = invocation.repeatable("scrub") if arguments.sweep else contextlib.nullcontext()
    with invocation.store() as store, on_record, low_priority(), _interruptible() as stop:
        partitions = _partitions(store, arguments.partition, arguments.place)
        pace = Pace(store.settings.scrub_rate if rate is None else rate)
        found = Scrubbed()
        with bar("scrub", lambda: FOLDERS * len(partitions) - number) as tell:
            for folder in scrub_all(partitions, pace, found, first=number, sweep=arguments.sweep, stop=stop):
                for finding in folder.findings if not arguments.json else ():
                    _print(finding)
                tell(found.folders, size(pace.octets))
    files, octets, stopped, findings = found.files, pace.octets, found.stopped, found.findings
    if arguments.json:
        print_json({"files": files, "octets": octets, "stopped": stopped,
                    "findings": [attrs.asdict(finding) for finding in findings]})
    else:
        print(f"{files} files, {size(octets)}: {len(findings) or 'nothing'} wrong")
    if stopped is not None:
        print(f"onecopy: stopped; --from {stopped} goes on from there", file=sys.stderr)
        raise KeyboardInterrupt
    return 1 if findings else 0


def _print(finding: Finding) -> None:
    print(f"{finding.where}: {finding.what} (repair: onecopy {finding.repair})", flush=True)


def _place(text: str) -> tuple[str, int]:
    name, _, folder = text.rpartition("/")
    if not name or not re.fullmatch("[0-9a-f]{3}", folder):
        raise argparse.ArgumentTypeError(f"{text!r} is not a place such as primary/3fa")
    return name, int(folder, 16)


def _partitions(store: Store, name: str | None, place: tuple[str, int] | None) -> list[Partition]:
    """Those that are asked for, in order; from that of the place on. Raises Failure."""
    for wanted in (name, place and place[0]):
        if wanted is not None and wanted not in store.partitions:
            raise no_partition(wanted, store.partitions)
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
