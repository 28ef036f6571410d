"""What `onecopy stats` gathers, in the text format that Prometheus reads (version 0.0.4)."""

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from attrs import frozen

from store.recovery import environments as recovery
from store.snapshots import retention, taking
from store.store import Store

Labels = Mapping[str, str]


@frozen
class Metric:
    """One of them: a name without its prefix, gauge or counter, what it says, and its values by labels. Names and units
    are those that Prometheus advises: seconds, bytes, _total for what only grows."""

    name: str
    kind: str
    help: str
    values: tuple[tuple[Labels, float], ...]


def stored(store: Store) -> dict[str, Any]:
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


def exposition(found: Mapping[str, Any], files: Mapping[str, Any]) -> str:
    """The whole text."""
    written = _one("written_timestamp_seconds", "gauge", "When this text was written: of a file that is left it is old",
                   time.time())
    return "".join(_lines(metric) for metric in (written, *_of_files(files), *_of_tasks(found["processes"]),
                                                 *_of_processes(found["processes"]), *_of_store(found))
                   if metric.values)


def _lines(metric: Metric) -> str:
    name = f"onecopy_{metric.name}"
    return f"# HELP {name} {metric.help}\n# TYPE {name} {metric.kind}\n" + "".join(
        f"{name}{_labels(labels)} {_number(value)}\n" for labels, value in metric.values)


def _labels(labels: Labels) -> str:
    def quoted(text: str) -> str:
        return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

    return "{" + ",".join(f'{name}="{quoted(value)}"' for name, value in labels.items()) + "}" if labels else ""


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))


def _one(name: str, kind: str, help: str, value: float) -> Metric:
    return Metric(name, kind, help, (({}, value),))


def _of_files(files: Mapping[str, Any]) -> Iterator[Metric]:
    yield _one("snapshot_newest_timestamp_seconds", "gauge", "When the newest good snapshot was made; 0: there is none",
               files["snapshot"])
    yield _one("snapshots", "gauge", "Good snapshots that there are", files["snapshots"])
    yield _one("snapshot_newest_bytes", "gauge", "Size of the newest good snapshot", files["snapshot_octets"])
    yield _one("snapshot_failed_timestamp_seconds", "gauge",
               "When one could not be made, if none has been made since; 0: the last one was", files["snapshot_failed"])
    yield _one("recoveries_total", "counter", "Starts that found damage, of which there are reports",
               files["recoveries"])
    yield _one("recovery_last_timestamp_seconds", "gauge", "When the last of them was; 0: there is none",
               files["recovery"])
    yield _one("recovery_last_duration_seconds", "gauge", "How long it took", files["recovery_seconds"])


_TASK = (
    ("task_last_run_timestamp_seconds", "gauge", "When the last round of a task of housekeeping began; 0: never",
     "began"),
    ("task_last_run_duration_seconds", "gauge", "How long its last completed round took", "took"),
    ("task_rounds_total", "counter", "Rounds of it that were completed", "rounds"),
    ("task_items_total", "counter", "Items that it has done", "done"),
    ("task_failures_total", "counter", "Items that failed", "failures"),
    ("task_failing_items", "gauge", "Items that failed when they were last tried", "bad"),
)


def _of_tasks(processes: Iterable[Mapping[str, Any]]) -> Iterator[Metric]:
    every = [({"process": each["process"], "task": task["name"]}, task) for each in processes for task in each["tasks"]]
    for name, kind, help, key in _TASK:
        yield Metric(name, kind, help, tuple((labels, task[key]) for labels, task in every))


def _of_processes(processes: list[Mapping[str, Any]]) -> Iterator[Metric]:
    yield _one("processes", "gauge", "Processes of the server that answer", len(processes))
    names = [({"process": each["process"]}, each) for each in processes]
    for name, kind, help, key in (
            ("process_start_timestamp_seconds", "gauge", "When the process began", "started"),
            ("process_memory_bytes", "gauge", "Memory that it has, its part of what is shared included", "memory"),
            ("failed_logins_total", "counter", "Logins that failed", "failed_logins")):
        yield Metric(name, kind, help, tuple((labels, each[key]) for labels, each in names))
    servers = [({**labels, "server": server}, counted) for labels, each in names
               for server, counted in each["servers"].items()]
    for name, kind, help, key in (
            ("connections_open", "gauge", "Connections that are open", "open"),
            ("connections_total", "counter", "Connections that came", "connections"),
            ("logins_total", "counter", "Logins that were good", "logins"),
            ("connections_turned_away_total", "counter", "Connections past a limit", "connections turned away")):
        yield Metric(name, kind, help, tuple((labels, counted.get(key, 0)) for labels, counted in servers))
    yield Metric("mail_total", "counter", "Messages and recipients, by what became of them", tuple(
        ({**labels, "outcome": what}, number) for labels, each in names for what, number in each["mail"].items()))


def _of_store(found: Mapping[str, Any]) -> Iterator[Metric]:
    volumes = [({"partition": name}, volume) for name, volume in found["partitions"].items()]
    for name, help, key in (("partition_free_bytes", "Free on the partition's volume", "free"),
                            ("partition_used_bytes", "Used on it, by whomever", "used")):
        yield Metric(name, "gauge", help, tuple((labels, volume[key]) for labels, volume in volumes))
    environments = [({"environment": name}, each) for name, each in found["environments"].items()]
    for name, kind, help, key in (
            ("database_cache_hits_total", "counter", "Pages that were found in the cache", "hits"),
            ("database_cache_misses_total", "counter", "Pages that were not", "misses"),
            ("database_transactions_total", "counter", "Transactions since the last recovery", "transactions"),
            ("database_lock_waits_total", "counter", "Locks that had to be waited for", "lock_waits"),
            ("database_deadlocks_total", "counter", "Deadlocks", "deadlocks"),
            ("database_tables_bytes", "gauge", "Size of all tables", "tables"),
            ("database_logs_bytes", "gauge", "Size of the log files that there are", "logs")):
        yield Metric(name, kind, help, tuple((labels, each[key]) for labels, each in environments))
    yield _one("read_only", "gauge", "1 while nothing can be written to the store's volume, and mail is only read",
               float(found["read_only"]))
    yield Metric("partition_read_only", "gauge", "1 while nothing can be written to the partition's volume", tuple(
        (labels, float(labels["partition"] in found["read_only_partitions"])) for labels, _ in volumes))
    yield _one("advice", "gauge", "Pieces of advice that onecopy stats has", len(found["advice"]))
