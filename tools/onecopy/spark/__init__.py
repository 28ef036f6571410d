"""Mail metadata in any session of Spark, and charts of it: all that an analyst imports of ours.

    from onecopy.spark import register

    register(spark, "/srv/shared/facts/mail1", "s3a://facts/mail2")
    spark.sql("SELECT domain, sum(octets) FROM references GROUP BY domain").show()
"""

from typing import Any

from tools.spark.facts import factfolders
from tools.spark.report.charts import Bar, bars, columns
from tools.spark.source import source

__all__ = ["Bar", "bars", "columns", "register"]


def register(spark: Any, *places: str) -> tuple[str, ...]:
    """Make the data source `onecopy` known, which reads stores, and a view of each table over the exports of facts in
    these places; the names of the views. Raises Failure (an exception) where an export is not whole."""
    source.register(spark)
    return factfolders.register(spark, *places) if places else ()
