"""Index records against those of `store.idx`, by Spark: what `comparing` does, without a loop in the driver.

The databases are read by the executors, out of a snapshot that is made for it: a process that is killed while it has
the store's own open would take the servers with it. Each task takes a range of mailbox ids. Both sides are cut into
blocks of `BLOCK` UIDs, which are joined and compared: the largest mailbox is many rows, and no row is large. Of a chunk
that cannot be read (the check names it) `store.idx` has the records: with these the reference counts are compared.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
from attrs import evolve, frozen
from pyspark.sql import functions as sql

from mboxlist.entry import MailboxId
from store.errors import StoreError
from store.partition.serials import META_KEY
from store.rebuild.desired import is_as_written
from store.rebuild.salvage import readable
from store.store import Store
from store.tables.index import CHUNK, ROW, chunk_key, chunk_of_key
from store.tables.state import MailboxState, state_key
from store.userarea.idxfile import Head
from tools.spark import summaries
from tools.spark.facts.factrows import Range, beginnings, expunged_messages, message_rows
from tools.spark.facts.snapshottables import (
    Folders,
    given_up,
    opened_list,
    opened_partition,
    prepared,
    taken_for,
)
from tools.spark.rebuild import planrows, plantasks
from tools.spark.rebuild.plan import SCHEMAS, Plan
from tools.spark.rebuild.planrows import Batches, Row, each
from tools.spark.rebuild.sparkplan import FILE, PLACE, Spark
from tools.spark.source.sparkframes import frame, mapped
from tools.spark.verify import comparing
from tools.spark.verify.comparing import EXAMPLES, Compared

BLOCK = 512 * CHUNK         # UIDs
IDS = 1024                  # mailboxes of a task
DIGESTS = 1_000_000         # of wrong records, whose reference counts are not told beside them; the others are
_BLOCK = [("partition", pa.string()), ("id", pa.int64()), ("block", pa.int64())]
_OCTETS = pa.list_(pa.field("element", pa.binary()))
STATES = pa.schema([("partition", pa.string()), ("id", pa.int64()), ("where", pa.string()), ("epoch", pa.int64()),
                    ("state", pa.binary())])
SAME = pa.schema([("partition", pa.string()), ("path", pa.string()), ("id", pa.int64()), ("where", pa.string()),
                  ("same", pa.bool_())])
HAVE = pa.schema([*_BLOCK, ("have", pa.binary()), ("broken", pa.list_(pa.field("element", pa.int64())))])
WANT = pa.schema([*_BLOCK, ("want", pa.binary())])
KNOWN = pa.schema([("partition", pa.string()), ("digest", pa.binary()), ("references", pa.int64()),
                   ("check", pa.int64())])
RECORDS = pa.schema([("partition", pa.string()), ("id", pa.int64()), ("rows", pa.binary())])
MISCOUNTED = pa.schema([("partition", pa.string()), ("digest", pa.binary()), ("references", pa.int64()),
                        ("counted", pa.int64())])
DIFFERENT = pa.schema([*_BLOCK, ("kind", pa.string()), ("count", pa.int64()),
                       ("uids", pa.list_(pa.field("element", pa.int64()))), ("digests", _OCTETS)])


@frozen
class Span:
    """Mailboxes of a partition, by their ids: from `first` up to, not including, `last`."""

    partition: str
    folder: str
    mailboxes: str
    first: int
    last: int


def compare(session: Any, store: Store, plan: Plan) -> Compared:
    """See `comparing.compare_all`, which does it where no snapshot can be made. Raises BadPlan, StoreError."""
    with ExitStack() as on_record:
        try:
            made = taken_for(store, "check", on_record)
        except StoreError:
            return comparing.compare_all(store, plan)
        try:
            with prepared(made) as folders:
                return _compare(session, store, plan, folders)
        finally:
            given_up(store, made)


def _compare(session: Any, store: Store, plan: Plan, folders: Folders) -> Compared:
    spans, engine = list(_spans(folders)), Spark(session)
    wholes = [Range("partition", "", folders.mailboxes, name, folder) for name, folder in folders.partitions.items()]
    parts = [evolve(whole, kind="messages", beginning=beginning) for whole in wholes
             for beginning in beginnings(whole.folder)]
    wanted = engine.table(plan, "mailboxes").where("found AND NOT damaged").select(*PLACE, "id", "head")
    states = frame(session, "states", spans, _states, STATES)
    same = mapped(states.join(wanted, ["partition", "id"]), _same, SAME).cache()
    boxes = same.where("same").select(*PLACE, "id")
    pieces = engine.table(plan, "pieces").where("rows IS NOT NULL").select(*PLACE, "rows", "unused")
    want = mapped(pieces.join(boxes, PLACE), _cut, WANT).groupBy("partition", "id", "block").agg(
        sql.collect_list("want").alias("want"))
    index = frame(session, "index", spans, _blocks, HAVE)
    have = index.join(boxes.drop("path"), ["partition", "id"])
    found = mapped(have.join(want, ["partition", "id", "block"], "full"), _differences, DIFFERENT).cache()
    known = frame(session, "known", parts, _known, KNOWN)
    held = frame(session, "held", wholes, _held, SCHEMAS["references"])
    try:
        result = _compared(found, same)
        _files(result, engine.unused(plan), known, held)
        if names := _readable_elsewhere(index, boxes):
            _counts(result, index.where(index.partition.isin(names)), want, known.where(known.partition.isin(names)),
                    held)
        return result
    finally:
        found.unpersist()
        same.unpersist()


def _files(result: Compared, unused: Any, known: Any, held: Any) -> None:
    """Whole files that no store.idx refers to: those that wait for the purge, and those that nobody knows."""
    asked = unused.select(*FILE).join(known, FILE, "left").join(held.groupBy(*FILE).agg(
        sql.sum("references").alias("held")), FILE, "left").cache()
    try:
        result.waiting = summaries.count(asked.where("references <= coalesce(held, 0)"))
        result.unknown = [(row["partition"], row["digest"])
                          for row in summaries.rows(asked.where("references IS NULL").select(*FILE))]
    finally:
        asked.unpersist()


def _readable_elsewhere(index: Any, boxes: Any) -> list[str]:
    """The partitions with chunks that cannot be read, of all of which store.idx has the records."""
    broken = index.where("size(broken) > 0").select("partition", "id").distinct().join(
        boxes.select("partition", "id", sql.lit(True).alias("known")), ["partition", "id"], "left")
    found = broken.groupBy("partition").agg(sql.expr("every(coalesce(known, false))").alias("known"))
    return [row["partition"] for row in summaries.rows(found) if row["known"]]


def _counts(result: Compared, index: Any, want: Any, known: Any, held: Any) -> None:
    """Reference counts that are wrong, by the chunks that can be read and what store.idx has of the others."""
    lost = index.where("size(broken) > 0").join(want, ["partition", "id", "block"])
    records = index.select("partition", "id", sql.col("have").alias("rows")).unionByName(mapped(lost, _spare, RECORDS))
    counted = mapped(records.where("octet_length(rows) > 0"), planrows.references, SCHEMAS["references"]
                     ).unionByName(held)
    sums = counted.groupBy(*FILE).agg(*(sql.sum(name).alias(name) for name in ("low", "high")),
                                      sql.sum("references").alias("counted"))
    wrong = mapped(known.join(sums, FILE, "left"), _miscounted, MISCOUNTED)
    result.faults += [comparing.wrong_count(row["digest"], row["counted"], row["references"], row["partition"])
                      for row in summaries.rows(wrong)]


def _compared(found: Any, same: Any) -> Compared:
    first = sql.slice(sql.array_sort(sql.flatten(sql.collect_list("uids"))), 1, EXAMPLES + 1)
    named = same.select("partition", "id", "where")
    wrong = found.where("kind <> ''").groupBy("partition", "id", "kind").agg(
        sql.sum("count").alias("count"), first.alias("uids")).join(named, ["partition", "id"])
    result = Compared(moved=summaries.count(same.where("NOT same")))
    for row in summaries.rows(wrong):
        result.faults.append(comparing.fault(row["kind"], row["count"], row["uids"], row["partition"], row["where"]))
    digests = found.select("partition", "id", sql.explode("digests").alias("digest")).distinct().limit(DIGESTS)
    for row in summaries.rows(digests.join(named, ["partition", "id"]), DIGESTS):
        result.digests[row["where"]] = result.digests.get(row["where"], frozenset()) | {row["digest"]}
    return result


def _spans(folders: Folders) -> Iterator[Span]:
    for partition, folder in sorted(folders.partitions.items()):
        states = opened_partition(folder).states
        last = next(iter(states.scan_back(b"\0\0\0\1", b"\xff" * 5)), (b"", b""))[0]
        for first in range(0, int.from_bytes(last, "big") + 1, IDS):
            yield Span(partition, folder, folders.mailboxes, max(first, 1), first + IDS)


# What executors do

def _states(span: Span) -> Batches:
    tables, names = opened_partition(span.folder), opened_list(span.mailboxes)
    rows = []
    for key, state in tables.states.scan(state_key(span.first), state_key(span.last)):
        found = names.entry(MailboxId(int.from_bytes(key, "big"))) if key != META_KEY else None
        if found is not None and found[1].partition == span.partition:
            rows.append({"partition": span.partition, "id": found[1].id, "epoch": tables.epoch, "state": state,
                         "where": f"{found[1].name} (deleted)" if found[0] else str(found[1].name)})
    yield pa.RecordBatch.from_pylist(rows, STATES)


def _same(batches: Batches) -> Batches:
    """Whether nothing has happened to a mailbox since its store.idx was written."""
    def judged(row: Row) -> Iterator[Row]:
        state = MailboxState.from_bytes(row["state"], row["epoch"])
        yield {**{name: row[name] for name in ("partition", "path", "id", "where")},
               "same": is_as_written(state, Head.from_bytes(row["head"]))}

    return each(batches, SAME, judged)


def _blocks(span: Span) -> Batches:
    """The records that the index has of the mailboxes, by blocks."""
    chunks = opened_partition(span.folder).index.scan(chunk_key(span.first, 0), chunk_key(span.last, 0))
    for (mailbox, block), some in groupby(chunks, _block_of):
        if opened_partition(span.folder).states.get(state_key(MailboxId(mailbox))) is None:
            continue                            # the check tells
        rows, broken = readable(MailboxId(mailbox), some)
        yield pa.RecordBatch.from_pylist([{"partition": span.partition, "id": mailbox, "block": block,
                                           "have": rows.tobytes(), "broken": broken}], HAVE)


def _block_of(item: tuple[bytes, bytes]) -> tuple[int, int]:
    mailbox, chunk = chunk_of_key(item[0])
    return mailbox, chunk * CHUNK // BLOCK


def _cut(batches: Batches) -> Batches:
    """The records that store.idx has of the mailboxes, by blocks."""
    def cut(row: Row) -> Iterator[Row]:
        rows = np.concatenate([np.frombuffer(row[name] or b"", ROW) for name in ("rows", "unused")])
        blocks = (rows["uid"].astype(np.int64) - 1) // BLOCK
        for block in np.unique(blocks).tolist():
            yield {"partition": row["partition"], "id": row["id"], "block": block,
                   "want": rows[blocks == block].tobytes()}

    return each(batches, WANT, cut)


def _differences(batches: Batches) -> Batches:
    return each(batches, DIFFERENT, _difference)


def _difference(row: Row) -> Iterator[Row]:
    have = np.frombuffer(row["have"] or b"", ROW)
    want = np.frombuffer(b"".join(row["want"] or ()), ROW)
    broken = row["broken"] or []
    place = {name: row[name] for name in ("partition", "id", "block")}
    found = comparing.difference(have, want, partial(comparing.in_chunks, broken))
    for kind, uids in found.kinds():
        yield place | {"kind": kind, "count": len(uids), "uids": uids[:EXAMPLES + 1].tolist()}
    if found.digests:
        yield place | {"kind": "", "count": 0, "digests": list(found.digests)}


def _known(part: Range) -> Batches:
    """The message files that the databases know: reference counts, and the marks of what was counted."""
    for digests, figures in message_rows(part):
        checks = figures["check"].astype(np.uint64).view(np.int64)
        yield pa.RecordBatch.from_arrays([
            pa.array([part.partition] * len(digests), pa.string()), pa.array(digests, pa.binary()),
            pa.array(figures["references"].astype(np.int64)), pa.array(checks)], schema=KNOWN)


def _held(part: Range) -> Batches:
    """The references of what has been expunged."""
    for item in expunged_messages(opened_partition(part.folder)).held():
        if len(item.rows):
            yield plantasks.counted(part.partition, item.mailbox, item.rows)


def _spare(batches: Batches) -> Batches:
    """The records that store.idx has of chunks that cannot be read."""
    def spared(row: Row) -> Iterator[Row]:
        rows = np.frombuffer(b"".join(row["want"]), ROW)
        rows = rows[comparing.in_chunks(row["broken"], rows["uid"])]
        yield {"partition": row["partition"], "id": row["id"], "rows": rows.tobytes()}

    return each(batches, RECORDS, spared)


def _miscounted(batches: Batches) -> Batches:
    def judged(row: Row) -> Iterator[Row]:
        counted, check = row["counted"] or 0, (row["low"] or 0) + ((row["high"] or 0) << 32)
        if (row["references"], row["check"] % (1 << 64)) != (counted, check % (1 << 64)):
            yield {name: row[name] for name in ("partition", "digest", "references")} | {"counted": counted}

    return each(batches, MISCOUNTED, judged)
