"""The Spark data source `onecopy`:

    register(spark)
    spark.read.format("onecopy").option("table", "references").load("/srv/mail")

Options: `table`; `partition`, `owner`, `digest` (the beginning of one), each one or several with commas between them,
where nothing else is wanted; `columns`, with commas, in this order. The path is a store's folder, several with commas
between them, or a pattern; see `reading.roots`.

The reader must not take Spark's filters (`pushFilters`). Spark 4.1 to 4.3 plans a frame or a view once, and all of its
scans read what was planned last: a filter of one scan would leave rows out of every other one. Options narrow instead.
"""

import json
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from attrs import evolve, frozen
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from tools.spark.source.reading import Wanted, roots, tasks
from tools.spark.source.rows import batches
from tools.spark.source.schema import FORMAT, TABLES, schema


def register(spark: SparkSession) -> None:
    """Have the session know the format."""
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


@frozen(slots=False)
class Reader(DataSourceReader):
    """Plans the tasks in one process, and reads each wherever Spark has it read."""

    table: str
    paths: Sequence[str]
    wanted: Wanted

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
