"""Which engine makes a report: the one that is sooner, by the size of the store.

Measured on two cores: Spark takes 30 s and 2 GiB before it is of use, the process alone a minute and 3 GiB for two
million records; beyond that Spark's memory does not grow.
"""

import os
from collections.abc import Sequence

from attrs import frozen

from store.tables.index import ROW
from tools.spark.source.reading import idx_files, tasks

LOCAL_RECORDS = 2_000_000       # about; of more, memory would be all of a small machine's


@frozen
class Chosen:
    """An engine, and the line that says why."""

    name: str
    said: str


def chosen(wanted: str | None, stores: Sequence[str]) -> Chosen:
    """The engine that is wanted, or the one for stores of this size: by the octets of their files `store.idx`."""
    if wanted is not None:
        return Chosen(wanted, f"Engine {wanted}, as --engine says.")
    records = 0
    for task in tasks(stores, "mailboxes"):
        for found in idx_files(task):
            if not found.problem:
                records += _octets(found.path) // ROW.itemsize
                if records > LOCAL_RECORDS:
                    return Chosen("spark", f"Engine spark: more than {LOCAL_RECORDS:,} records; --engine local is for "
                                  "fewer.")
    return Chosen("local", f"Engine local: about {records:,} records; from {LOCAL_RECORDS:,} on it is Spark.")


def _octets(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
