"""onecopy recover"""

from datetime import UTC, datetime
from typing import Any

from attrs import asdict

from store.errors import Problem, StoreError
from store.opening import is_there
from store.partition import processes
from store.recovery import environments as recovery
from store.recovery import preview
from store.recovery.environments import recovery_of
from store.settings import Settings
from tools.cli.invocation import Invocation, Parsers
from tools.cli.output import print_json, print_table
from tools.cli.progressbar import changing_bar
from tools.cli.storeaccess import open_configured
from tools.exits import Failure


def add(parser: Parsers) -> None:
    """Make the parser."""
    made = parser("recover", recover, "read all databases of a store that is down, and mend what is damaged: a start "
                  "does the same where it finds something wrong; exit status 1 if anything is missing then")
    made.add_argument("--list", action="store_true", help="list what was found and done before, the newest first")
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


def _look(invocation: Invocation) -> int:
    root = invocation.config.root
    settings = invocation.config.settings("store", Settings)
    with changing_bar() as progress:
        found = [asdict(each) for each in preview.look(root, settings, progress)]
    if invocation.arguments.json:
        print_json(found)
    else:
        for item in found:
            print(f"{item['environment']}: " + (f"{item['wrong']}; it would be rebuilt from {item['source']}"
                                                if item["wrong"] else "nothing is wrong"))
    return 1 if any(item["wrong"] for item in found) else 0


def _mend(invocation: Invocation) -> int:
    root = invocation.config.root
    preview.have_all_read(root)
    with changing_bar() as progress:
        progress("reading all databases", 0, 1)
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
    print(f"  rebuilt from {event['source']}; what was there is in {event['aside']}")
    for what in event["missing"] or ["nothing"]:
        print(f"  missing: {what}")
