"""Spark frames of what functions of ours give, as Arrow batches: for each of many tasks, or for the rows of a frame."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

Batches = Iterator[pa.RecordBatch]


def frame(session: Any, table: str, tasks: Sequence[Any], work: Callable[[Any], Batches], form: pa.Schema) -> Any:
    """A frame of that form: the rows that `work` gives for the tasks, each in a partition of its own.

    `table` is a name for Spark. Tasks and `work` are pickled.
    """
    # here: this module is also loaded where a plan is made without Spark
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
    from pyspark.sql.pandas.types import from_arrow_schema

    if not tasks:                               # Spark would make one of nothing
        return session.createDataFrame([], from_arrow_schema(form))

    class Tasks(DataSourceReader):
        def partitions(self) -> Sequence[InputPartition]:
            return [InputPartition(task) for task in tasks]

        def read(self, partition: InputPartition) -> Batches:
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


def mapped(rows: Any, work: Callable[[Batches], Batches], form: pa.Schema) -> Any:
    """A frame of that form: what `work`, which is pickled, gives for the batches of each partition of a frame.

    (`DataFrame.mapInArrow` without asking for pandas, which it does not use.)
    """
    from pyspark.sql import DataFrame
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.udf import UserDefinedFunction
    from pyspark.util import PythonEvalType

    made = UserDefinedFunction(work, from_arrow_schema(form), evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    column = made(*[rows[name] for name in rows.columns])
    return DataFrame(rows._jdf.mapInArrow(column._jc, False, None), rows.sparkSession)
