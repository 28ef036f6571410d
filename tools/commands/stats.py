"""onecopy stats"""

import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from attrs import asdict

from mboxlist.engine.kv import Env
from mboxlist.engine.statistics import Statistics
from store.store import Store
from store.tables.quotatable import readable
from tools.cli.controlclient import ask_all
from tools.cli.invocation import Invocation, Parsers
from tools.cli.output import print_facts, print_json, print_table, when
from tools.commands.connections import span
from tools.server.control.metrics import exposition, stored

GOOD = 95.0             # per cent of pages that are found in a cache that is large enough
ENOUGH = 10_000         # pages asked for, before which a rate says little
MANY_WAITS = 1.0        # per cent of lock requests that had to wait
UNIT = 16 << 20         # octets that proposed sizes are multiples of
PAUSE = 2.0             # seconds between two views of --watch
CLEAR = "\x1b[2J\x1b[H"


def add(parser: Parsers) -> None:
    """Make the parser."""
    made = parser("stats", stats, "show how the databases, the server's processes, housekeeping and the volumes are "
                                  "doing, with advice; exit status 1 if there is some")
    made.add_argument("--watch", action="store_true", help="again every 2 s, until Ctrl-C")
    form = made.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true")
    form.add_argument("--prometheus", action="store_true", help="print metrics as Prometheus reads them; exit status 0")


def stats(invocation: Invocation) -> int:
    """onecopy stats"""
    with invocation.store() as store:
        while True:
            found = gather(store)
            if invocation.arguments.prometheus:
                print(exposition(found, stored(store)), end="")
                return 0
            if invocation.arguments.json:
                print_json(found)
            else:
                if invocation.arguments.watch and sys.stdout.isatty():
                    print(CLEAR, end="")
                _print(found)
            if not invocation.arguments.watch:
                return 1 if found["advice"] else 0
            sys.stdout.flush()
            time.sleep(PAUSE)


def gather(store: Store) -> dict[str, Any]:
    """All figures, as they are now."""
    processes = list(ask_all(store.root, "stats").values())
    environments = {"mboxlist": _environment(store.root / "mboxlist", store.mailboxes.env),
                    **{name: _environment(partition.folder / "index", partition.env)
                       for name, partition in store.partitions.items()}}
    partitions = {name: _volume(partition) for name, partition in store.partitions.items()}
    snapshots = {name: _snapshots(partition.snapshots()) for name, partition in store.partitions.items()}
    mail: Counter[str] = Counter()
    for process in processes:
        mail.update(process["mail"])
    found = {"environments": environments, "partitions": partitions, "snapshots": snapshots, "processes": processes,
             "mail": dict(mail)}
    return {**found, "advice": advice(found, store)}


def _environment(folder: Path, env: Env) -> dict[str, Any]:
    found = env.statistics()
    return {**asdict(found), "hit_rate": None if found.hit_rate is None else round(found.hit_rate, 2),
            "tables": sum(path.stat().st_size for path in folder.glob("*.db")),
            "logs": sum(path.stat().st_size for path in folder.glob("log.*")), "proposed_cache": proposed(
                found, sum(path.stat().st_size for path in folder.glob("*.db")))}


def proposed(found: Statistics, tables: int) -> int | None:
    """The size of cache that would be better, in octets; None: it is large enough, or nobody can tell yet.

    Pages that were read for the first time had to be read: only a cache from which pages had to go is too small. More
    than all tables together is of no use.
    """
    rate = found.hit_rate
    if rate is None or rate >= GOOD or found.hits + found.misses < ENOUGH or not found.evicted:
        return None
    wanted = min(2 * found.cache, tables + tables // 4)
    rounded = -(-wanted // UNIT) * UNIT
    return rounded if rounded > found.cache else None


def _volume(partition: Any) -> dict[str, Any]:
    free, used = partition.files.volume()
    return {"free": free, "used": used, "per_cent": round(100 * used / (used + free), 1) if used + free else None}


def _snapshots(times: list[int]) -> dict[str, Any]:
    return {"count": len(times), "newest": max(times, default=None), "oldest": min(times, default=None)}


def advice(found: dict[str, Any], store: Store) -> list[str]:
    """What an administrator should look at."""
    said = []
    for name, env in found["environments"].items():
        if env["proposed_cache"] and name != "mboxlist":
            said.append(f"{name}: only {env['hit_rate']} % of the pages are found in the cache: set store.cache to "
                        f"{env['proposed_cache'] >> 20}M (now {store.settings.cache >> 20}M)")
        if env["lock_requests"] > ENOUGH and 100 * env["lock_waits"] > MANY_WAITS * env["lock_requests"]:
            said.append(f"{name}: {100 * env['lock_waits'] / env['lock_requests']:.1f} % of the locks had to be waited "
                        "for: many change the same mailboxes at the same time")
        if env["most_locks"] > 0.8 * store.settings.database_locks:
            said.append(f"{name}: up to {env['most_locks']} locks were held at once: raise store.database_locks")
    threshold = store.settings.disk_threshold
    for name, volume in found["partitions"].items():
        nearly = threshold and (volume["per_cent"] or 0) > 0.9 * threshold
        if nearly or volume["free"] < 4 * store.settings.disk_reserve:
            said.append(f"{name}: the volume is {volume['per_cent']} % full, {readable(volume['free'])} are free; new "
                        f"mail is refused at {threshold} %")
    for process in found["processes"]:
        for task in process["tasks"]:
            if task["bad"]:
                said.append(f"{process['process']}: {task['name']}: {task['bad']} items fail: see the log")
        if process["mail"].get("not noted"):
            said.append(f"{process['process']}: the journal cannot be written: see the log")
    return said


def _print(found: dict[str, Any]) -> None:
    now = time.time()
    print_table([{
        "environment": name, "cache": readable(env["cache"]), "hit_rate": "-" if env["hit_rate"] is None else
        f"{env['hit_rate']} %", "tables": readable(env["tables"]), "logs": readable(env["logs"]),
        "written": readable(env["log_octets"]), "transactions": env["transactions"], "lock_waits": env["lock_waits"],
        "deadlocks": env["deadlocks"], "checkpoint": f"{span(now - env['checkpoint'])} ago"}
        for name, env in found["environments"].items()],
        ("environment", "cache", "hit_rate", "tables", "logs", "written", "transactions", "lock_waits", "deadlocks",
         "checkpoint"))
    print()
    print_table([{
        "partition": name, "free": readable(volume["free"]), "full": f"{volume['per_cent']} %",
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
                  "memory": readable(each["memory"]), "server": name, "open": counted["open"],
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
