"""Making the plan of a rebuild (`plan`): every message file is read once, and what is left of every `store.idx`.

Nothing of the store is changed, so that it may be in use. The work is done by Spark or in this process, by the same
functions (`plantasks`). A table that is complete stays when the work is cut off, and is not made again.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
from attrs import evolve, frozen

from mboxlist import privatefiles
from store.errors import Problem, StoreError
from store.partition.marks import read_epoch
from store.quota.roots import root_of
from store.rebuild.desired import limits_of
from store.rebuild.userareascan import Source, choose
from store.reconstruct.request import Progress, silent
from store.tables.index import ROW
from store.values import SWEEP, Finding
from tools.spark.rebuild import plantasks
from tools.spark.rebuild.plan import MANIFEST, SCHEMAS, BadPlan, Figures, Manifest, Plan, facts, finding_rows
from tools.spark.source import reading
from tools.spark.source.sparkframes import frame

BEGUN = "begun.json"
HELD = 4 << 20              # rows of `references` that are held before they are summed

Work = Callable[[reading.Task], Iterator[pa.RecordBatch]]
class Engine(Protocol):
    """What does the work."""

    @property
    def name(self) -> str:
        """Which one it is."""

    def run(self, plan: Plan, table: str, tasks: Sequence[reading.Task], work: Work) -> None:
        """Write a table: all that `work` gives for the tasks."""

    def count(self, plan: Plan, ids: dict[tuple[str, str], int]) -> None:
        """Write the table `references`: see `plantasks.references`."""


@frozen
class Local:
    """In this process, one task after the other."""

    progress: Progress = silent
    name: str = "local"

    def run(self, plan: Plan, table: str, tasks: Sequence[reading.Task], work: Work) -> None:
        """See Engine."""
        for number, task in enumerate(tasks):
            if not plan.has_part(table, number):
                plan.write_part(table, number, work(task))
            self.progress(table, number + 1, len(tasks))
        plan.complete(table)

    def count(self, plan: Plan, ids: dict[tuple[str, str], int]) -> None:
        """See Engine."""
        held: list[pa.Table] = [SCHEMAS["references"].empty_table()]
        rows = 0
        for batch in plan.batches("pieces", ["partition", "path", "rows", "places"]):
            some = list(plantasks.references(batch, ids))
            if some:
                held.append(pa.Table.from_batches(some))
                rows += held[-1].num_rows
            if rows > HELD:
                held = [plantasks.summed(pa.concat_tables(held))]
                rows = 0
        plan.write_part("references", 0, plantasks.summed(pa.concat_tables(held)).to_batches())
        plan.complete("references")


@frozen
class Spark:
    """By a Spark session. Spark runs a task that failed, or whose worker died, once more; of each task one file gets
    its name, when it is whole."""

    session: Any
    name: str = "spark"

    def run(self, plan: Plan, table: str, tasks: Sequence[reading.Task], work: Work) -> None:
        """See Engine."""
        if tasks:
            self._write(frame(self.session, table, tasks, work, SCHEMAS[table]), plan, table)
        plan.complete(table)

    def count(self, plan: Plan, ids: dict[tuple[str, str], int]) -> None:
        """See Engine."""
        from pyspark.sql import functions
        files = [str(path) for path in sorted((plan.folder / "pieces").glob("*.parquet"))]
        if files:
            counted = frame(self.session, "references", files, partial(plantasks.references_of_file, ids),
                            SCHEMAS["references"])
            sums = [getattr(functions, how)(column).alias(column) for column, how in plantasks.SUMS.items()]
            self._write(counted.groupBy("partition", "place").agg(*sums).select(SCHEMAS["references"].names), plan,
                        "references")
        plan.complete("references")

    @staticmethod
    def _write(made: Any, plan: Plan, table: str) -> None:
        made.write.mode("overwrite").option("compression", "zstd").parquet(str(plan.folder / table))


# The plan

def make_plan(root: Path, folder: Path, engine: Engine, *, partition: str | None = None) -> Manifest:
    """Make the plan of the store in `root`, or of one partition of it, in an empty folder, or in one in which this was
    begun before.

    Raises StoreError NO_STORE, BadPlan when the folder has something else, OSError.
    """
    root, plan = root.absolute(), Plan(folder.absolute())
    wanted = reading.Wanted(partitions=None if partition is None else frozenset((partition,)))
    names = [name for name, path in reading.partitions(str(root)) if partition in (None, name)
             and (Path(path) / "messages").is_dir()] if (root / "partitions").is_dir() else []
    if not names:
        raise StoreError(Problem.NO_STORE, f"There are no messages in {root}")
    begun = _begin(plan, root, names)
    manifest = Manifest(str(root), begun, {name: Figures(read_epoch(root / "partitions" / name)) for name in names},
                        engine.name)
    if not plan.is_done("messages"):
        engine.run(plan, "messages", reading.tasks([str(root)], "messages", wanted), plantasks.messages)
    if not plan.is_done("pieces"):
        engine.run(plan, "pieces", reading.tasks([str(root)], "mailboxes", wanted),
                   partial(plantasks.pieces, str(plan.folder), begun))
    findings = [*_findings(plan, "messages"), *_findings(plan, "pieces")]
    mailboxes, chosen = _mailboxes(plan, root, findings)
    plan.write("mailboxes", mailboxes)
    if not plan.is_done("references"):
        engine.count(plan, {(row["partition"], row["path"]): row["id"] for row in mailboxes})
    plan.write("quotas", [row for name in names for row in _quotas(name, mailboxes, chosen)])
    _report_unused(plan, names, findings)
    plan.write("findings", finding_rows(findings))
    manifest = evolve(manifest, findings=len(findings), partitions={
        name: _figures(plan, name, manifest.partitions[name].epoch, mailboxes) for name in names})
    plan.write_manifest(manifest)
    return manifest


def _begin(plan: Plan, root: Path, names: list[str]) -> float:
    """When the plan was begun. Raises BadPlan, OSError."""
    privatefiles.make_folder(plan.folder, parents=True, exist_ok=True)
    path, ours = plan.folder / BEGUN, {"root": str(root), "partitions": names}
    if (plan.folder / MANIFEST).exists():
        raise BadPlan(f"{plan.folder} has a plan already")
    try:
        found = json.loads(privatefiles.read(path))
        begun = float(found.pop("begun"))
        if found != ours:
            raise BadPlan(f"{plan.folder} has the beginning of another plan")
    except FileNotFoundError:
        if any(plan.folder.iterdir()):
            raise BadPlan(f"{plan.folder} is not empty, and has no plan") from None
        begun = time.time()
        privatefiles.write(path, json.dumps(ours | {"begun": begun}))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadPlan(f"{path} cannot be read: {error}") from None
    return begun


def _findings(plan: Plan, table: str) -> Iterator[Finding]:
    for batch in plan.batches(table, ["partition", "findings"]):
        for row in batch.filter(pa.compute.list_value_length(batch["findings"]).cast(pa.bool_())).to_pylist():
            for item in row["findings"]:
                yield Finding(item["what"], item["place"], item["repair"])


def _mailboxes(plan: Plan, root: Path, findings: list[Finding]) -> tuple[list[dict[str, Any]], list[Source]]:
    """Which mailboxes there are to be: rows of `mailboxes`, and the same as sources."""
    figures: dict[tuple[str, str], list[int]] = {}
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    columns = ["partition", "path", "piece", "head", "name", "found", "damaged", "places", "octets", "size", "modified",
               "unused"]
    for row in plan.rows("pieces", columns):
        if row["name"] is None:
            continue
        key = row["partition"], row["path"]
        total = figures.setdefault(key, [0, 0])
        total[0] += len(row.pop("places")) // 4
        total[1] += row["octets"]
        if not row["piece"]:
            rows[key] = row
    sources = [plantasks.source_of(row, root / "partitions" / row["partition"]) for row in rows.values()]
    chosen = choose(sources, findings)
    made = []
    for source in chosen:
        key = source.partition, str(source.path.relative_to(root / "partitions" / source.partition))
        row, (records, octets) = rows[key], figures[key]
        made.append({"partition": key[0], "path": key[1], "id": source.head.id, "name": str(source.name),
                     "head": source.head.to_bytes(), "found": source.found, "damaged": row["damaged"],
                     "records": records, "unused": len(row["unused"]) // ROW.itemsize, "octets": octets,
                     "size": row["size"], "modified": row["modified"]})
    return made, chosen


def _quotas(partition: str, mailboxes: Sequence[dict[str, Any]], chosen: Sequence[Source]) -> Iterator[dict[str, Any]]:
    """Use and limits of the quota roots of a partition."""
    limits = limits_of(chosen, partition)
    uses: dict[str, list[int]] = {root: [0, 0] for root in limits}
    for row, source in zip(mailboxes, chosen, strict=True):
        if source.partition == partition and not source.head.removed:
            use = uses.setdefault(root_of(source.name, limits), [0, 0])
            use[0] += row["octets"]
            use[1] += row["records"]
    for root, (octets, messages) in sorted(uses.items()):
        most = limits.get(root, [None, None])
        yield {"partition": partition, "root": root, "octets": octets, "messages": messages, "limit_octets": most[0],
               "limit_messages": most[1]}


def _report_unused(plan: Plan, names: Sequence[str], findings: list[Finding]) -> None:
    """The message files that nothing refers to."""
    for name in names:
        known = facts(str(plan.folder), name)
        used = {row["place"] for row in plan.rows("references", ["place"], partition=name)}
        findings += [Finding("nothing refers to this file", f"message {known.digests[at].hex()}", SWEEP)
                     for at in range(len(known.digests)) if at not in used]


def _figures(plan: Plan, name: str, epoch: int, mailboxes: Sequence[dict[str, Any]]) -> Figures:
    here = [row for row in mailboxes if row["partition"] == name]
    known = facts(str(plan.folder), name)
    return Figures(epoch, len(here), sum(row["records"] for row in here), len(known.digests), int(known.octets.sum()))
