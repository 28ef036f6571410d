"""The one thing that an analyst imports: the tables of back ends in any session of Spark, as temporary views.

    from tools.spark.facts.register import register

    register(spark, "/srv/shared/facts/mail1", "s3a://facts/mail2")
    spark.sql("SELECT domain, sum(octets) FROM references GROUP BY domain").show()
"""

from typing import Any

from tools.spark.facts.factfolders import frame_of, opened
from tools.spark.facts.factschema import FACTS


def register(spark: Any, *places: str) -> tuple[str, ...]:
    """Make a view of each table over the exports of facts in these places; the names of the views. `quotas` has each
    root once on each partition. Raises Failure where an export is not whole."""
    found = opened(places, spark)
    for table in FACTS:
        frame_of(spark, found, table).createOrReplaceTempView(table)
    return tuple(FACTS)
