"""Index records against those of whole `store.idx` that are as new, mailbox by mailbox, and the reference counts of
message files where chunks of the index cannot be read. Nothing is locked: a mailbox that has changed since its
`store.idx` was written, or changes meanwhile, is left out.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from attrs import define, field, frozen
from numpy.typing import NDArray

from mboxlist.entry import MailboxEntry, MailboxId
from store.check.filecheck import Messages
from store.partition.messagereading import MID_OCTETS
from store.partition.partition import Partition
from store.rebuild.desired import is_as_written
from store.rebuild.salvage import readable
from store.store import Store
from store.tables.index import CHUNK, ROW, Rows, chunk_key, differ, take
from store.tables.state import MailboxState, state_key
from store.userarea.idxfile import Head
from store.values import RECONSTRUCT
from tools.spark.rebuild.plan import Plan, facts
from tools.spark.rebuild.planpieces import unused as unused_records
from tools.spark.rebuild.planpieces import whole_mailboxes
from tools.spark.verify.kinds import Fault, message_at

EXAMPLES = 5                # UIDs of a finding


@frozen(eq=False)
class Difference:
    """What of the index records of a mailbox is not as store.idx has it: UIDs, and the digests concerned."""

    missing: NDArray[np.uint32]
    different: NDArray[np.uint32]
    extra: NDArray[np.uint32]
    digests: frozenset[bytes]

    def kinds(self) -> Iterator[tuple[str, NDArray[np.uint32]]]:
        """Each kind that there is, and the UIDs."""
        for kind, uids in (("index-missing", self.missing), ("index-different", self.different),
                           ("index-extra", self.extra)):
            if len(uids):
                yield kind, uids

    def faults(self, partition: str, where: str) -> Iterator[Fault]:
        """One for each kind that there is."""
        for kind, uids in self.kinds():
            yield fault(kind, len(uids), uids[:EXAMPLES + 1].tolist(), partition, where)


def fault(kind: str, count: int, first: Sequence[int], partition: str, where: str) -> Fault:
    """That so many records are of that kind, the first of which are given."""
    some = ", ".join(map(str, first[:EXAMPLES])) + (", ..." if count > EXAMPLES else "")
    return Fault(kind, where, f"{count} records are {_WHAT[kind]}: UID {some}", RECONSTRUCT, partition)


def wrong_count(digest: bytes, references: int, counted: int, partition: str) -> Fault:
    """That the reference count of a message is wrong."""
    return Fault("references-count", message_at(digest), f"{references} records refer to it, counted are {counted}",
                 RECONSTRUCT, partition)


_WHAT = {"index-missing": "missing", "index-different": "other than they should be", "index-extra": "too many"}


def in_chunks(numbers: Sequence[int], uids: NDArray[np.uint32]) -> NDArray[np.bool_]:
    """Which UIDs are in chunks of these numbers."""
    return np.isin((uids.astype(np.int64) - 1) // CHUNK, numbers)


def difference(have: Rows, want: Rows, lost: Callable[[NDArray[np.uint32]], NDArray[np.bool_]]) -> Difference:
    """What differs between the records of the index and those of a whole store.idx of the same moment; `lost` tells
    which UIDs are in chunks that cannot be read."""
    want = want[~lost(want["uid"])]
    _, here, there = np.intersect1d(have["uid"], want["uid"], return_indices=True)
    differs = differ(take(have, here), take(want, there))
    missing, extra = ~np.isin(want["uid"], have["uid"]), ~np.isin(have["uid"], want["uid"])
    rows = (want[missing], have[extra], have[here[differs]], want[there[differs]])
    return Difference(want["uid"][missing], have["uid"][here[differs]], have["uid"][extra],
                      frozenset(bytes(digest) for some in rows for digest in some["digest"]))


@define(eq=False)
class Compared:
    """What was found on a partition: `digests` of the message files that wrong records refer to, by mailbox; how many
    mailboxes have `moved` on; the records that store.idx has of chunks that cannot be read, by mailbox; and of the
    whole files that no store.idx refers to how many wait for the purge, and partition and digest of those that are
    `unknown` to the databases."""

    faults: list[Fault] = field(factory=list)
    digests: dict[str, frozenset[bytes]] = field(factory=dict)
    moved: int = 0
    spare: dict[MailboxId, Rows] = field(factory=dict)
    waiting: int = 0
    unknown: list[tuple[str, bytes]] = field(factory=list)


def unused(plan: Plan, partition: str) -> list[bytes]:
    """The whole files of a partition to which no store.idx refers. Raises BadPlan."""
    known = facts(str(plan.folder), partition)
    used = np.zeros(len(known.digests), np.bool_)
    for batch in plan.batches("references", ["digest"], partition=partition):
        used[known.find_column(batch["digest"])] = True
    return [digest.ljust(MID_OCTETS, b"\0") for digest in known.digests[~used].tolist()]


def compare_all(store: Store, plan: Plan) -> Compared:
    """Compare the indexes of all partitions of a plan with it. Raises BadPlan."""
    found = Compared()
    for name in sorted(plan.read_manifest().partitions):
        here = compare(store, store.partitions[name], plan)
        found.faults += here.faults
        found.digests |= here.digests
        found.moved += here.moved
        found.waiting += here.waiting
        found.unknown += here.unknown
    return found


def compare(store: Store, partition: Partition, plan: Plan) -> Compared:
    """Compare the index of one of them. Raises BadPlan."""
    found = Compared()
    heads = {row["path"]: row for row in plan.rows("mailboxes", partition=partition.name)}
    for parts in whole_mailboxes(plan, partition.name):
        row = heads.get(parts[0]["path"])
        if row is None or row["damaged"] or not row["found"]:
            continue
        place = store.known(row["id"])
        if place is not None and place[0].partition == partition.name:
            where = f"{place[0].name} (deleted)" if place[1] else str(place[0].name)
            _compare(found, partition, place[0], where, Head.from_bytes(row["head"]), parts)
    first = _wrong_counts(partition, found)
    if first:
        second = set(_wrong_counts(partition, found))       # what is only half written is other things by now
        found.faults += [fault for fault in first if fault in second]
    held = partition.removed.counts()
    for digest in unused(plan, partition.name):
        record = partition.refs.find(digest)
        if record is None:
            found.unknown.append((partition.name, digest))
        else:
            found.waiting += record.references <= held[digest]      # only what has been expunged refers to it
    return found


def _compare(found: Compared, partition: Partition, entry: MailboxEntry, where: str, head: Head,
             parts: Sequence[dict[str, Any]]) -> None:
    before = partition.states.get(state_key(entry.id))
    have, broken = _records(partition, entry.id)
    if before is None:
        return                              # the check tells
    state = MailboxState.from_bytes(before, partition.epoch)
    if before != partition.states.get(state_key(entry.id)) or not is_as_written(state, head):
        found.moved += 1
        return
    want = np.concatenate([np.frombuffer(b"".join([part["rows"] for part in parts]), ROW), unused_records(parts)])
    lost = partial(in_chunks, broken)
    differs = difference(have, want, lost)
    found.faults += differs.faults(partition.name, where)
    if differs.digests:
        found.digests[where] = differs.digests
    if broken:
        found.spare[entry.id] = take(want, np.flatnonzero(lost(want["uid"])))


def _records(partition: Partition, mailbox: MailboxId) -> tuple[Rows, list[int]]:
    return readable(mailbox, partition.index.scan(chunk_key(mailbox, 0), chunk_key(MailboxId(mailbox + 1), 0)))


def _wrong_counts(partition: Partition, found: Compared) -> list[Fault]:
    """Reference counts that are wrong although some chunks cannot be read, when store.idx has the records of these all.
    (Where every chunk can be read the check tells, and where there is none of them.)"""
    if not found.spare:
        return []
    known = Messages.of(partition, None)
    for item in partition.removed.held():
        known.count(MailboxId(item.mailbox), item.rows, sure=True)
    for mailbox, _ in list(partition.all_states()):
        rows, broken = _records(partition, mailbox)
        if broken and mailbox not in found.spare:
            return []
        known.count(mailbox, rows, sure=True)
        if mailbox in found.spare:
            known.count(mailbox, found.spare[mailbox], sure=True)
    return [wrong_count(digest, references, record.references, partition.name)
            for (digest, record), references, check in zip(known.records.items(), known.references.tolist(),
                                                        known.checks.tolist(), strict=True)
            if (record.references, record.check) != (references, check)]
