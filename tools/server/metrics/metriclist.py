"""Every metric, in one list."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from attrs import frozen

from store.deliverylog import OVER_QUOTA

Found = Mapping[str, Any]                       # what `figures.gather` has found
Labels = tuple[str, ...]                        # values, in the order of the metric's own names
Values = Callable[[Found], Iterable[tuple[Labels, Any]]]

PREFIX = "onecopy_"
GAUGE, COUNTER, HISTOGRAM = "gauge", "counter", "histogram"
OUTCOMES = ("messages", "delivered", "duplicates", "refused for now", "refused for good", "refused by IMAP")


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
    """Of each partition, environment or standby that has it."""
    return lambda found: [((name,), each[key]) for name, each in found[group].items() if each[key] is not None]


def _process(key: str) -> Values:
    return lambda found: [((each["process"],), each[key]) for each in found["processes"]]


def _server(key: str) -> Values:
    return lambda found: [((each["process"], server), counted.get(key, 0)) for each in found["processes"]
                          for server, counted in each["servers"].items()]


def _task(key: str) -> Values:
    return lambda found: [((each["process"], task["name"]), task[key]) for each in found["processes"]
                          for task in each["tasks"]]


def _mail(found: Found) -> Iterator[tuple[Labels, Any]]:
    """All outcomes from the beginning, so that the first of them is one more than before."""
    for each in found["processes"]:
        counted = {**dict.fromkeys(OUTCOMES, 0), **each["mail"]}
        yield from (((each["process"], what), number) for what, number in counted.items() if what != OVER_QUOTA)


def _lags(found: Found) -> Iterator[tuple[Labels, Any]]:
    for each in found["processes"]:
        for task in each["tasks"]:
            since = found["written"] - max(task["completed"], each["started"])
            yield (each["process"], task["name"]), max(0.0, since - task["interval"])


def _histograms(key: str) -> Values:
    return lambda found: [((each["process"], name), told) for each in found["processes"]
                          for name, told in each[key].items()]


def _commands(found: Found) -> Iterator[tuple[Labels, Any]]:
    for each in found["processes"]:
        for server, commands in each["commands"].items():
            yield from (((each["process"], server, name), told) for name, told in commands.items())


def _outbox(key: str) -> Values:
    """Of each receiver of events or mail, as the keeper tells."""
    return lambda found: [((each["receiver"],), each[key]) for process in found["processes"]
                          for each in process["outbox"]]


def _script(key: str) -> Values:
    """All kinds from the beginning, as with `_mail`."""
    return lambda found: [((each["process"], kind), number) for each in found["processes"]
                          for kind, number in each["scripts"][key].items()]


def _octets(key: str) -> Values:
    return lambda found: [((name,), each["octets"][key]) for name, each in found["partitions"].items()
                          if each["octets"] is not None]


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

    # Standbys
    Metric("standby_connected", GAUGE, "Whether this standby follows", ("standby",), _each("standbys", "connected")),
    Metric("standby_in_step", GAUGE, "Whether answers wait for this standby, of those in exchange.synchronous",
           ("standby",), _each("standbys", "in_step")),
    Metric("standby_lag_seconds", GAUGE, "How long ago this standby had on disk all that there was", ("standby",),
           _each("standbys", "lag")),
    Metric("standby_lag_bytes", GAUGE, "Octets of logs that it lacked when it asked last", ("standby",),
           _each("standbys", "behind")),
    Metric("standby_round_trip_seconds", GAUGE, "How long it took to have on disk what it was sent last", ("standby",),
           _each("standbys", "trip")),

    Metric("as_of_timestamp_seconds", GAUGE, "When all was there that is in this copy for reading, which a standby has "
           "made; 0: it is no such copy", (), _one("as_of")),

    # Housekeeping
    Metric("task_last_run_timestamp_seconds", GAUGE, "When the last round of a task of housekeeping began; 0: never",
           _TASK, _task("began")),
    Metric("task_last_run_duration_seconds", GAUGE, "How long its last completed round took", _TASK, _task("took")),
    Metric("task_rounds_total", COUNTER, "Rounds of it that were completed", _TASK, _task("rounds")),
    Metric("task_items_total", COUNTER, "Items that it has done", _TASK, _task("done")),
    Metric("task_failures_total", COUNTER, "Items that failed", _TASK, _task("failures")),
    Metric("task_failing_items", GAUGE, "Items that failed when they were last tried", _TASK, _task("bad")),
    Metric("task_lag_seconds", GAUGE,
           "For how much longer than its interval no round has begun that was completed", _TASK, _lags),
    Metric("store_idx_unwritten", GAUGE, "Mailboxes that changed, and whose store.idx has yet to be written",
           ("process", "partition"), _histograms("unwritten")),
    Metric("purge_overdue_seconds", GAUGE, "For how long the oldest file that is due has waited for the purge",
           _PARTITION, _each("partitions", "purge_overdue")),
    Metric("check_timestamp_seconds", GAUGE, "When onecopy check was run last; 0: never", (), _one("check", "time")),
    Metric("check_duration_seconds", GAUGE, "How long that took", (), _one("check", "seconds")),
    Metric("check_findings", GAUGE, "What it has found", (), _one("check", "findings")),

    # Processes
    Metric("processes", GAUGE, "Processes of the server that answer", (),
           lambda found: [((), len(found["processes"]))]),
    Metric("process_start_timestamp_seconds", GAUGE, "When the process began", _PROCESS, _process("started")),
    Metric("process_memory_bytes", GAUGE, "Memory that it has, its part of what is shared included", _PROCESS,
           _process("memory")),

    # Events
    Metric("outbox_waiting", GAUGE, "Events, or mails to a relay, that wait to be sent to a receiver", ("receiver",),
           _outbox("waiting")),
    Metric("outbox_down", GAUGE, "1 while the receiver is down", ("receiver",), lambda found: [
        ((each["receiver"],), each["state"] == "down") for process in found["processes"]
        for each in process["outbox"]]),
    Metric("outbox_waited_seconds", GAUGE, "How long the oldest that waits for a receiver has waited; 0: none waits",
           ("receiver",), _outbox("waited")),
    Metric("outbox_dead_letters", GAUGE, "Dead letters that are kept for it: counted up to 10,000 in each environment",
           ("receiver",), _outbox("kept_dead")),
    Metric("events_sent_total", COUNTER, "Events, or mails, that it was sent", ("receiver",), _outbox("sent")),
    Metric("events_dead_total", COUNTER, "Events, or mails, that it did not take, or that became too old: dead letters",
           ("receiver",), _outbox("dead")),
    Metric("events_lost_total", COUNTER, "Events that were not kept for it, because too many waited already",
           ("process", "receiver"), lambda found: [((each["process"], name), number) for each in found["processes"]
                                                   for name, number in each["events_lost"].items()]),

    # Clients
    Metric("connections_open", GAUGE, "Connections that are open", _SERVER, _server("open")),
    Metric("connections_total", COUNTER, "Connections that came", _SERVER, _server("connections")),
    Metric("connections_turned_away_total", COUNTER, "Connections past a limit", _SERVER,
           _server("connections turned away")),
    Metric("logins_total", COUNTER, "Logins that were good", _SERVER, _server("logins")),
    Metric("failed_logins_total", COUNTER, "Logins that failed", _PROCESS, _process("failed_logins")),
    Metric("login_failures_total", COUNTER,
           "Logins that failed, were refused unseen or ended by a limit, by the kind that the log names (logging.md)",
           ("process", "service", "reason"), lambda found: [
               ((each["process"], service, reason), number) for each in found["processes"]
               for service, reason, number in each["login_failures"]]),
    Metric("received_bytes_total", COUNTER, "Octets that clients have sent, under TLS those within", _SERVER,
           _server("octets received")),
    Metric("sent_bytes_total", COUNTER, "Octets that they were sent", _SERVER, _server("octets sent")),
    Metric("mail_total", COUNTER, "Messages and recipients, by what became of them", ("process", "outcome"), _mail),
    Metric("quota_refusals_total", COUNTER, "Of these, what was refused because a quota was used up", _PROCESS,
           lambda found: [((each["process"],), each["mail"].get(OVER_QUOTA, 0)) for each in found["processes"]]),
    Metric("sieve_actions_total", COUNTER, "What Sieve scripts wanted for recipients, and of that what was not done",
           ("process", "action"), _script("actions")),
    Metric("sieve_failures_total", COUNTER,
           "Scripts that failed, so that mail was kept, or stayed as it was after a command of IMAP: by themselves, by "
           "a limit, by an error of this server, or since they cannot be compiled (counted when that is found)",
           ("process", "kind"), _script("failures")),
    Metric("sieve_run_seconds", HISTOGRAM,
           "How long runs of scripts took, those after commands of IMAP too; one may be for several recipients",
           _PROCESS,
           lambda found: [((each["process"],), each["scripts"]["seconds"]) for each in found["processes"]]),
    Metric("sieve_run_steps", HISTOGRAM, "Steps of these runs: commands, tests and values compared", _PROCESS,
           lambda found: [((each["process"],), each["scripts"]["steps"]) for each in found["processes"]]),
    Metric("command_duration_seconds", HISTOGRAM,
           "From when all of a command had come to its answer, of DATA and BDAT that of a message; without IDLE; LOGIN "
           "and AUTHENTICATE include what the client is waited for and made to wait", ("process", "server", "command"),
           _commands),
    Metric("loop_turn_seconds", HISTOGRAM,
           "Turns of the event loop: what comes within one waits for its end, 20 ms at most as it should be", _PROCESS,
           lambda found: [((each["process"],), each["turns"]) for each in found["processes"]]),

    # Volumes and databases
    Metric("partition_free_bytes", GAUGE, "Free on the partition's volume", _PARTITION, _each("partitions", "free")),
    Metric("partition_used_bytes", GAUGE, "Used on it, by whomever", _PARTITION, _each("partitions", "used")),
    Metric("partition_files", GAUGE, "Message files in use, when they were last counted", _PARTITION, _octets("files")),
    Metric("partition_unique_bytes", GAUGE, "Their size", _PARTITION, _octets("unique")),
    Metric("partition_references", GAUGE, "Messages that are in mailboxes, or can be restored", _PARTITION,
           _octets("references")),
    Metric("partition_referenced_bytes", GAUGE, "What these would take with a file for each", _PARTITION,
           _octets("referenced")),
    Metric("partition_counted_timestamp_seconds", GAUGE, "When the four before were counted", _PARTITION,
           _octets("when")),
    Metric("log_flush_seconds", HISTOGRAM, "Flushes of a partition's log", ("process", "partition"),
           _histograms("flushes")),
    Metric("log_flush_sharers", HISTOGRAM, "Changes that waited for one flush: the size of a group commit",
           ("process", "partition"), _histograms("sharing")),
    Metric("database_cache_bytes", GAUGE, "Size of the cache", _ENVIRONMENT, _each("environments", "cache")),
    Metric("database_cache_proposed_bytes", GAUGE,
           "What store.cache should be, so that 95 to 99 % of the pages are found; 0: it is large enough", _ENVIRONMENT,
           lambda found: [((name,), each["proposed_cache"] or 0) for name, each in found["environments"].items()]),
    Metric("database_cache_hits_total", COUNTER, "Pages that were found in the cache", _ENVIRONMENT,
           _each("environments", "hits")),
    Metric("database_cache_misses_total", COUNTER, "Pages that were not", _ENVIRONMENT,
           _each("environments", "misses")),
    Metric("database_transactions_total", COUNTER, "Transactions since the last recovery", _ENVIRONMENT,
           _each("environments", "transactions")),
    Metric("database_aborts_total", COUNTER, "Transactions that were undone", _ENVIRONMENT,
           _each("environments", "aborts")),
    Metric("database_locks_total", COUNTER, "Locks that were asked for", _ENVIRONMENT,
           _each("environments", "lock_requests")),
    Metric("database_locks_most", GAUGE, "The most that were held at once", _ENVIRONMENT,
           _each("environments", "most_locks")),
    Metric("database_lock_waits_total", COUNTER, "Locks that had to be waited for", _ENVIRONMENT,
           _each("environments", "lock_waits")),
    Metric("database_deadlocks_total", COUNTER, "Deadlocks", _ENVIRONMENT, _each("environments", "deadlocks")),
    Metric("database_lock_timeouts_total", COUNTER, "Locks that were waited for too long", _ENVIRONMENT,
           _each("environments", "lock_timeouts")),
    Metric("database_log_bytes_total", COUNTER, "Octets written to the log", _ENVIRONMENT,
           _each("environments", "log_octets")),
    Metric("database_checkpoint_timestamp_seconds", GAUGE, "When the last checkpoint was", _ENVIRONMENT,
           _each("environments", "checkpoint")),
    Metric("database_tables_bytes", GAUGE, "Size of all tables", _ENVIRONMENT, _each("environments", "tables")),
    Metric("database_logs_bytes", GAUGE, "Size of the log files that there are", _ENVIRONMENT,
           _each("environments", "logs")),
    Metric("read_only", GAUGE, "1 while nothing can be written to the store's volume, and mail is only read", (),
           _one("read_only")),
    Metric("partition_read_only", GAUGE, "1 while nothing can be written to the partition's volume", _PARTITION,
           lambda found: [((name,), name in found["read_only_partitions"]) for name in found["partitions"]]),
    Metric("advice", GAUGE, "Pieces of advice that onecopy stats has", (), lambda found: [((), len(found["advice"]))]),
)
