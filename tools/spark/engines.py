"""Which engine a plan, a verification or a report takes when none is asked for: by what was measured (docs/spark.md,
"What it costs").

One process needs 0.34 ms a message. Spark needs 26 s to begin and 0.53 ms of processor time a message, divided by its
cores, of which 15 % are lost. On two cores both are equal at a million messages. For a report one process needs some
5 us and 100 octets of memory a record; Spark takes half a minute and 2 GiB before it is of use, and no more memory for
more records.
"""

import os
import re
import sys
from collections.abc import Sequence

from attrs import frozen

from store.tables.index import ROW
from tools.cli.invocation import Invocation
from tools.spark import sparksession
from tools.spark.source import reading

LOCAL_SECONDS, SPARK_SECONDS, SPARK_BEGINS, USED = 0.34e-3, 0.53e-3, 26.0, 0.85
FLEET_RECORDS = 10_000_000      # of facts, which one process reads in pieces
REPORT_RECORDS = 10_000_000     # about, of a store: the memory of one process would be 1 GB
LOCAL, SPARK, AUTO = "local", "spark", "auto"
_LOCAL_MASTER = re.compile(r"local(?:\[(\d+|\*)(?:,\d+)?\])?")


@frozen
class Choice:
    """An engine, and the line that says why."""

    engine: str
    why: str


def chosen(invocation: Invocation) -> str:
    """The engine for the command that was typed, with a line that says which and why: the first one, on standard error
    where the rest is JSON."""
    arguments = invocation.arguments
    choice = choose(str(invocation.config.root), arguments.master)
    print(choice.why, file=sys.stderr if arguments.json else sys.stdout)
    return choice.engine


def choose(root: str, master: str, missing: str | None = None) -> Choice:
    """The engine for a store, for which Spark would be run by `master`. `missing` says what Spark lacks here, "" when
    it can be run; None: find out."""
    cores = cores_of(master)
    if cores is None:
        return Choice(SPARK, f"engine: Spark, of {master}")
    messages = reading.estimated_messages(root)
    size = f"about {messages:,} messages, {cores} {'core' if cores == 1 else 'cores'}"
    if seconds(LOCAL, messages, cores) <= seconds(SPARK, messages, cores):
        return Choice(LOCAL, f"engine: this process ({size}); --engine spark takes Spark")
    if missing is None:
        missing = sparksession.missing()
    if missing:
        return Choice(LOCAL, f"engine: this process ({size}), although Spark would be quicker. {missing}")
    return Choice(SPARK, f"engine: Spark ({size}); --engine local takes this process")


def seconds(engine: str, messages: int, cores: int) -> float:
    """How long a plan of so many messages takes."""
    if engine == LOCAL:
        return messages * LOCAL_SECONDS
    return SPARK_BEGINS + messages * SPARK_SECONDS / (cores * USED)


def cores_of(master: str) -> int | None:
    """How many cores of this host a master of Spark means; None for one elsewhere."""
    found = _LOCAL_MASTER.fullmatch(master)
    if found is None:
        return None
    return len(os.sched_getaffinity(0)) if found[1] == "*" else int(found[1] or 1)


def of_report(stores: Sequence[str], master: str) -> Choice:
    """The engine for the report of stores of this size, by the octets of their files `store.idx`."""
    if cores_of(master) is None:
        return Choice(SPARK, f"engine: Spark, of {master}")
    records = 0
    for task in reading.tasks(stores, "mailboxes"):
        for found in reading.idx_files(task):
            records += _octets(found.path) // ROW.itemsize if not found.problem else 0
            if records > REPORT_RECORDS:
                return Choice(SPARK, f"engine: Spark (more than {REPORT_RECORDS:,} records); --engine local takes this "
                              "process")
    return Choice(LOCAL, f"engine: this process (about {records:,} records); --engine spark takes Spark")


def of_fleet(records: int, master: str) -> Choice:
    """The engine for facts of so many records."""
    if cores_of(master) is None:
        return Choice(SPARK, f"engine: Spark, of {master}")
    if records > FLEET_RECORDS:
        return Choice(SPARK, f"engine: Spark ({records:,} records); --engine local takes this process")
    return Choice(LOCAL, f"engine: this process ({records:,} records); --engine spark takes Spark")


def _octets(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
