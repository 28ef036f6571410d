"""The plan of a rebuild made by Spark: all that grows with messages, records, mailboxes or users is done by executors,
and written by them.

What `localplan` looks up is joined here. A record is joined with its message file by the digest, and comes back to the
piece of its mailbox, of `RECORDS_IN_A_ROW` records at most: no group, and no list, grows with those who hold a message
or with a mailbox. Sums are added up where the rows are, before they are sent. How many partitions a shuffle has goes by
the tasks that read, and adaptive execution joins what is small and divides what is much (a message of millions).

Spark runs a task that failed, or whose worker died, once more; of each task one file gets its name, when it is whole. A
table that is complete stays when the driver dies, and is not made again.
"""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import pyarrow as pa
from attrs import frozen
from pyspark.sql import functions as sql
from pyspark.sql.pandas.types import from_arrow_schema

from store.values import SWEEP
from tools.spark import summaries
from tools.spark.rebuild import planrows, plantasks
from tools.spark.rebuild.localplan import Work
from tools.spark.rebuild.plan import ORDER, SCHEMAS, Figures, Plan
from tools.spark.rebuild.rebuildjob import Scope
from tools.spark.source import reading
from tools.spark.source.sparkframes import frame, mapped

READ = "read"               # pieces whose records are not judged yet: a table that is removed again
NUMBER = "number"           # of a row of it
PLACE = ["partition", "path"]
FILE = ["partition", "digest"]
PARTITIONS = "spark.sql.shuffle.partitions"
TASKS_A_PARTITION = 4       # of tasks that read 16 MiB of store.idx each


@frozen
class Spark:
    """See `rebuildjob.Engine`."""

    session: Any
    name: str = "spark"

    def fill(self, plan: Plan, scope: Scope) -> tuple[dict[str, Figures], int]:
        """See Engine."""
        tasks = scope.tasks("mailboxes")
        with self._shuffles(len(tasks)):
            if not plan.is_done("messages"):
                self.run(plan, "messages", scope.tasks("messages"), plantasks.messages)
            if not plan.is_done(READ) and not plan.is_done("pieces"):
                self.run(plan, READ, tasks, plantasks.read)
            for table, make in (("pieces", self._pieces), ("mailboxes", self._mailboxes), ("quotas", self._quotas),
                                ("references", self._references), ("findings", self._findings)):
                if not plan.is_done(table):
                    self._write(make(plan, scope), plan, table)
            shutil.rmtree(plan.folder / READ, ignore_errors=True)
            return self._figures(plan, scope), summaries.count(self.table(plan, "findings"))

    def run(self, plan: Plan, table: str, tasks: Sequence[reading.Task], work: Work) -> None:
        """Write a table: all that `work` gives for the tasks."""
        form = SCHEMAS["pieces" if table == READ else table]
        if tasks:
            made = frame(self.session, table, tasks, work, form)
            self._write(made.withColumn(NUMBER, sql.monotonically_increasing_id()) if table == READ else made, plan,
                        table)
        plan.complete(table)

    @contextmanager
    def _shuffles(self, tasks: int) -> Iterator[None]:
        """With as many partitions as so many tasks are worth."""
        conf = self.session.conf
        before = conf.get(PARTITIONS)
        conf.set(PARTITIONS, str(max(self.session.sparkContext.defaultParallelism, tasks // TASKS_A_PARTITION)))
        try:
            yield
        finally:
            conf.set(PARTITIONS, before)

    def table(self, plan: Plan, table: str) -> Any:
        """A table of the plan."""
        form = SCHEMAS["pieces"].append(pa.field(NUMBER, pa.int64())) if table == READ else SCHEMAS[table]
        return self.session.read.schema(from_arrow_schema(form)).parquet(str(plan.folder / table))

    @staticmethod
    def _write(made: Any, plan: Plan, table: str) -> None:
        made.write.mode("overwrite").option("compression", "zstd").parquet(str(plan.folder / table))
        plan.complete(table)

    # The tables

    def files(self, plan: Plan) -> Any:
        """The message files, each once: `whole`, `damaged` (both, where it is there twice), and of a whole one octets
        and trace header. One that has its place counts before one that is staged."""
        whole = sql.col("trace").isNotNull()
        order = sql.when(whole, sql.struct("staged", "path"))
        return self.table(plan, "messages").where("digest IS NOT NULL").groupBy(*FILE).agg(
            sql.max(whole).alias("whole"), sql.max(~whole).alias("damaged"),
            sql.min_by(sql.struct("octets", "trace"), order).alias("best")).select(
            *FILE, "whole", "damaged", "best.octets", "best.trace")

    def unused(self, plan: Plan) -> Any:
        """The whole message files to which no mailbox refers."""
        return self.files(plan).where("whole").join(self.table(plan, "references").select(*FILE), FILE, "left_anti")

    def _pieces(self, plan: Plan, scope: Scope) -> Any:
        read = self.table(plan, READ)
        named = mapped(read.where("rows IS NOT NULL").select("partition", NUMBER, "rows"), planrows.named,
                       planrows.NAMED)
        files = named.join(self.files(plan), FILE).groupBy(NUMBER).agg(
            sql.collect_list(sql.struct("digest", "octets", "trace", "whole", "damaged")).alias("files"))
        folders = {name: scope.folder(name) for name in scope.partitions}
        together = read.join(files, NUMBER, "left").drop(NUMBER).repartition(*PLACE).sortWithinPartitions(
            *PLACE, "piece")
        return mapped(together, partial(planrows.judged, folders, scope.begun), SCHEMAS["pieces"])

    def _mailboxes(self, plan: Plan, scope: Scope) -> Any:
        """Those that `userareascan.choose` chooses: by SQL, in the same order."""
        pieces = self.table(plan, "pieces").where("name IS NOT NULL")
        figures = pieces.groupBy(*PLACE).agg(
            sql.sum("records").alias("records"), sql.sum("octets").alias("octets"),
            sql.sum(sql.expr(f"octet_length(unused) DIV {planrows.RECORD_OCTETS}")).alias("unused"))
        firsts = pieces.where("piece = 0")
        heads = mapped(firsts.select(*PLACE, "head", "found"), planrows.heads, planrows.HEADS)
        heads.createOrReplaceTempView("plan_heads")
        self.session.sql(_CHOSEN).createOrReplaceTempView("plan_chosen")
        firsts.select(*PLACE, "name").createOrReplaceTempView("plan_names")
        rest = firsts.select(*PLACE, "head", "name", "found", "damaged", "size", "modified").join(figures, PLACE)
        return mapped(self.session.sql(_NAMED_TWICE).join(rest, PLACE), planrows.chosen, SCHEMAS["mailboxes"])

    def _quotas(self, plan: Plan, scope: Scope) -> Any:
        mailboxes = self.table(plan, "mailboxes")
        columns = ["partition", "path", "id", "name", "head", "octets", "records"]
        mapped(mailboxes.select(*columns), planrows.uses, planrows.USES).createOrReplaceTempView("plan_uses")
        mapped(mailboxes.select(*columns), planrows.limits, planrows.LIMITS).createOrReplaceTempView("plan_limits")
        names = ", ".join(f"'{name}'" for name in scope.partitions)
        return self.session.sql(_QUOTAS.format(names=names)).select(SCHEMAS["quotas"].names)

    def _references(self, plan: Plan, scope: Scope) -> Any:
        ids = self.table(plan, "mailboxes").select(*PLACE, "id")
        pieces = self.table(plan, "pieces").where("records > 0").select(*PLACE, "rows")
        counted = mapped(pieces.join(ids, PLACE).select("partition", "id", "rows"), planrows.references,
                         SCHEMAS["references"])
        sums = [getattr(sql, how)(column).alias(column) for column, how in plantasks.SUMS.items()]
        return counted.groupBy(*FILE).agg(*sums).select(SCHEMAS["references"].names)

    def _findings(self, plan: Plan, scope: Scope) -> Any:
        parts = [self.table(plan, table).select(sql.explode("findings").alias("finding")).select("finding.*")
                 for table in ("messages", "pieces", "mailboxes")]
        unused = self.unused(plan)
        place = sql.concat(sql.lit("message "), sql.lower(sql.hex("digest")))
        parts.append(unused.select(sql.lit(plantasks.UNUSED).alias("what"), place.alias("place"),
                                   sql.lit(str(SWEEP)).alias("repair")))
        made = parts[0]
        for part in parts[1:]:
            made = made.unionByName(part)
        return made.orderBy(*ORDER)

    def _figures(self, plan: Plan, scope: Scope) -> dict[str, Figures]:
        counts = self.table(plan, "mailboxes").groupBy("partition").agg(
            sql.count("*").alias("mailboxes"), sql.sum("records").alias("records"))
        whole = self.files(plan).where("whole").groupBy("partition").agg(
            sql.count("*").alias("messages"), sql.sum("octets").alias("octets"))
        found = {name: Figures() for name in scope.partitions}
        for row in summaries.rows(counts.join(whole, "partition", "full"), 2 * len(found)):
            name = row.pop("partition")
            found[name] = Figures(**{key: value or 0 for key, value in row.items()})
        return found


_ORDER = "found DESC, written DESC, partition DESC, path DESC"

# The newest file of each id has it. An older one of the same mailbox is left out; others, and those whose heads are
# lost, get ids behind the last one, in order.
_CHOSEN = f"""
    WITH firsts AS (
        SELECT id, max_by(struct(partition, path, list, uidvalidity), struct(written, partition, path)) AS first
        FROM plan_heads WHERE found GROUP BY id),
    judged AS (
        SELECT h.*, first IS NOT NULL AND h.partition = first.partition AND h.path = first.path AS own,
               first IS NOT NULL AND (h.list = first.list OR h.uidvalidity = first.uidvalidity) AS same
        FROM plan_heads h LEFT JOIN firsts ON h.found AND h.id = firsts.id),
    others AS (
        SELECT partition, path, row_number() OVER (ORDER BY {_ORDER}) + (
            SELECT coalesce(max(id), 0) FROM plan_heads WHERE found) AS new
        FROM judged WHERE NOT own AND NOT same)
    SELECT j.partition, j.path, j.found, j.written, j.removed, coalesce(o.new, j.id) AS id
    FROM judged j LEFT JOIN others o ON j.partition = o.partition AND j.path = o.path
    WHERE own OR o.new IS NOT NULL"""

# Of several that are there with one name the first keeps it.
_NAMED_TWICE = f"""
    SELECT partition, path, id, NOT removed AND row_number() OVER (
        PARTITION BY removed, name ORDER BY {_ORDER}) > 1 AS again
    FROM plan_chosen JOIN plan_names USING (partition, path)"""

# The newest limits of each root; those of domains count on all partitions, others where their owners have mailboxes.
_QUOTAS = """
    WITH newest AS (
        SELECT root, owner, max_by(struct(octets, messages), struct(written, id)) AS most FROM (
            SELECT id, written, item.* FROM (SELECT id, written, explode(limits) AS item FROM plan_limits))
        GROUP BY root, owner),
    limits AS (
        SELECT partition, root, most FROM newest JOIN (SELECT DISTINCT partition, owner FROM plan_limits) USING (owner)
        UNION ALL
        SELECT partition, root, most FROM newest CROSS JOIN (SELECT explode(array({names})) AS partition)
        WHERE owner IS NULL),
    nearest AS (
        SELECT partition, path, min_by(u.root, at) AS root
        FROM (SELECT partition, path, posexplode(roots) AS (at, root) FROM plan_uses) u
        JOIN limits USING (partition, root) GROUP BY partition, path),
    used AS (
        SELECT partition, coalesce(n.root, u.root) AS root, sum(octets) AS octets, sum(records) AS messages
        FROM plan_uses u LEFT JOIN nearest n USING (partition, path) GROUP BY 1, 2)
    SELECT partition, root, coalesce(octets, 0) AS octets, coalesce(messages, 0) AS messages,
           most.octets AS limit_octets, most.messages AS limit_messages
    FROM used FULL OUTER JOIN limits USING (partition, root)"""
