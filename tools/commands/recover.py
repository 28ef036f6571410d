"""onecopy recover"""

import contextlib
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from attrs import asdict
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from mboxlist.engine import damage, damagemarks
from store.errors import Problem, StoreError
from store.opening import is_there
from store.partition import processes
from store.recovery import environments as recovery
from store.recovery.environments import LIST, Recovery, recovery_of
from store.settings import Settings
from store.snapshots import taking
from tools.cli.exits import Failure
from tools.cli.invocation import Invocation, Parsers
from tools.cli.output import print_json, print_table
from tools.cli.storeaccess import open_configured

ASKED = "looked at because somebody has asked for it"


def add(parser: Parsers) -> None:
    """Make the parser."""
    made = parser("recover", recover, "read all databases of a store that is down, and mend what is damaged: a start "
                  "does the same where it finds something wrong; exit status 1 if anything is missing then")
    made.add_argument("--list", action="store_true", help="tell what was found and done before, the newest first")
    made.add_argument("--dry-run", action="store_true", help="only say what is wrong, and what would be done; exit "
                      "status 1 if something is")
    made.add_argument("--json", action="store_true")


def recover(invocation: Invocation) -> int:
    """onecopy recover"""
    root = invocation.config.root
    if not is_there(root):
        raise StoreError(Problem.NO_STORE, f"There is no store in {root}; `onecopy init` makes one")
    if invocation.arguments.list:
        return _list(invocation)
    living, _ = processes.look(root / "run")
    if living:
        raise StoreError(Problem.STORE_IN_USE, f"The store is in use by {', '.join(map(str, living))}: stop it first")
    return _look(invocation) if invocation.arguments.dry_run else _mend(invocation)


def _environments(root: Path) -> list[str]:
    return [LIST, *(f"partitions/{path.name}/index" for path in sorted((root / "partitions").glob("[A-Za-z0-9]*"))
                    if path.is_dir())]


@contextlib.contextmanager
def _bar(total: int) -> Iterator[Callable[[str], None]]:
    """A bar on standard error while a person watches: one step for each environment."""
    if not sys.stderr.isatty():
        yield lambda what: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=total)
        step = [-1]

        def shown(what: str) -> None:
            step[0] += 1
            progress.update(task, description=what, completed=step[0])

        yield shown


def _look(invocation: Invocation) -> int:
    """Every environment is recovered and read in a copy, so that nothing is changed."""
    root = invocation.config.root
    settings = invocation.config.settings("store", Settings)
    environments, found = _environments(root), []
    with _bar(len(environments)) as shown:
        for environment in environments:
            shown(environment)
            wrong = _wrong(root, environment)
            found.append({"environment": environment, "wrong": wrong,
                          "source": _source(root, environment, settings) if wrong else ""})
    if invocation.arguments.json:
        print_json(found)
    else:
        for item in found:
            print(f"{item['environment']}: " + (f"{item['wrong']}; it would be made anew from {item['source']}"
                                                if item["wrong"] else "nothing is wrong"))
    return 1 if any(item["wrong"] for item in found) else 0


def _wrong(root: Path, environment: str) -> str:
    folder = root / environment
    recovering = Recovery(root, Settings())
    if not folder.is_dir() or damagemarks.missing(folder) or not damagemarks.tables(folder):
        return recovering.wrong(environment)
    with tempfile.TemporaryDirectory(prefix=".recover-", dir=root) as name:
        copy = Path(name)
        for path in (*damagemarks.tables(folder), *damagemarks.logs(folder)):
            shutil.copyfile(path, copy / path.name)
        with contextlib.suppress(FileNotFoundError):
            shutil.copyfile(folder / damagemarks.TABLES, copy / damagemarks.TABLES)
        wrong = damage.look_through(copy)
    if wrong is None:
        return "it cannot be recovered"
    return "; ".join(f"{table or 'log'}: {why}" for table, why in wrong.items())


def _source(root: Path, environment: str, settings: Settings) -> str:
    folder = root / environment
    if folder.is_dir() and damage.has_all_logs(folder):
        return "its own log, from the beginning"
    there = taking.listed(taking.folder(root, settings))
    names = [each.name for each in there if environment in each.manifest.environments]
    tables = "its tables that are whole, and the user area"
    return f"the snapshot {names[0]} and the log since, or else from {tables}" if names else tables


def _mend(invocation: Invocation) -> int:
    root = invocation.config.root
    for environment in _environments(root):
        if (root / environment).is_dir():
            recovery.allow(root / environment, [])
            damagemarks.suspect(root / environment, ASKED)
    with _bar(1) as shown:
        shown("reading all databases")
        store = open_configured(invocation.config, invocation.arguments.program)
    try:
        done = recovery_of(store)
        if done is None:
            raise Failure("another process is in the store now: it has been recovered by that", 1)
    finally:
        store.close()
    if invocation.arguments.json:
        print_json([asdict(event) for event in done.events.values()])
    else:
        for event in done.events.values():
            _print(asdict(event))
        for note in done.notes:
            print(note)
        if not done.is_needed():
            print("nothing is wrong with the databases")
    return 1 if any(event.missing for event in done.events.values()) else 0


def _list(invocation: Invocation) -> int:
    found = recovery.reports(invocation.config.root)
    if invocation.arguments.json:
        print_json([report for _, report in found])
        return 0
    rows = [{"time": datetime.fromtimestamp(report["time"], UTC).strftime("%Y-%m-%d %H:%M:%S"),
             "environment": event["environment"], "found": event["found"], "made from": event["source"],
             "missing": len(event["missing"])} for _, report in found for event in report["environments"]]
    if rows:
        print_table(rows, ("time", "environment", "found", "made from", "missing"))
    else:
        print("no database has been found damaged")
    return 0


def _print(event: dict[str, Any]) -> None:
    print(f"{event['environment']}: {event['found']}")
    print(f"  made anew from {event['source']}; what was there is in {event['aside']}")
    for what in event["missing"] or ["nothing"]:
        print(f"  missing: {what}")
