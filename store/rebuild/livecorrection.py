"""A mailbox of a partition in use, put right by what it is to be.

It is compared while its row is locked. If it is as it was when its `store.idx` was written (HIGHESTMODSEQ, UIDNEXT),
every difference is damage, and the records that are to be take the place of what differs; they get a new MODSEQ, so
that clients look at them again. If it has moved on since, it is left and reported. Done twice, the second time finds
nothing.
"""

from typing import Any

import numpy as np
from attrs import define, evolve
from numpy.typing import NDArray

from mboxlist.entry import MailboxEntry, MailboxId
from store.errors import Problem, StoreError
from store.partition.partition import Partition
from store.partition.transactions import WriteTxn
from store.rebuild.desired import DesiredMailbox, is_as_written
from store.rebuild.outcome import Correction, Outcome
from store.rebuild.repair import fit, repair_mailbox
from store.rebuild.salvage import broken_chunks, readable
from store.store import Store
from store.tables.index import CHUNK, Rows, chunk_key, differ, joined, split, take
from store.tables.references import MessageRecord
from store.tables.state import MailboxState, counted
from store.values import RECONSTRUCT, Finding

MOVED_ON = "it has changed since the plan was made, and is left as it is"


@define(eq=False)
class LiveCorrection:
    """One mailbox, and what it is to be."""

    store: Store
    partition: Partition
    desired: DesiredMailbox
    outcome: Outcome
    change: bool

    def run(self) -> None:
        """Compare it, and put it right. Raises StoreError."""
        self.outcome.mailboxes += 1
        found = self.store.known(self.desired.entry.id)
        if found is None or found[0].partition != self.partition.name:
            self._leave("the list of mailboxes does not know it")
            return
        entry = found[0]
        if not self.desired.complete:
            self.partition.unwritten.changed.add(entry.id)
            if broken_chunks(self.partition, entry.id):         # these have what the source lacks, perhaps
                self.outcome.corrections += repair_mailbox(self.store, entry) if self.change else [
                    Correction("chunks of its index are damaged", str(self.desired.entry.name))]
        try:
            done = self._compare_now(entry)
        except _Left as reason:
            self._leave(str(reason))
        except StoreError as error:
            if error.problem is not Problem.CORRUPT:
                raise
            self._leave(f"it cannot be read: {error.detail}")
        else:
            self.outcome.corrections += [Correction(what, str(self.desired.entry.name)) for what in done]

    def put_back(self, txn: WriteTxn, mailbox: MailboxId, state: MailboxState) -> list[str]:
        """As `run`, in the transaction in which a mailbox that had no figures gets these. Damaged chunks stay as they
        are: `run` has them repaired afterwards."""
        have, broken = _records(txn, mailbox)
        rows = self.desired.rows
        assert rows is not None
        if not is_as_written(state, self.desired.state):
            return []
        rows = take(rows, np.flatnonzero(~np.isin((rows["uid"].astype(np.int64) - 1) // CHUNK, broken)))
        whole = evolve(self, desired=evolve(self.desired, rows=rows))
        damage = _Damage.between(have, rows, self.desired.unused, complete=self.desired.complete)
        if damage.any():
            whole._mend(txn, mailbox, state, have, damage, [])
        return damage.texts()

    def _leave(self, why: str) -> None:
        self.outcome.left.append(Finding(why, str(self.desired.entry.name), RECONSTRUCT))

    def _compare_now(self, entry: MailboxEntry) -> list[str]:
        """What has been done; or what would be, and has been undone."""
        def work(txn: WriteTxn) -> list[str]:
            done = self._compare(txn, entry)
            if not self.change:
                raise _Undone(done)
            return done

        try:
            return self.partition.transact(work)
        except _Undone as undone:
            return undone.done

    def _compare(self, txn: WriteTxn, entry: MailboxEntry) -> list[str]:
        state, desired = txn.any_state(entry.id), self.desired
        assert desired.rows is not None
        if state is None or state.moving or entry.uidvalidity != desired.entry.uidvalidity or bool(
                state.removed) != bool(desired.removed):
            raise _Left(MOVED_ON)
        have, broken = _records(txn, entry.id)
        damage = _Damage.between(have, desired.rows, desired.unused, complete=desired.complete)
        if not damage.any() and not broken:
            return []
        if not is_as_written(state, desired.state):
            if broken:
                raise _Left("chunks of its index are damaged, and it has changed since the plan was made")
            if damage.is_only_modseq(have, desired.rows):
                return []                   # it has been put right by this before
            raise _Left(MOVED_ON)
        self._mend(txn, entry.id, state, have, damage, broken)
        return [*damage.texts(), *([f"{len(broken)} chunks of its index were damaged"] if broken else [])]

    def _mend(self, txn: WriteTxn, mailbox: MailboxId, state: MailboxState, have: Rows, damage: "_Damage",
              broken: list[int]) -> None:
        desired, modseq = self.desired, state.highestmodseq + 1
        assert desired.rows is not None
        new = take(desired.rows, np.flatnonzero(np.isin(desired.rows["uid"], damage.wrong)))
        usable = np.array([_take_up(txn, row) for row in new], np.bool_)
        new = take(new, np.flatnonzero(usable)) if len(new) else new
        new["modseq"] = modseq
        kept = take(have, np.flatnonzero(~np.isin(have["uid"], np.concatenate((new["uid"], damage.extra)))))
        rows = joined(kept, new)
        rows = take(rows, np.argsort(rows["uid"]))
        touched = {*broken, *((np.concatenate((new["uid"], damage.extra)).astype(np.int64) - 1) // CHUNK).tolist()}
        parts = dict(split(rows))
        for number in sorted(touched):
            txn.put_chunk(mailbox, number, parts.get(number, rows[:0]))
        damaged = {item[:2] for item in txn.partition.readers.damaged(mailbox, txn.handle)}
        for number, reader, flags in desired.own or ():
            if (number, reader) in damaged:
                txn.put_own(mailbox, number, reader, flags)
        txn.partition.uidls.correct(mailbox, rows, txn.handle)
        after = counted(evolve(state, highestmodseq=modseq, changed=modseq, log_since=modseq,
                               keywords=max(state.keywords, desired.state.keywords, key=len)), rows)
        if not state.removed:
            txn.charge(state, after.octets - state.octets, after.messages - state.messages, enforce=False)
        txn.set_state(mailbox, state, after)


def _records(txn: WriteTxn, mailbox: MailboxId) -> tuple[Rows, list[int]]:
    """The records of a mailbox, locked, and which of its chunks are damaged."""
    return readable(mailbox, txn.partition.index.scan_to_change(
        chunk_key(mailbox, 0), chunk_key(MailboxId(mailbox + 1), 0), txn.handle))


class _Left(Exception):
    """The mailbox is left as it is; the text says why."""


class _Undone(Exception):
    """Ends a transaction of which nothing is to stay."""

    def __init__(self, done: list[str]) -> None:
        self.done = done
        super().__init__()


def _take_up(txn: WriteTxn, row: Any) -> bool:
    """Have the record fit what the partition says of its message file; False when that is not there any more."""
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


@define(eq=False)
class _Damage:
    """The UIDs of records that are missing or others than they should be, and of those that should not be there."""

    missing: NDArray[np.uint32]
    different: NDArray[np.uint32]
    extra: NDArray[np.uint32]

    @classmethod
    def between(cls, have: Rows, want: Rows, unused: Rows, *, complete: bool) -> "_Damage":
        """What differs between what is there and what should be; `unused`, and what an incomplete source does not have,
        may be there."""
        _, here, there = np.intersect1d(have["uid"], want["uid"], assume_unique=True, return_indices=True)
        differs = differ(take(have, here), take(want, there))
        extra = have["uid"][~np.isin(have["uid"], np.concatenate((want["uid"], unused["uid"])))]
        return cls(want["uid"][~np.isin(want["uid"], have["uid"])], have["uid"][here[differs]],
                   extra if complete else extra[:0])

    def any(self) -> bool:
        """Whether anything differs."""
        return bool(len(self.missing) or len(self.different) or len(self.extra))

    @property
    def wrong(self) -> NDArray[np.uint32]:
        """The UIDs of which the right records are there."""
        return np.concatenate((self.missing, self.different))

    def is_only_modseq(self, have: Rows, want: Rows) -> bool:
        """Whether nothing differs but MODSEQs, and what follows from where a message is on the partition."""
        if len(self.missing) or len(self.extra):
            return False
        pair = [take(rows, np.flatnonzero(np.isin(rows["uid"], self.different))) for rows in (have, want)]
        for rows in pair:
            rows["modseq"] = rows["serial"] = rows["balance"] = 0
        return pair[0].tobytes() == pair[1].tobytes()

    def texts(self) -> list[str]:
        """For people."""
        counts = ((self.missing, "were missing"), (self.different, "were others than they should be"),
                  (self.extra, "should not have been there"))
        return [f"{len(uids)} records {what}" for uids, what in counts if len(uids)]
