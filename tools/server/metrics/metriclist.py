"""Every metric, in one list."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from attrs import frozen

Found = Mapping[str, Any]                       # what `figures.gather` has found
Labels = tuple[str, ...]                        # values, in the order of the metric's own names
Values = Callable[[Found], Iterable[tuple[Labels, Any]]]

PREFIX = "onecopy_"
GAUGE, COUNTER = "gauge", "counter"


@frozen
class Metric:
    """One of them: a name without its prefix, what it says, the names of its labels, and its values by these. Names and
    units are those that Prometheus advises: seconds, bytes, _total for what only grows."""

    name: str
    kind: str
    help: str
    labels: Labels
    values: Values


# Where values are found

def _one(*path: str) -> Values:
    def values(found: Found) -> Iterator[tuple[Labels, Any]]:
        value: Any = found
        for name in path:
            value = value[name]
        yield (), value

    return values


def _each(group: str, key: str) -> Values:
    """Of each partition, or each environment."""
    return lambda found: [((name,), each[key]) for name, each in found[group].items()]


def _process(key: str) -> Values:
    return lambda found: [((each["process"],), each[key]) for each in found["processes"]]


def _server(key: str) -> Values:
    return lambda found: [((each["process"], server), counted.get(key, 0)) for each in found["processes"]
                          for server, counted in each["servers"].items()]


def _task(key: str) -> Values:
    return lambda found: [((each["process"], task["name"]), task[key]) for each in found["processes"]
                          for task in each["tasks"]]


def _by(key: str) -> Values:
    """Of each process, by what it has counted under names of its own."""
    return lambda found: [((each["process"], what), number) for each in found["processes"]
                          for what, number in each[key].items()]


_PROCESS, _SERVER, _TASK = ("process",), ("process", "server"), ("process", "task")
_PARTITION, _ENVIRONMENT = ("partition",), ("environment",)

METRICS = (
    Metric("written_timestamp_seconds", GAUGE, "When this text was written: of a file that is left it is old", (),
           _one("written")),

    # Files
    Metric("snapshot_newest_timestamp_seconds", GAUGE, "When the newest good snapshot was made; 0: there is none", (),
           _one("files", "snapshot")),
    Metric("snapshots", GAUGE, "Good snapshots that there are", (), _one("files", "snapshots")),
    Metric("snapshot_newest_bytes", GAUGE, "Size of the newest good snapshot", (), _one("files", "snapshot_octets")),
    Metric("snapshot_failed_timestamp_seconds", GAUGE,
           "When one could not be made, if none has been made since; 0: the last one was", (),
           _one("files", "snapshot_failed")),
    Metric("recoveries_total", COUNTER, "Starts that found damage, of which there are reports", (),
           _one("files", "recoveries")),
    Metric("recovery_last_timestamp_seconds", GAUGE, "When the last of them was; 0: there is none", (),
           _one("files", "recovery")),
    Metric("recovery_last_duration_seconds", GAUGE, "How long it took", (), _one("files", "recovery_seconds")),

    # Housekeeping
    Metric("task_last_run_timestamp_seconds", GAUGE, "When the last round of a task of housekeeping began; 0: never",
           _TASK, _task("began")),
    Metric("task_last_run_duration_seconds", GAUGE, "How long its last completed round took", _TASK, _task("took")),
    Metric("task_rounds_total", COUNTER, "Rounds of it that were completed", _TASK, _task("rounds")),
    Metric("task_items_total", COUNTER, "Items that it has done", _TASK, _task("done")),
    Metric("task_failures_total", COUNTER, "Items that failed", _TASK, _task("failures")),
    Metric("task_failing_items", GAUGE, "Items that failed when they were last tried", _TASK, _task("bad")),

    # Processes
    Metric("processes", GAUGE, "Processes of the server that answer", (),
           lambda found: [((), len(found["processes"]))]),
    Metric("process_start_timestamp_seconds", GAUGE, "When the process began", _PROCESS, _process("started")),
    Metric("process_memory_bytes", GAUGE, "Memory that it has, its part of what is shared included", _PROCESS,
           _process("memory")),

    # Clients
    Metric("connections_open", GAUGE, "Connections that are open", _SERVER, _server("open")),
    Metric("connections_total", COUNTER, "Connections that came", _SERVER, _server("connections")),
    Metric("connections_turned_away_total", COUNTER, "Connections past a limit", _SERVER,
           _server("connections turned away")),
    Metric("logins_total", COUNTER, "Logins that were good", _SERVER, _server("logins")),
    Metric("failed_logins_total", COUNTER, "Logins that failed", _PROCESS, _process("failed_logins")),
    Metric("mail_total", COUNTER, "Messages and recipients, by what became of them", ("process", "outcome"),
           _by("mail")),

    # Volumes and databases
    Metric("partition_free_bytes", GAUGE, "Free on the partition's volume", _PARTITION, _each("partitions", "free")),
    Metric("partition_used_bytes", GAUGE, "Used on it, by whomever", _PARTITION, _each("partitions", "used")),
    Metric("database_cache_hits_total", COUNTER, "Pages that were found in the cache", _ENVIRONMENT,
           _each("environments", "hits")),
    Metric("database_cache_misses_total", COUNTER, "Pages that were not", _ENVIRONMENT,
           _each("environments", "misses")),
    Metric("database_transactions_total", COUNTER, "Transactions since the last recovery", _ENVIRONMENT,
           _each("environments", "transactions")),
    Metric("database_lock_waits_total", COUNTER, "Locks that had to be waited for", _ENVIRONMENT,
           _each("environments", "lock_waits")),
    Metric("database_deadlocks_total", COUNTER, "Deadlocks", _ENVIRONMENT, _each("environments", "deadlocks")),
    Metric("database_tables_bytes", GAUGE, "Size of all tables", _ENVIRONMENT, _each("environments", "tables")),
    Metric("database_logs_bytes", GAUGE, "Size of the log files that there are", _ENVIRONMENT,
           _each("environments", "logs")),
    Metric("read_only", GAUGE, "1 while nothing can be written to the store's volume, and mail is only read", (),
           _one("read_only")),
    Metric("partition_read_only", GAUGE, "1 while nothing can be written to the partition's volume", _PARTITION,
           lambda found: [((name,), name in found["read_only_partitions"]) for name in found["partitions"]]),
    Metric("advice", GAUGE, "Pieces of advice that onecopy stats has", (), lambda found: [((), len(found["advice"]))]),
)


def markdown() -> str:
    """The list, as docs/administration.md has it."""
    return "".join(f"| `{metric.name}` | {metric.kind} | {', '.join(f'`{label}`' for label in metric.labels)} | "
                   f"{metric.help} |\n" for metric in METRICS)


if __name__ == "__main__":
    print(markdown(), end="")
