"""Who shares what across partitions and back ends, as a Spark job over the tables of one or many stores.

Within a partition each content is there once. On several it is there several times, which costs its octets each time:
`duplicates`. A user who lived where the others are who have the same messages would cost less: `moves`. And messages
that are the same but for fields at their heads are files of their own (`nearness`): `near`.

All figures are of what `store.idx` and message folders say. They are estimates of what a move brings: a content that is
on the other partition with another trace header may become a file of its own there.
"""

from collections.abc import Sequence
from typing import Any

from attrs import frozen

from tools.spark import summaries
from tools.spark.nearness import FORM, nearness
from tools.spark.source import reading
from tools.spark.source.sparkframes import frame

EXAMPLES = 10
_VIEWS = {
    # Each content once on each partition. Of what several records say of a file, they all say the same.
    "files": """
        SELECT store, partition, digest, max(octets) AS octets FROM messages
        WHERE digest IS NOT NULL AND octets IS NOT NULL AND damage = '' GROUP BY store, partition, digest""",
    "held": """
        SELECT DISTINCT r.store, r.partition, r.owner, r.digest, f.octets FROM references r
        JOIN files f USING (store, partition, digest) WHERE r.owner IS NOT NULL""",
    "copied": """
        SELECT digest, count(*) AS copies, sum(octets) - max(octets) AS cost, max(octets) AS octets FROM files
        GROUP BY digest HAVING count(*) > 1""",
}
_TOTALS = """
    SELECT count(*) AS files, coalesce(sum(octets), 0) AS octets,
           (SELECT count(*) FROM copied) AS contents, (SELECT coalesce(sum(copies - 1), 0) FROM copied) AS copies,
           (SELECT coalesce(sum(cost), 0) FROM copied) AS cost FROM files"""
_PAIRS = """
    SELECT a.store, a.partition, b.store AS other_store, b.partition AS other_partition, count(*) AS contents,
           sum(least(a.octets, b.octets)) AS octets
    FROM files a JOIN files b ON a.digest = b.digest AND struct(a.store, a.partition) < struct(b.store, b.partition)
    GROUP BY 1, 2, 3, 4 ORDER BY octets DESC, 1, 2, 3, 4"""
_LARGEST = "SELECT digest, copies, octets, cost FROM copied ORDER BY cost DESC, digest LIMIT {limit}"
# What a move frees: files that nobody else holds where the user lives. What it costs: files that are not there yet.
_MOVES = """
    WITH counted AS (
        SELECT *, count(*) OVER (PARTITION BY store, partition, digest) AS holders FROM held),
    homes AS (
        SELECT store, partition, owner, sum(octets) AS octets, sum(IF(holders = 1, octets, 0)) AS freed
        FROM counted WHERE owner <> '' GROUP BY store, partition, owner),
    met AS (
        SELECT c.store, c.partition, c.owner, f.store AS to_store, f.partition AS to_partition,
               sum(c.octets) AS there
        FROM counted c JOIN files f ON c.digest = f.digest AND struct(c.store, c.partition) <> struct(f.store,
                                                                                                     f.partition)
        WHERE c.owner <> '' GROUP BY 1, 2, 3, 4, 5)
    SELECT owner AS user, store, partition, to_store, to_partition, octets, freed, octets - there AS added,
           freed - (octets - there) AS saved
    FROM homes JOIN met USING (store, partition, owner)
    WHERE freed > octets - there ORDER BY saved DESC, user, to_store, to_partition LIMIT {limit}"""
_NEAR = """
    SELECT plain, count(*) AS files, sum(octets) AS octets, sum(octets) - max(octets) AS cost,
           slice(array_sort(collect_list(digest)), 1, {examples}) AS digests, store, partition
    FROM plains GROUP BY store, partition, plain HAVING count(*) > 1"""


@frozen
class Sharing:
    """What was found: figures of the duplicates, of each pair of partitions, the costliest, and moves in order of what
    they save; with `near`, figures of near-duplicates and the costliest."""

    totals: dict[str, Any]
    pairs: list[dict[str, Any]]
    largest: list[dict[str, Any]]
    moves: list[dict[str, Any]]
    near: dict[str, Any] | None = None


def analyse(spark: Any, stores: Sequence[str], *, moves: int = 20, near: bool = False) -> Sharing:
    """Analyse these stores. The views of `sparksession.tables` must be there."""
    for name, query in _VIEWS.items():
        spark.sql(query).createOrReplaceTempView(name)
        if name != "copied":
            spark.catalog.cacheTable(name)
    totals = _rows(spark, _TOTALS)[0]
    return Sharing(totals, _rows(spark, _PAIRS), _rows(spark, _LARGEST.format(limit=EXAMPLES)),
                   _rows(spark, _MOVES.format(limit=moves)), _near(spark, stores) if near else None)


def _near(spark: Any, stores: Sequence[str]) -> dict[str, Any]:
    """Files of one partition that are the same message but for what `nearness` leaves out."""
    tasks = reading.tasks(reading.roots(list(stores)), "messages")
    frame(spark, "nearness", tasks, nearness, FORM).createOrReplaceTempView("plains")
    spark.sql(_NEAR.format(examples=EXAMPLES)).createOrReplaceTempView("groups")
    spark.catalog.cacheTable("groups")
    found = _rows(spark, """SELECT count(*) AS messages, coalesce(sum(files), 0) AS files,
                                   coalesce(sum(cost), 0) AS cost FROM groups""")[0]
    found["largest"] = _rows(spark, f"""SELECT store, partition, files, octets, cost, digests FROM groups
                                        ORDER BY cost DESC, plain LIMIT {EXAMPLES}""")
    return found


def _rows(spark: Any, query: str) -> list[dict[str, Any]]:
    return summaries.rows(spark.sql(query))
