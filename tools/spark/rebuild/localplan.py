"""The plan of a rebuild made in this process, one task after the other."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from attrs import frozen

from store.quota.roots import root_of
from store.rebuild.desired import limits_of
from store.rebuild.userareascan import Source, choose
from store.reconstruct.request import Progress, silent
from store.tables.index import ROW
from store.values import SWEEP, Finding
from tools.spark.rebuild import plantasks
from tools.spark.rebuild.plan import ORDER, SCHEMAS, Figures, Plan, facts, finding_rows
from tools.spark.rebuild.rebuildjob import Scope
from tools.spark.source import reading

HELD = 4 << 20              # rows of `references` that are held before they are summed
Work = Callable[[reading.Task], Iterator[pa.RecordBatch]]


@frozen
class Local:
    """See `rebuildjob.Engine`."""

    progress: Progress = silent
    name: str = "local"

    def fill(self, plan: Plan, scope: Scope) -> tuple[dict[str, Figures], int]:
        """See Engine."""
        if not plan.is_done("messages"):
            self.run(plan, "messages", scope.tasks("messages"), plantasks.messages)
        if not plan.is_done("pieces"):
            self.run(plan, "pieces", scope.tasks("mailboxes"), partial(plantasks.pieces, str(plan.folder), scope.begun))
        rows, sources = _mailboxes(plan, scope)
        plan.write("mailboxes", rows)
        if not plan.is_done("references"):
            _count(plan, {(row["partition"], row["path"]): row["id"] for row in rows})
        plan.write("quotas", [row for name in scope.partitions for row in _quotas(name, rows, sources)])
        findings = sorted(finding_rows(chain(_findings(plan), _unused(plan, scope.partitions))),
                          key=itemgetter(*ORDER))
        plan.write("findings", findings)
        return {name: _figures(plan, name, rows) for name in scope.partitions}, len(findings)

    def run(self, plan: Plan, table: str, tasks: Sequence[reading.Task], work: Work) -> None:
        """Write a table: all that `work` gives for the tasks."""
        for number, task in enumerate(tasks):
            if not plan.has_part(table, number):
                plan.write_part(table, number, work(task))
            self.progress(table, number + 1, len(tasks))
        plan.complete(table)


def _mailboxes(plan: Plan, scope: Scope) -> tuple[list[dict[str, Any]], list[Source]]:
    """Which mailboxes there are to be: rows of `mailboxes`, and the same as sources."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    columns = ["partition", "path", "piece", "head", "name", "found", "damaged", "records", "octets", "size",
               "modified", "unused"]
    for row in plan.rows("pieces", columns):
        if row["name"] is None:
            continue
        row["unused"] = len(row["unused"]) // ROW.itemsize
        known = rows.setdefault((row["partition"], row["path"]), row)
        if known is not row:
            for name in ("records", "octets", "unused"):
                known[name] += row[name]
    chosen = choose([plantasks.source_of(rows[place], Path(scope.folder(place[0])))
                     for place in sorted(rows, reverse=True)], [])
    made = []
    for source in chosen:
        row = rows[source.partition, str(source.path.relative_to(scope.folder(source.partition)))]
        made.append(plantasks.chosen(row, source.head.id, again=str(source.name) != row["name"]))
    return made, chosen


def _count(plan: Plan, ids: dict[tuple[str, str], int]) -> None:
    """Write the table `references`; what is not among the ids is no mailbox."""
    held: list[pa.Table] = [SCHEMAS["references"].empty_table()]
    rows = 0
    for row in plan.rows("pieces", ["partition", "path", "rows"]):
        mailbox = ids.get((row["partition"], row["path"]))
        if mailbox is not None and row["rows"]:
            held.append(pa.Table.from_batches([plantasks.counted(row["partition"], mailbox,
                                                                 np.frombuffer(row["rows"], ROW))]))
            rows += held[-1].num_rows
        if rows > HELD:
            held, rows = [plantasks.summed(pa.concat_tables(held))], 0
    plan.write_part("references", 0, plantasks.summed(pa.concat_tables(held)).to_batches())
    plan.complete("references")


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


def _findings(plan: Plan) -> Iterator[Finding]:
    """What the other tables have of them."""
    for table in ("messages", "pieces", "mailboxes"):
        for batch in plan.batches(table, ["findings"]):
            for row in batch.filter(pa.compute.list_value_length(batch["findings"]).cast(pa.bool_())).to_pylist():
                for item in row["findings"]:
                    yield Finding(item["what"], item["place"], item["repair"])


def _unused(plan: Plan, names: Sequence[str]) -> Iterator[Finding]:
    """The message files that nothing refers to."""
    for name in names:
        known = facts(str(plan.folder), name)
        used = np.zeros(len(known.digests), np.bool_)
        for batch in plan.batches("references", ["digest"], partition=name):
            used[known.find_column(batch["digest"])] = True
        for digest in known.digests[~used]:
            yield Finding(plantasks.UNUSED, f"message {digest.ljust(32, bytes(1)).hex()}", SWEEP)


def _figures(plan: Plan, name: str, mailboxes: Sequence[dict[str, Any]]) -> Figures:
    here = [row for row in mailboxes if row["partition"] == name]
    known = facts(str(plan.folder), name)
    return Figures(0, len(here), sum(row["records"] for row in here), len(known.digests), int(known.octets.sum()))
