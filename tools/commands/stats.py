"""onecopy stats"""

import sys
import time
from typing import Any

from tools.cli.controlclient import require_server
from tools.cli.invocation import Invocation, Parsers
from tools.cli.later import Later
from tools.cli.output import print_facts, print_json, print_table, size, when
from tools.commands.connections import span
from tools.server.metrics import history
from tools.server.metrics.figures import busiest, gather

EXPOSITION = Later("tools.server.metrics.exposition:text")      # it loads prometheus_client
PAUSE = 2.0             # seconds between two views of --watch
CLEAR = "\x1b[2J\x1b[H"


def add(parser: Parsers) -> None:
    """Make the parser."""
    made = parser("stats", stats, "show how the databases, the server's processes, housekeeping and the volumes are "
                                  "doing, with advice; exit status 1 if there is some")
    made.add_argument("--watch", action="store_true", help="again every 2 s, until Ctrl-C")
    form = made.add_mutually_exclusive_group()
    form.add_argument("--top", action="store_true", help="the users and domains with most operations and octets since "
                                                         "the server was started, and nothing else")
    made.add_argument("--history", choices=tuple(history.RINGS), metavar="day|month", help="what the server did in "
                      "each minute of the last day, or in each hour of the last month, and nothing else")
    made.add_argument("--bytes", action="store_true")
    form.add_argument("--json", action="store_true")
    form.add_argument("--prometheus", action="store_true", help="print metrics as Prometheus reads them; exit status 0")


def stats(invocation: Invocation) -> int:
    """onecopy stats"""
    if invocation.arguments.top:
        return _top(invocation)
    if invocation.arguments.history:
        return _history(invocation)
    with invocation.store() as store:
        while True:
            found = gather(store)
            if invocation.arguments.prometheus:
                print(EXPOSITION(found).decode(), end="")
                return 0
            if invocation.arguments.json:
                print_json({**found, "busiest": busiest(store.root)})
            else:
                if invocation.arguments.watch and sys.stdout.isatty():
                    print(CLEAR, end="")
                _print(found)
            if not invocation.arguments.watch:
                return 1 if found["advice"] else 0
            sys.stdout.flush()
            time.sleep(PAUSE)


def _top(invocation: Invocation) -> int:
    invocation.act_as_owner()
    require_server(invocation.config.root)
    found = busiest(invocation.config.root)
    for number, (what, kinds) in enumerate(found.items()):
        for kind, rows in kinds.items():
            if number or kind != next(iter(kinds)):
                print()
            shown = size if kind == "octets" else str
            print_table([{what: row["name"] or "-", kind: shown(row["weight"]), "at most too many":
                          shown(row["error"])} for row in rows], (what, kind, "at most too many"))
    return 0


def _history(invocation: Invocation) -> int:
    invocation.act_as_owner()
    rows = [{**row, "time": when(row["time"])} for row in history.read(
        invocation.config.root, invocation.arguments.history, time.time())]
    if invocation.arguments.json:
        print_json(rows)
    else:
        print_table([{**row, "used": size(row["used"]), "free": size(row["free"])} for row in rows],
                    ("time", *history.COUNTED, *history.LEVELS))
    return 0


def _print(found: dict[str, Any]) -> None:
    now = time.time()
    print_table([{
        "environment": name, "cache": size(env["cache"]), "hit_rate": "-" if env["hit_rate"] is None else
        f"{env['hit_rate']} %", "tables": size(env["tables"]), "logs": size(env["logs"]),
        "written": size(env["log_octets"]), "transactions": env["transactions"], "lock_waits": env["lock_waits"],
        "deadlocks": env["deadlocks"], "checkpoint": f"{span(now - env['checkpoint'])} ago"}
        for name, env in found["environments"].items()],
        ("environment", "cache", "hit_rate", "tables", "logs", "written", "transactions", "lock_waits", "deadlocks",
         "checkpoint"))
    print()
    print_table([{
        "partition": name, "free": size(volume["free"]), "full": f"{volume['per_cent']} %",
        "snapshots": found["snapshots"][name]["count"], "newest": None if not found["snapshots"][name]["newest"] else
        f"{span(now - found['snapshots'][name]['newest'])} ago"} for name, volume in found["partitions"].items()],
        ("partition", "free", "full", "snapshots", "newest"))
    _print_processes(found["processes"], now)
    if found["mail"]:
        print()
        print_facts(found["mail"])
    for line in found["advice"]:
        print(f"\n{line}")


def _print_processes(processes: list[dict[str, Any]], now: float) -> None:
    print()
    if not processes:
        print("no server runs")
        return
    print_table([{"process": each["process"], "pid": str(each["pid"]), "up": span(now - each["started"]),
                  "memory": size(each["memory"]), "server": name, "open": counted["open"],
                  "connections": counted.get("connections", 0), "logins": counted.get("logins", 0),
                  "turned_away": counted.get("connections turned away", 0), "failed_logins": each["failed_logins"]}
                 for each in processes for name, counted in (each["servers"] or {"-": {"open": 0}}).items()],
                ("process", "pid", "up", "memory", "server", "open", "connections", "logins", "turned_away",
                 "failed_logins"))
    print()
    print_table([{"process": each["process"], "task": task["name"], "last": when(task["began"]) if task["began"] else
                  "-", "took": f"{task['took']:.2f}s", "rounds": task["rounds"], "items": task["done"],
                  "failures": task["failures"]} for each in processes for task in each["tasks"]],
                ("process", "task", "last", "took", "rounds", "items", "failures"))
