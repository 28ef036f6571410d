"""Which engine makes a report, when none is asked for: the one that is sooner and has room, by the size of the store.

Measured on two cores: one process takes 1.5 KB of memory and some 10 µs for a record; Spark takes half a minute and
2 GiB before it is of use, and no more memory for more records.
"""

import os
from collections.abc import Sequence

from store.tables.index import ROW
from tools.spark.engines import LOCAL, SPARK, Choice, cores_of
from tools.spark.source.reading import idx_files, tasks

FLEET_RECORDS = 10_000_000      # of facts, which one process reads in pieces
LOCAL_RECORDS = 2_000_000       # about; of more, the memory of one process would be 3 GB


def choose(stores: Sequence[str], master: str) -> Choice:
    """The engine for stores of this size, by the octets of their files `store.idx`."""
    if cores_of(master) is None:
        return Choice(SPARK, f"engine: Spark, of {master}")
    records = 0
    for task in tasks(stores, "mailboxes"):
        for found in idx_files(task):
            records += _octets(found.path) // ROW.itemsize if not found.problem else 0
            if records > LOCAL_RECORDS:
                return Choice(SPARK, f"engine: Spark (more than {LOCAL_RECORDS:,} records); --engine local takes this "
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
