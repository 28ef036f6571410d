"""What may be wrong, of all that a plan has, looked for by the executors: see `suspects`.

Only what is found comes into the driver. Heads are judged row by row; what takes others into account (the newest file
of a mailbox, the limits of its owner) is joined to them. Records that cannot be used are joined with the whole message
files by digest.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from attrs import asdict, define, field, frozen
from pyspark.sql import functions as sql

from mboxlist.names import PUBLIC
from store.store import Store
from tools.spark import summaries
from tools.spark.rebuild import planrows, plantasks
from tools.spark.rebuild.plan import Plan
from tools.spark.rebuild.planrows import Batches, Row, each
from tools.spark.rebuild.sparkplan import FILE, PARTITIONS, PLACE, Spark
from tools.spark.source import reading
from tools.spark.source.sparkframes import mapped
from tools.spark.verify import comparing, kinds, sparkcompare, suspects
from tools.spark.verify.suspects import Lost, Unfit, WrongHead

RECORDS_OF_A_PART = 250_000     # of a shuffle, about
_TEXTS = pa.list_(pa.field("element", pa.string()))
HEADS = pa.schema([
    *((name, pa.string()) for name in ("partition", "path", "name", "list", "owner", "tree", "quota_root", "foreign",
                                       "root")),
    ("id", pa.int64()), ("written", pa.int64()), ("rights", _TEXTS), ("roots", _TEXTS), ("limits", _TEXTS),
    *((name, pa.bool_()) for name in ("found", "there", "misplaced", "removed", "sure"))])
UNUSABLE = pa.schema([("partition", pa.string()), ("path", pa.string()), ("name", pa.string()),
                      ("records", pa.int64()), ("digest", pa.binary()), ("uid", pa.int64()), ("octets", pa.int64())])


@frozen
class SparkLooking:
    """Looks by Spark: see `suspects.Engine`."""

    session: Any

    def suspects(self, plan: Plan, root: Path) -> "SparkSuspects":
        """See Engine. The session is that of one command: its joins are of as many parts as these records are worth."""
        parts = max(self.session.sparkContext.defaultParallelism,
                    plan.read_manifest().total.records // RECORDS_OF_A_PART)
        self.session.conf.set(PARTITIONS, str(parts))
        return SparkSuspects(Spark(self.session), plan, root)

    def compare(self, store: Store, plan: Plan) -> comparing.Compared:
        """See Engine."""
        return sparkcompare.compare(self.session, store, plan)


@define(eq=False)
class SparkSuspects:
    """See `suspects.Suspects`."""

    engine: Spark
    plan: Plan
    root: Path
    folders: Mapping[str, str] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.folders = {name: str(self.root / "partitions" / name) for name in self.plan.read_manifest().partitions}
        firsts = self._table("pieces").where("piece = 0 AND head IS NOT NULL")
        mapped(firsts.select(*PLACE, "head", "name", "found"), partial(_heads, self.folders), HEADS
               ).createOrReplaceTempView("check_heads")

    def _table(self, name: str) -> Any:
        return self.engine.table(self.plan, name)

    def damaged_heads(self) -> list[dict[str, Any]]:
        """See Suspects."""
        texts = sql.expr("transform(filter(findings, each -> each.place = path), each -> each.what)")
        rows = self._table("pieces").where("coalesce(piece, 0) = 0").select(*PLACE, texts.alias("texts"))
        return summaries.rows(rows.where("size(texts) > 0"))

    def wrong_heads(self) -> list[WrongHead]:
        """See Suspects."""
        found = summaries.rows(self.engine.session.sql(_WRONG))
        return [WrongHead(**row | {"rights": tuple(row["rights"]) if row["rights"] else None}) for row in found]

    def mailboxes(self, paths: set[str]) -> dict[str, str]:
        """See Suspects."""
        if not paths:
            return {}
        asked = self.engine.session.createDataFrame([
            (name, path[len(folder) + 1:]) for path in sorted(paths) for name, folder in self.folders.items()
            if path.startswith(f"{folder}/")] or [("", "")], "partition string, path string")
        asked.createOrReplaceTempView("check_asked")
        return {f"{self.folders[row['partition']]}/{row['path']}": row["name"]
                for row in summaries.rows(self.engine.session.sql(_ASKED))}

    def names_twice(self) -> list[dict[str, Any]]:
        """See Suspects."""
        return summaries.rows(self._table("findings").where(sql.col("what").startswith(suspects.TWICE)))

    def unusable(self) -> tuple[list[Lost], list[Unfit]]:
        """See Suspects."""
        pieces = self._table("pieces").where("octet_length(unused) > 0").select(*PLACE, "name", "unused", "fields")
        files = self.engine.files(self.plan).where("whole").select(*FILE, "whole")
        records = mapped(pieces, _unusable, UNUSABLE).join(files, FILE, "left").cache()
        try:
            lost = records.where("whole IS NULL").groupBy(*FILE).agg(
                sql.sum("records").alias("records"),
                sql.min_by(sql.struct("octets", "name", "uid"), sql.struct("path", "uid")).alias("first"))
            unfit = records.where("whole").groupBy(*PLACE).agg(
                sql.sum("records").alias("records"), sql.min("uid").alias("uid"))
            return ([Lost(**row) for row in summaries.rows(lost.select(*FILE, "records", "first.*"))],
                    [Unfit(**row) for row in summaries.rows(unfit)])
        finally:
            records.unpersist()

    def _damaged(self) -> Any:
        return self._table("messages").where("trace IS NULL")

    def damaged_files(self) -> list[dict[str, Any]]:
        """See Suspects."""
        return summaries.rows(self._damaged().select(*PLACE, "digest", "octets", "likely",
                                                     sql.expr("findings[0].what").alias("what")))

    def whole(self) -> set[tuple[str, bytes]]:
        """See Suspects."""
        likely = self._damaged().select("partition", sql.explode("likely").alias("digest"))
        found = likely.join(self.engine.files(self.plan).where("whole"), FILE, "left_semi").distinct()
        return {(row["partition"], row["digest"]) for row in summaries.rows(found)}

    def misplaced(self) -> list[dict[str, Any]]:
        """See Suspects."""
        wrong = "concat(substr(path, 10, 1), substr(path, 12, 2)) <> substr(path, 15, 3)"    # messages/3/fa/3fa...
        return summaries.rows(self._table("messages").where(
            f"trace IS NOT NULL AND NOT staged AND {wrong}").select(*PLACE))

    def unused(self) -> int:
        """See Suspects."""
        return summaries.count(self.engine.unused(self.plan))


# The newest file of each mailbox has it. A root counts on a partition when somebody of its tree has a mailbox there.
_PLACED = """
    newest AS (
        SELECT list, id, max(struct(written, partition, path)) AS newest FROM check_heads
        WHERE found AND there AND NOT misplaced GROUP BY list, id),
    placed AS (
        SELECT h.*, NOT misplaced AND struct(written, partition, path) <> newest AS older
        FROM check_heads h LEFT JOIN newest USING (list, id) WHERE found AND there)"""
_WRONG = f"""
    WITH {_PLACED},
    limits AS (
        SELECT DISTINCT t.partition, r.root
        FROM (SELECT explode(limits) AS root FROM check_heads) r
        JOIN (SELECT DISTINCT partition, tree FROM check_heads) t ON substring_index(r.root, '/', 1) = t.tree),
    nearest AS (
        SELECT partition, path, min_by(root, at) AS root
        FROM (SELECT partition, path, posexplode(roots) AS (at, root) FROM placed) JOIN limits USING (partition, root)
        GROUP BY partition, path),
    certain AS (SELECT DISTINCT partition, owner, true AS certain FROM check_heads WHERE sure),
    judged AS (
        SELECT p.partition, p.path, p.name, p.id, p.misplaced, p.older, p.foreign, p.rights, p.quota_root,
               if(certain AND NOT p.removed, nullif(coalesce(n.root, p.root), p.quota_root), NULL) AS root
        FROM placed p LEFT JOIN nearest n USING (partition, path) LEFT JOIN certain USING (partition, owner))
    SELECT partition, path, name, id, misplaced, older,
           if(misplaced OR older, '', foreign) AS foreign, if(misplaced OR older, NULL, rights) AS rights,
           if(misplaced OR older, NULL, root) AS root, quota_root
    FROM judged WHERE misplaced OR older OR foreign <> '' OR rights IS NOT NULL OR root IS NOT NULL"""
_ASKED = f"""
    WITH {_PLACED}
    SELECT partition, path, name FROM placed JOIN check_asked USING (partition, path)
    WHERE NOT misplaced AND NOT older"""


# What executors do

def _heads(folders: Mapping[str, str], batches: Batches) -> Batches:
    """What each store.idx says of its mailbox, as far as it alone tells."""
    def judged(row: Row) -> Any:
        folder = Path(folders[row["partition"]])
        source = plantasks.source_of(row, folder)
        head, (root, roots) = source.head, planrows.roots_of(source.name)
        wrong = asdict(suspects.judged(row["path"], source, None) or WrongHead(row["partition"], row["path"], "", 0))
        yield {**{name: row[name] for name in ("partition", "path", "found")}, "name": head.name, "list": head.store,
               "owner": head.owner, "tree": source.name.owner or PUBLIC[:-1], "quota_root": head.quota_root,
               "foreign": wrong["foreign"], "rights": wrong["rights"], "root": root, "roots": roots, "id": head.id,
               "written": head.written, "removed": bool(head.removed), "there": source.path.exists(),
               "sure": suspects.is_sure(source),
               "limits": [each for each in head.limits if suspects.is_own_root(each)],
               "misplaced": kinds.misplaced(folder, row["path"], head, reading.owner_place)}

    return each(batches, HEADS, judged)


def _unusable(batches: Batches) -> Batches:
    return each(batches, UNUSABLE, suspects.unusable)
