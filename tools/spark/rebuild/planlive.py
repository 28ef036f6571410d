"""Applying the plan of a rebuild (`plan`) to a store that has its databases, and may be in use.

Each mailbox is compared with its records in the plan while its row is locked. If it is as it was when its `store.idx`
was written (HIGHESTMODSEQ, UIDNEXT), every difference is damage, and the plan's records take the place of what differs;
they get a new MODSEQ, so that clients look at them again. If it has moved on since, it is left and reported. Records
whose message files the plan could not use stay as they are. Then cache records that differ are exchanged, figures,
quota use and references are counted anew (`store/reconstruct/recount.py`), and damaged `store.idx` written anew.

Done twice, the second time finds nothing. Cut off, it is done again.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np
from attrs import define, evolve, field
from numpy.typing import NDArray

from mboxlist.entry import MailboxEntry
from store.errors import Problem, StoreError
from store.message.cacherecord import CachedMessage
from store.partition.partition import Partition
from store.partition.records import sound
from store.partition.transactions import WriteTxn
from store.rebuild.loader import split
from store.rebuild.outcome import Correction, Outcome
from store.rebuild.recount import recount
from store.rebuild.repair import fit, repair_mailbox
from store.rebuild.salvage import broken_chunks
from store.store import Store
from store.tables.index import CHUNK, ROW, Rows, chunk_key, chunk_of_key, joined, take
from store.tables.references import MessageRecord
from store.tables.state import MODSEQ_SKIP, UID_SKIP, MailboxState, counted
from store.userarea import writing
from store.userarea.idxfile import OWN, Head
from store.values import RECONSTRUCT, Finding
from tools.spark.rebuild.plan import BadPlan, Plan
from tools.spark.rebuild.planpieces import whole_mailboxes

BATCH = 500                 # cache records that are compared in one transaction, if any of them differs
MOVED_ON = "it has changed since the plan was made, and is left as it is"


def apply_live(store: Store, plan: Plan, *, change: bool = True, only: Collection[int] | None = None) -> Outcome:
    """Put right what differs from the plan; without `change` only say what does. `only`: these mailboxes, and nothing
    that is counted over all of a partition.

    Raises BadPlan, StoreError.
    """
    manifest, applied = plan.read_manifest(), Outcome()
    for name in sorted(manifest.partitions):
        partition = store.partitions.get(name)
        if partition is None:
            raise BadPlan(f"the plan is of a partition {name}, which is not there")
        heads = {row["path"]: row for row in plan.rows("mailboxes", partition=name)}
        for pieces in whole_mailboxes(plan, name):
            row = heads.get(pieces[0]["path"])
            if row is not None and (only is None or row["id"] in only):
                _Mailbox(store, partition, row, pieces, applied, change).compare()
        if only is None:
            _compare_cached(partition, plan, applied, change)
        if change:
            _finish(store, partition, applied, only)
    return applied


def _finish(store: Store, partition: Partition, applied: Outcome, only: Collection[int] | None) -> None:
    """Count anew, and write the `store.idx` that were missing."""
    partition.flush()
    if only is None:
        applied.corrections += recount(store, partition)
        for mailbox, _ in list(partition.all_states()):
            found = store.known(mailbox)
            if found is not None and not writing.right_place(partition, *found).exists():
                partition.unwritten.changed.add(mailbox)
    writing.write_round(store, partition, hurry=True)


@define(eq=False)
class _Mailbox:
    """One mailbox, and what the plan has of it."""

    store: Store
    partition: Partition
    row: dict[str, Any]
    pieces: Sequence[dict[str, Any]]
    applied: Outcome
    change: bool
    head: Head = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.head = Head.from_bytes(self.row["head"])

    def compare(self) -> None:
        """Compare it, and put it right. Raises StoreError."""
        self.applied.mailboxes += 1
        found = self.store.known(self.row["id"]) if self.row["found"] else None
        if found is None or found[0].partition != self.partition.name:
            self._leave("the list of mailboxes does not know it" if self.row["found"] else "it is not known whose file "
                        "this is")
            return
        entry = found[0]
        if self.row["damaged"]:
            self._tell([f"{self.row['path']} was damaged"])
            self.partition.unwritten.changed.add(entry.id)
            if broken_chunks(self.partition, entry.id):     # the plan does not know all of it either
                self.applied.corrections += repair_mailbox(self.store, entry) if self.change else [
                    Correction("chunks of its index are damaged", self.row["name"])]
        try:
            told = self.partition.transact(lambda txn: self._compare(txn, entry)) if self.change else self._look(entry)
        except _Left as reason:
            self._leave(str(reason))
            return
        except StoreError as error:
            if error.problem is not Problem.CORRUPT:
                raise
            self._leave(f"it cannot be read: {error.detail}")
            return
        self._tell(told)

    def _look(self, entry: MailboxEntry) -> list[str]:
        """What `_compare` would do, and undo it."""
        try:
            self.partition.transact(lambda txn: _undo(self._compare(txn, entry)))
        except _Undone as result:
            return result.told
        raise AssertionError("unreachable")

    def _compare(self, txn: WriteTxn, entry: MailboxEntry) -> list[str]:
        state = txn.any_state(entry.id)
        if state is None or state.moving or entry.uidvalidity != self.head.uidvalidity or bool(
                state.removed) != bool(self.head.removed):
            raise _Left(MOVED_ON)
        have, broken = _rows(txn, entry)
        want = np.frombuffer(b"".join([piece["rows"] for piece in self.pieces]), ROW)
        unused = np.frombuffer(self.pieces[0]["unused"] or b"", ROW)
        damage = _Damage.between(have, want, unused, complete=not self.row["damaged"])
        if not damage.any() and not broken:
            return []
        if not self._as_it_was(state):
            if broken:
                raise _Left("chunks of its index are damaged, and it has changed since the plan was made")
            if damage.is_only_modseq(have, want):
                return []                   # this plan has been applied to it before
            raise _Left(MOVED_ON)
        return self._mend(txn, entry, state, have, want, damage, broken)

    def _as_it_was(self, state: MailboxState) -> bool:
        behind = state.epoch - self.head.epoch
        return (state.uidnext, state.highestmodseq) == (self.head.uidnext + behind * UID_SKIP,
                                                        self.head.highestmodseq + behind * MODSEQ_SKIP)

    def _mend(self, txn: WriteTxn, entry: MailboxEntry, state: MailboxState, have: Rows, want: Rows, damage: "_Damage",
              broken: list[int]) -> list[str]:
        modseq = state.highestmodseq + 1
        new = take(want, np.flatnonzero(np.isin(want["uid"], damage.wrong)))
        known = np.array([self._take_up(txn, row) for row in new], np.bool_)
        new = take(new, np.flatnonzero(known)) if len(new) else new
        new["modseq"] = modseq
        kept = take(have, np.flatnonzero(~np.isin(have["uid"], np.concatenate((new["uid"], damage.extra)))))
        rows = joined(kept, new)
        rows = take(rows, np.argsort(rows["uid"]))
        touched = {*broken, *((np.concatenate((new["uid"], damage.extra)).astype(np.int64) - 1) // CHUNK).tolist()}
        parts = dict(split(rows))
        for number in sorted(touched):
            txn.put_chunk(entry.id, number, parts.get(number, rows[:0]))
        for number, reader, flags in self._own():
            if (number, reader) in {item[:2] for item in list(txn.partition.readers.damaged(entry.id, txn.handle))}:
                txn.put_own(entry.id, number, reader, flags)
        txn.partition.uidls.correct(entry.id, rows, txn.handle)
        keywords = tuple(self.head.keywords) if len(self.head.keywords) > len(state.keywords) else state.keywords
        after = counted(evolve(state, highestmodseq=modseq, changed=modseq, log_since=modseq, keywords=keywords), rows)
        if not state.removed:
            txn.charge(state, after.octets - state.octets, after.messages - state.messages, enforce=False)
        txn.set_state(entry.id, state, after)
        return [*damage.told(), *([f"{len(broken)} chunks of its index were damaged"] if broken else [])]

    def _take_up(self, txn: WriteTxn, row: Any) -> bool:
        """Have the record fit what is known of its message file; False when that is not there any more."""
        digest = bytes(row["digest"])
        record = txn.refs.find_to_change(digest, txn.handle)
        path = txn.partition.files.locate(digest, int(row["serial"]) if record is None else record.serial)
        if path is None:
            return False
        if record is None:
            record = MessageRecord(int(row["serial"]), 0, path.stat().st_size, int(row["header_length"]))
            txn.refs.write(digest, record, txn.handle)         # its references are counted at the end
        row["serial"] = record.serial
        fit(row, record, txn)
        return True

    def _own(self) -> Iterator[tuple[int, str, NDArray[Any]]]:
        for item in np.frombuffer(self.pieces[0]["own"] or b"", OWN):
            if int(item["reader"]) < len(self.head.readers):
                yield int(item["chunk"]), self.head.readers[int(item["reader"])], item["own"]

    def _tell(self, told: Sequence[str]) -> None:
        self.applied.corrections += [Correction(what, self.row["name"]) for what in told]

    def _leave(self, why: str) -> None:
        self.applied.left.append(Finding(why, self.row["name"], RECONSTRUCT))


class _Left(Exception):
    """The mailbox is left as it is; the text says why."""


class _Undone(Exception):
    """Ends a transaction of which nothing is to stay."""

    def __init__(self, told: list[str]) -> None:
        self.told = told
        super().__init__()


def _undo(told: list[str]) -> None:
    raise _Undone(told)


@define(eq=False)
class _Damage:
    """The UIDs of records that are missing or others than they should be, and of those that should not be there."""

    missing: NDArray[np.uint32]
    different: NDArray[np.uint32]
    extra: NDArray[np.uint32]

    @classmethod
    def between(cls, have: Rows, want: Rows, unused: Rows, *, complete: bool) -> "_Damage":
        """What differs between what is there and what should be; `unused`, and what an incomplete plan does not have,
        may be there."""
        _, here, there = np.intersect1d(have["uid"], want["uid"], assume_unique=True, return_indices=True)
        differs = have.view((np.void, ROW.itemsize))[here] != want.view((np.void, ROW.itemsize))[there]
        extra = have["uid"][~np.isin(have["uid"], np.concatenate((want["uid"], unused["uid"])))]
        return cls(want["uid"][~np.isin(want["uid"], have["uid"])], have["uid"][here[differs]],
                   extra if complete else extra[:0])

    def any(self) -> bool:
        """Whether anything differs."""
        return bool(len(self.missing) or len(self.different) or len(self.extra))

    @property
    def wrong(self) -> NDArray[np.uint32]:
        """The UIDs for which the plan has the right records."""
        return np.concatenate((self.missing, self.different))

    def is_only_modseq(self, have: Rows, want: Rows) -> bool:
        """Whether nothing differs but MODSEQs, and what follows from where a message is on the partition."""
        if len(self.missing) or len(self.extra):
            return False
        pair = [take(rows, np.flatnonzero(np.isin(rows["uid"], self.different))) for rows in (have, want)]
        for rows in pair:
            rows["modseq"] = rows["serial"] = 0
        return pair[0].tobytes() == pair[1].tobytes()

    def told(self) -> list[str]:
        """For people."""
        counts = ((self.missing, "were missing"), (self.different, "were others than they should be"),
                  (self.extra, "should not have been there"))
        return [f"{len(uids)} records {what}" for uids, what in counts if len(uids)]


def _rows(txn: WriteTxn, entry: MailboxEntry) -> tuple[Rows, list[int]]:
    """The records that can be read, and the chunks that cannot; the mailbox is locked already."""
    values, broken = [], []
    table = txn.partition.index
    for key, value in list(table.scan_to_change(chunk_key(entry.id, 0), chunk_key(type(entry.id)(entry.id + 1), 0),
                                                txn.handle)):
        number = chunk_of_key(key)[1]
        if sound(entry.id, number, value):
            values.append(value[:-4])
        else:
            broken.append(number)
    return np.frombuffer(bytearray(b"".join(values)), ROW), broken


# Cache records

def _compare_cached(partition: Partition, plan: Plan, applied: Outcome, change: bool) -> None:
    """Exchange the cache records, and the sizes of message files, that are others than the files say."""
    held: list[dict[str, Any]] = []
    for row in plan.rows("messages", ["digest", "octets", "trace", "staged", "cached"], partition=partition.name):
        if row["cached"] is not None and not row["staged"] and _wrong(partition, row, None) is not None:
            held.append(row)
        if len(held) >= BATCH:
            applied.corrections += _exchange(partition, held, change)
            held = []
    applied.corrections += _exchange(partition, held, change)


def _wrong(partition: Partition, row: dict[str, Any], txn: WriteTxn | None) -> str | None:
    """What is wrong with what the partition knows of a message file."""
    digest = row["digest"]
    record = partition.refs.find(digest) if txn is None else txn.refs.find_to_change(digest, txn.handle)
    if record is None:
        return None                     # what refers to it, if anything, is found when references are counted
    if (record.size, record.trace) != (row["octets"], row["trace"]):
        return (f"its file has {row['octets']} octets, {row['trace']} of them a trace header; known were "
                f"{record.size}, {record.trace}")
    cached = partition.cached([record.serial], None if txn is None else txn.handle)[0]
    if cached is None or cached.to_bytes() != row["cached"]:
        return "it had no cache record of its own" if cached is None or cached.digest != digest else \
            "its cache record said other things than its file"
    return None


def _exchange(partition: Partition, rows: Sequence[dict[str, Any]], change: bool) -> list[Correction]:
    def work(txn: WriteTxn) -> list[Correction]:
        done = []
        for row in sorted(rows, key=lambda row: row["digest"]):
            what, record = _wrong(partition, row, txn), txn.refs.find(row["digest"], txn.handle)
            if what is None or record is None:
                continue
            if change:
                txn.refs.write(row["digest"], evolve(record, size=row["octets"], trace=row["trace"]), txn.handle)
                partition.write_cached(record.serial, CachedMessage.from_bytes(row["cached"]), txn.handle)
            done.append(Correction(what, f"message {row['digest'].hex()}"))
        return done

    return partition.transact(work) if rows else []
