"""What `onecopy stats` says: figures of the databases, the volumes and the server's processes, and advice from them."""

import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

from attrs import asdict

from mboxlist.engine.kv import Env
from mboxlist.engine.statistics import Statistics
from store.check import lastcheck
from store.mailboxes.expunge import last_due
from store.metrics.spacesaving import merged
from store.partition.marks import AsOf
from store.partition.partition import Partition
from store.recovery import environments as recovery
from store.snapshots import retention, taking
from store.standby.source import instep
from store.standby.source.instep import Step
from store.store import Store
from store.tables.references import since
from store.values import readable
from tools.cli.controlclient import ask_all

GOOD = 95.0             # per cent of pages that are found in a cache that is large enough: 95 to 99
ENOUGH = 10_000         # pages asked for, before which a rate says little
MANY_WAITS = 1.0        # per cent of lock requests that had to wait
UNIT = 16 << 20         # octets that proposed sizes are multiples of


def gather(store: Store) -> dict[str, Any]:
    """All figures, as they are now. It asks the processes and waits for them: not for an event loop."""
    processes = list(ask_all(store.root, "stats").values())
    environments = {"mboxlist": _environment(store.root / "mboxlist", store.mailboxes.env),
                    **{name: _environment(partition.databases, partition.env)
                       for name, partition in store.partitions.items()}}
    octets = {name: each for process in processes for name, each in process["octets"].items()}
    partitions = {name: {**_volume(partition), "octets": octets.get(name), "purge_overdue": _overdue(partition)}
                  for name, partition in store.partitions.items()}
    snapshots = {name: _snapshots(partition.snapshots()) for name, partition in store.partitions.items()}
    mail: Counter[str] = Counter()
    for process in processes:
        mail.update(process["mail"])
    found = {"written": time.time(), "files": _files(store), "check": lastcheck.read(store.root),
             "environments": environments, "partitions": partitions,
             "snapshots": snapshots, "processes": processes, "mail": dict(mail), "read_only": store.read_only,
             "read_only_partitions": sorted(set(store.partitions) - set(store.writable)),
             "standbys": _standbys(store.root), "as_of": 0.0 if (copy := AsOf.of(store.root)) is None else copy.moment}
    return {**found, "advice": advice(found, store)}


def busiest(root: Path) -> dict[str, dict[str, list[Any]]]:
    """The users and domains with most operations and octets since their processes began. Raises Failure."""
    return merged(each for several in ask_all(root, "busiest").values() for each in several)


def _files(store: Store) -> dict[str, Any]:
    """What files tell, whether a server runs or not: the newest good snapshot, the last failure, recoveries."""
    place = taking.folder(store.root, store.settings)
    good = taking.listed(place)
    failed = place / retention.FAILED
    reports = recovery.reports(store.root)
    last = reports[0][1] if reports else {}
    return {"snapshot": max((each.time for each in good), default=0), "snapshots": len(good),
            "snapshot_octets": max(good, key=lambda each: each.time).size if good else 0,
            "snapshot_failed": failed.stat().st_mtime if failed.exists() else 0,
            "recoveries": len(reports), "recovery": last.get("time", 0), "recovery_seconds": last.get("seconds", 0)}


def _standbys(root: Path) -> dict[str, dict[str, Any]]:
    """Each that has followed since the server began, and each that answers wait for: how far it is."""
    found = instep.seen(root)
    return {host: {"in_step": int(each["step"] == Step.IN_STEP.value) if each["waited"] else None,
                   "connected": int(each["step"] != Step.AWAY.value), "behind": each["behind"], "trip": each["trip"],
                   "lag": max(0.0, found["time"] - each["current"])}
            for host, each in found.get("standbys", {}).items() if each["waited"] or each["current"]}


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


def _overdue(partition: Partition) -> float:
    """Seconds for which the oldest message file on the purge list has been due."""
    now = time.time()
    with closing(partition.refs.lists(last_due(partition, now))) as lists:
        first = next(lists, None)
    return 0.0 if first is None else max(0.0, now - partition.settings.purge_delay - since(first[0]))


def _snapshots(times: list[int]) -> dict[str, Any]:
    return {"count": len(times), "newest": max(times, default=None), "oldest": min(times, default=None)}


def advice(found: dict[str, Any], store: Store) -> list[str]:
    """What an administrator should look at."""
    said = []
    if store.read_only:
        said.append("nothing can be written to the volume of the store: mail can only be read; see the log")
    for name in found["read_only_partitions"] if not store.read_only else ():
        said.append(f"{name}: nothing can be written to its volume: mail there can only be read; see the log")
    for name, env in found["environments"].items():
        if env["proposed_cache"] and name != "mboxlist":
            said.append(f"{name}: only {env['hit_rate']} % of the pages are found in the cache, 95 to 99 % are "
                        "good: set store.cache to "
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
