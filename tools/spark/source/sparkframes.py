"""Spark frames of what a function of ours gives for each of many tasks, as Arrow batches."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa


def frame(session: Any, table: str, tasks: Sequence[Any], work: Callable[[Any], Iterator[pa.RecordBatch]],
          form: pa.Schema) -> Any:
    """A frame of that form: the rows that `work` gives for the tasks, each in a partition of its own.

    `table` is a name for Spark. Tasks and `work` are pickled. (`mapInArrow` would do, and asks for pandas.)
    """
    # here: this module is also loaded where a plan is made without Spark
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
    from pyspark.sql.pandas.types import from_arrow_schema

    class Tasks(DataSourceReader):
        def partitions(self) -> Sequence[InputPartition]:
            return [InputPartition(task) for task in tasks]

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            yield from work(partition.value)

    class Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return f"onecopy_{table}"

        def schema(self) -> Any:
            return from_arrow_schema(form)

        def reader(self, schema: Any) -> DataSourceReader:
            return Tasks()

    session.dataSource.register(Source)
    return session.read.format(Source.name()).load()
