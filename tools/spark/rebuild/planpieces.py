"""What a plan (`plan`) has of a partition, in the form in which it is loaded."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from attrs import define
from numpy.typing import NDArray

from store.tables.index import ROW, Rows
from store.tables.references import MessageRecord
from tools.spark.rebuild.plan import MID, BadPlan, Facts, Plan, facts
from tools.spark.rebuild.plantasks import MODSEQS


@define(eq=False)
class Messages:
    """The message files of one partition in the plan, in order of digest: what `messages.db` is to say of each."""

    known: Facts
    references: NDArray[np.int64]
    checks: NDArray[np.uint64]
    serials: NDArray[np.int64]

    @classmethod
    def of(cls, plan: Plan, partition: str) -> "Messages":
        """From the tables. Where an arrival serial cannot be, or another message has it, there is a new one."""
        known = facts(str(plan.folder), partition)
        count = len(known.digests)
        references, checks = np.zeros(count, np.int64), np.zeros(count, np.uint64)
        serials = np.zeros(count, np.int64)
        for batch in plan.batches("references", partition=partition):
            column = {name: batch[name].to_numpy() for name in ("references", "low", "high", "first_serial")}
            places = known.find_column(batch["digest"])
            references[places] = column["references"]
            checks[places] = column["low"].astype(np.uint64) + (column["high"].astype(np.uint64) << np.uint64(32))
            serials[places] = column["first_serial"]
        legal = (references > 0) & (serials > 0) & (serials < MODSEQS)
        _, firsts = np.unique(np.where(legal, serials, 0), return_index=True)
        kept = np.zeros(count, np.bool_)
        kept[firsts] = True
        kept &= legal
        last = int(serials[kept].max(initial=0))
        serials[~kept] = last + 1 + np.arange(count - int(np.count_nonzero(kept)))
        return cls(known, references, checks, serials)

    @property
    def last_serial(self) -> int:
        """The highest arrival serial that any of them has."""
        return int(self.serials.max(initial=0))

    def record(self, digest: bytes, trace: int) -> MessageRecord | None:
        """What is to be known of a message file with that trace header; None if nothing refers to it."""
        places, there = self.known.find(np.frombuffer(digest, MID))
        at = int(places[0])
        if not there[0] or not self.references[at] or self.known.traces[at] != trace:
            return None
        return MessageRecord(int(self.serials[at]), int(self.references[at]), int(self.known.octets[at]), trace, 0,
                             int(self.checks[at]))

    def with_serials(self, pieces: Sequence[dict[str, Any]]) -> Rows:
        """The records of a mailbox, which name the arrival serials that their message files get."""
        rows = np.frombuffer(bytearray(b"".join([row["rows"] for row in pieces])), ROW)
        if len(rows):
            rows["serial"] = self.serials[self.known.find(rows["digest"])[0]]
        return rows


def whole_mailboxes(plan: Plan, partition: str) -> Iterator[list[dict[str, Any]]]:
    """The rows of `pieces` of each mailbox on a partition, which stand one after the other. Raises BadPlan."""
    held: list[dict[str, Any]] = []
    columns = ["path", "piece", "rows", "own", "uidls", "fields", "unused", "damaged"]
    for row in plan.rows("pieces", columns, partition=partition):
        if row["rows"] is None:
            continue
        if not row["piece"] and held:
            yield held
            held = []
        if row["piece"] != len(held) or held and row["path"] != held[0]["path"]:
            raise BadPlan(f"the records of {row['path']} are not in order")
        held.append(row)
    if held:
        yield held


def unused(pieces: Sequence[dict[str, Any]]) -> Rows:
    """The records of a mailbox that cannot be used."""
    return np.frombuffer(b"".join([row["unused"] or b"" for row in pieces]), ROW)


def own_fields(pieces: Sequence[dict[str, Any]]) -> dict[int, bytes]:
    """Header fields that messages have in this mailbox alone, by number."""
    return {item["number"]: item["octets"] for row in pieces for item in row["fields"] or ()}
