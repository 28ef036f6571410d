"""The Spark data source `onecopy`:

    register(spark)
    spark.read.format("onecopy").option("table", "references").load("/srv/mail")

Options: `table`; `partition`, `owner`, `digest` (the beginning of one), each one or several with commas between them,
where nothing else is wanted; `columns`, with commas, in this order. The path is a store's folder, several with commas
between them, or a pattern; see `reading.roots`. Filters on partition, owner, digest and folder are pushed down, where
that saves reading; Spark applies them again, so they need not be exact here.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from attrs import evolve
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    In,
    InputPartition,
    StringStartsWith,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from tools.spark.source.reading import Wanted, roots, tasks
from tools.spark.source.rows import batches
from tools.spark.source.schema import FORMAT, TABLES, schema

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def register(spark: SparkSession) -> None:
    """Have the session know the format. (Spark refuses readers that take filters unless it is told to hand them on.)"""
    spark.conf.set(PUSHDOWN, "true")
    spark.dataSource.register(Source)


class Source(DataSource):
    """A table of one or more stores."""

    @classmethod
    def name(cls) -> str:
        """What `format` says."""
        return FORMAT

    def schema(self) -> StructType:
        """The columns. Raises ValueError."""
        return from_arrow_schema(schema(_table(self.options), wanted(self.options).columns))

    def reader(self, schema: StructType) -> DataSourceReader:
        """What reads these columns."""
        return Reader(_table(self.options), paths(self.options),
                      evolve(wanted(self.options), columns=tuple(schema.fieldNames())))


class Reader(DataSourceReader):
    """Plans the tasks in one process, and reads each wherever Spark has it read."""

    def __init__(self, table: str, paths: Sequence[str], wanted: Wanted) -> None:
        self.table = table
        self.paths = paths
        self.wanted = wanted

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Read less, where these filters allow that; Spark applies all of them again."""
        self.wanted = narrowed(self.wanted, filters)
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        """The tasks. Raises ValueError."""
        return [InputPartition(task) for task in tasks(roots(self.paths), self.table, self.wanted)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task. (Where there are no tasks Spark has one read that is none.)"""
        return iter(()) if partition.value is None else batches(partition.value)


def _table(options: Mapping[str, str]) -> str:
    table = options.get("table")
    if table is None:
        raise ValueError(f"which table? Give the option \"table\": {', '.join(TABLES)}")
    return table


def paths(options: Mapping[str, str]) -> list[str]:
    """What `load` was given: one path, or a list. Raises ValueError."""
    if "path" in options:
        return options["path"].split(",")
    if "paths" in options:
        return [str(path) for path in json.loads(options["paths"])]
    raise ValueError("which store? Give load() the path of one")


def wanted(options: Mapping[str, str]) -> Wanted:
    """What the options narrow a table to."""
    def several(name: str) -> frozenset[str] | None:
        return frozenset(_words(options[name])) if name in options else None

    return Wanted(several("partition"), several("owner"), several("digest"), tuple(_words(options.get("columns", ""))))


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def narrowed(wanted: Wanted, filters: Iterable[Filter]) -> Wanted:
    """What is wanted still when all of these filters must hold as well."""
    for each in filters:
        column, values = _values(each)
        if values is None:
            continue
        if column == "partition":
            wanted = evolve(wanted, partitions=_both(wanted.partitions, values))
        elif column == "owner":
            wanted = evolve(wanted, owners=_both(wanted.owners, values))
        elif column == "digest":
            wanted = evolve(wanted, digests=_begins(wanted.digests, values))
        elif column == "folder":
            wanted = evolve(wanted, digests=_begins(wanted.digests, frozenset(
                value.replace("/", "", 1) for value in values if value[1:2] == "/")))
    return wanted


def _values(each: Filter) -> tuple[str, frozenset[str] | None]:
    """The column that a filter is about, and the texts that it lets through; None for any other filter."""
    value: Any
    match each:
        case EqualTo(attribute, value) | EqualNullSafe(attribute, value):
            values = [value]
        case In(attribute, values):
            values = [value for value in values if value is not None]
        case StringStartsWith(attribute, value) if attribute == ("digest",):
            values = [value]
        case _:
            return "", None
    if len(attribute) != 1 or not all(isinstance(value, str) for value in values):
        return "", None
    return attribute[0], frozenset(values)


def _both(some: frozenset[str] | None, others: frozenset[str]) -> frozenset[str]:
    return others if some is None else some & others


def _begins(some: frozenset[str] | None, others: frozenset[str]) -> frozenset[str]:
    """The beginnings that both let through: of two of which one begins with the other, the longer."""
    if some is None:
        return others
    return frozenset(max(one, other, key=len) for one in some for other in others
                     if one.startswith(other) or other.startswith(one))
