"""Applying the plan of a rebuild (`plan`) to a store that has its databases, and may be in use.

Each mailbox is compared with its records in the plan, and put right (`store/rebuild/livecorrection.py`). Records whose
message files the plan could not use stay as they are. Then cache records that differ are exchanged; figures, quota use
and references are counted (`store/rebuild/recount.py`), and damaged `store.idx` written.

Done twice, the second time finds nothing. Cut off, it is done again.
"""

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from store.rebuild.cacherebuild import correct_cached
from store.rebuild.desired import DesiredMailbox, entry_of, own_of, written_state
from store.rebuild.liveloader import LiveLoader
from store.rebuild.loader import KnownFile
from store.rebuild.outcome import Correction, Outcome
from store.store import Store
from store.tables.index import ROW
from store.tables.references import MessageRecord
from store.userarea.idxfile import OWN
from store.values import RECONSTRUCT, Finding
from tools.spark.rebuild.plan import BadPlan, Plan
from tools.spark.rebuild.planpieces import unused, whole_mailboxes
from tools.spark.rebuild.plantasks import source_of


def apply_live(store: Store, plan: Plan, *, change: bool = True, only: Collection[int] | None = None) -> Outcome:
    """Put right what differs from the plan; without `change` only say what does. `only`: these mailboxes, and nothing
    that is counted over all of a partition.

    Raises BadPlan, StoreError.
    """
    applied = Outcome()
    for name in sorted(plan.read_manifest().partitions):
        partition = store.partitions.get(name)
        if partition is None:
            raise BadPlan(f"the plan is of a partition {name}, which is not there")
        loader = LiveLoader(partition, store, applied, change)
        loader.load(_mailboxes(store, plan, name, only, applied))
        if only is None:
            applied.corrections += correct_cached(partition, _message_files(plan, name), change=change)
        if change:
            loader.finish(whole=only is None)
    return applied


def _mailboxes(store: Store, plan: Plan, partition: str, only: Collection[int] | None, applied: Outcome
               ) -> Iterator[DesiredMailbox]:
    """Those of the plan; one of which nobody knows whose it is, is left."""
    heads = {row["path"]: row for row in plan.rows("mailboxes", partition=partition)}
    for pieces in whole_mailboxes(plan, partition):
        row = heads.get(pieces[0]["path"])
        if row is None or only is not None and row["id"] not in only:
            continue
        if not row["found"]:
            applied.mailboxes += 1
            applied.left.append(Finding("it is not known whose file this is", row["name"], RECONSTRUCT))
            continue
        if row["damaged"] and store.known(row["id"]) is not None:
            applied.corrections.append(Correction(f"{row['path']} was damaged", row["name"]))
        yield _mailbox(row, pieces)


def _mailbox(row: dict[str, Any], pieces: Sequence[dict[str, Any]]) -> DesiredMailbox:
    source = source_of(row, Path())
    head, first = source.head, pieces[0]
    rows = np.frombuffer(b"".join([part["rows"] for part in pieces]), ROW)
    return DesiredMailbox(entry_of(source, 0), written_state(head), rows, head.removed,
                          own_of(head, np.frombuffer(first["own"] or b"", OWN)),
                          unused=unused(pieces), complete=not row["damaged"])


def _message_files(plan: Plan, partition: str) -> Iterator[KnownFile]:
    for row in plan.rows("messages", ["digest", "octets", "trace", "staged", "cached"], partition=partition):
        if row["cached"] is not None and not row["staged"]:
            yield row["digest"], MessageRecord(0, 0, row["octets"], row["trace"]), row["cached"]
