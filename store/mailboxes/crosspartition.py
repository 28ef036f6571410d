"""COPY and MOVE to a mailbox on another partition: the message files are brought there, one copy, and then records are
made that refer to them.

All or none of the messages are in the target: many records are made some at a time, and are on record until all are
there (`copiesunderway`). With MOVE the source's records go when the target is on disk, some at a time, too: a crash in
between leaves the messages that are still in the source in both mailboxes.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TypeVar

import numpy as np
from attrs import define, evolve, frozen
from numpy.typing import NDArray

from mboxlist.entry import MailboxEntry
from store.delivery import durable
from store.delivery.batch import NotCopied, SideBySide, one_by_one, refer
from store.delivery.filecopy import TRIES, FileCopier, copy_rows
from store.errors import Problem, StoreError
from store.events.scriptevents import COPY
from store.mailboxes.authorization import changeable
from store.mailboxes.copymessages import (
    PartlyMoved,
    copies_of,
    copy_messages,
    try_quota,
    undo_or_say,
    with_rows,
)
from store.mailboxes.expunge import remove as remove_messages
from store.mailboxes.expunge import take_out
from store.mailboxes.flagchanges import change_flags
from store.offload import change, run, threads_of
from store.partition.partition import Partition
from store.partition.transactions import WriteTxn, places, set_own
from store.progress import Progress
from store.store import Store
from store.tables.copiesunderway import CopyUnderWay
from store.tables.index import Rows, take
from store.tables.references import tally
from store.tables.slices import slices, sorted_uids
from store.tables.state import Mailbox
from store.values import Flag, FlagAction, Flags

T = TypeVar("T")
ARRIVAL_UNITS = 25          # see `slices`: what a message costs that arrives, whose file is looked for,
REMOVAL_UNITS = 20        # and one that leaves, whose file may wait for the purge from then on


def copy(store: Store, source: MailboxEntry, target: MailboxEntry, uids: Iterable[int] | NDArray[np.uint32], *,
         remove: bool = False, reader: str = "", side_by_side: SideBySide = one_by_one,
         progress: Progress | None = None, event_of: str = "") -> list[int]:
    """Copy (with `remove`, move) all of `uids` or none, wherever the mailboxes are; see `copy_messages`.

    For a thread, unless both are on one partition. Not flushed yet, where both are.
    Raises StoreError GONE, NO_MAILBOX, OVER_QUOTA, LIMIT, BUSY, DISK_FULL, CORRUPT.
    """
    wanted = sorted_uids(uids)
    def work() -> list[int]:
        try:
            return _copy(store, source, target, wanted, remove, reader, side_by_side, progress, event_of)
        except PartlyMoved:
            raise
        except StoreError as error:
            if error.problem is Problem.NO_MAILBOX and all(
                    store.mailboxes.find_id(entry.id) is not None for entry in (source, target)):
                raise StoreError(Problem.BUSY, "The mailbox is being moved") from error
            raise

    return patiently(store, work)


async def copy_durably(store: Store, source: MailboxEntry, target: MailboxEntry, uids: NDArray[np.uint32], *,
               remove: bool = False, reader: str = "", at_once: bool = False,
               progress: Progress | None = None, event_of: str = "") -> list[int]:
    """COPY (with `remove`, MOVE) of all of `uids` or none, to wherever the target is; the new UIDs. It is on disk when
    this returns (see `flushed`). `at_once`: without a thread, if it can be done without.

    Raises StoreError GONE, NO_MAILBOX, OVER_QUOTA, LIMIT, BUSY, DISK_FULL, CORRUPT; Abandoned.
    """
    written = (target, source) if remove else (target,)
    new = None
    if at_once and store.partition_of(source) is store.partition_of(target):
        try:
            new = await change(store, lambda: copy_messages(store, source, target, uids, remove=remove, reader=reader,
                                                            event_of=event_of))
        except StoreError as error:
            if error.problem not in (Problem.BUSY, Problem.NO_MAILBOX):
                raise
    if new is None:
        side_by_side = threads_of(store).side_by_side
        try:
            new = await run(store, "changes", lambda: copy(
                store, source, target, uids, remove=remove, reader=reader, side_by_side=side_by_side,
                progress=progress, event_of=event_of), user=reader)
        except PartlyMoved:
            await _flushed(store, written)
            raise
    await _flushed(store, written)
    return new


async def _flushed(store: Store, written: Sequence[MailboxEntry]) -> None:
    for entry in {store.partition_of(entry).name: entry for entry in written}.values():
        await durable.flushed(store, entry)


def patiently(store: Store, work: Callable[[], T]) -> T:
    """The result of `work`; it is done again while a mailbox is being moved, up to `store.patience`. For a thread."""
    deadline = time.monotonic() + store.patience
    while True:
        try:
            return work()
        except StoreError as error:
            if error.problem is not Problem.BUSY or isinstance(error, PartlyMoved) or time.monotonic() > deadline:
                raise
        time.sleep(durable.PAUSE)


def _copy(store: Store, source: MailboxEntry, target: MailboxEntry, uids: NDArray[np.uint32], remove: bool,
          reader: str, side_by_side: SideBySide, progress: Progress | None, event_of: str) -> list[int]:
    here, there = store.partition_of(source), store.partition_of(target)
    if here is there:
        return copy_messages(store, source, target, uids, remove=remove, reader=reader, progress=progress,
                             event_of=event_of)
    mailbox = store.open_mailbox(source, reader)
    rows = take(mailbox.rows, places(mailbox.rows, uids))
    if len(rows) != len(uids):
        raise StoreError(Problem.GONE)
    if not len(rows):
        return []
    within_root = remove and there.state(target.id).quota_root == mailbox.state.quota_root
    new = bring(store, mailbox, target, rows, reader=reader, side_by_side=side_by_side, progress=progress,
                within_root=within_root, event_of=event_of)
    if remove:
        _Removal(store, mailbox, target, dict(zip(rows["uid"].tolist(), new, strict=True)), rows).run()
    return new


def bring(store: Store, mailbox: Mailbox, target: MailboxEntry, rows: Rows, *, reader: str = "",
          side_by_side: SideBySide = one_by_one, progress: Progress | None = None, within_root: bool = False,
          event_of: str = "") -> list[int]:
    """Make records of the target's of these, which are the mailbox's, whose partition has the message files; flushed.

    For a thread. Raises StoreError NO_MAILBOX, OVER_QUOTA, BUSY, DISK_FULL, CORRUPT.
    """
    here, there = store.partition(mailbox.entry.partition), store.partition_of(target)
    if here is there:
        with suppress(NotCopied):              # a file is no longer as it was: the copier says what it is now
            return _copy_from_snapshot(store, there, mailbox, target, rows, reader, within_root, event_of)
    if not within_root:
        octets = int(rows["size"].sum())
        there.transact(lambda txn: try_quota(txn, txn.state(target.id), octets, len(rows)))
    copier = FileCopier(here, there, side_by_side if progress is None else _unless_abandoned(progress, side_by_side))
    new = _Arrival(store, there, target, mailbox, reader, within_root, event_of).run(copier, rows)
    there.flush()
    return new


def _copy_from_snapshot(store: Store, partition: Partition, source: Mailbox, target: MailboxEntry, rows: Rows,
                     reader: str, within_root: bool, event_of: str) -> list[int]:
    """Add records of a snapshot of the partition, whose files are there still. Numbers of header fields are as they
    are now. Raises NotCopied."""
    new = _Arrival(store, partition, target, source, reader, within_root, event_of).run(None, rows)
    partition.flush()
    return new


def _unless_abandoned(progress: Progress, side_by_side: SideBySide) -> SideBySide:
    """Leaves off between two batches of files, of which nothing is on record yet that anybody sees."""
    def synced(work: list[Callable[[], None]]) -> None:
        progress.step(0)
        side_by_side(work)

    return synced


@frozen
class _Arrival:
    """Records of `source` that come into the target; see `bring`."""

    store: Store
    partition: Partition
    target: MailboxEntry
    source: Mailbox
    reader: str
    within_root: bool
    event_of: str

    def run(self, copier: FileCopier | None, rows: Rows) -> list[int]:
        """The new UIDs. Without a copier the files are there, and are looked for; NotCopied where one is not.
        Raises StoreError."""
        carried = rows if copier is None else copy_rows(copier, [rows])[0]
        pieces = _pieces(carried, ARRIVAL_UNITS)
        under_way = CopyUnderWay(self.target.id, self.partition.serials.next_serial()) if len(pieces) > 1 else None
        new: list[int] = []
        try:
            for piece in pieces:
                new += self._some(copier, rows[len(new):len(new) + len(piece)], piece, under_way, piece is pieces[-1])
        except BaseException:
            if under_way is not None:
                undo_or_say(self.store, self.partition, under_way)
            raise
        return new

    def _some(self, copier: FileCopier | None, rows: Rows, carried: Rows, under_way: CopyUnderWay | None, last: bool
              ) -> list[int]:
        for _ in range(TRIES):
            try:
                return self.partition.transact(lambda txn: self._arrive(
                    txn, carried, under_way, last, copier is not None))        # noqa: B023
            except NotCopied:
                if copier is None:
                    raise
            carried, = copy_rows(copier, [rows])
        raise StoreError(Problem.BUSY, detail="the same messages come and go on the other partition")

    def _arrive(self, txn: WriteTxn, rows: Rows, under_way: CopyUnderWay | None, last: bool, seen: bool) -> list[int]:
        """Add the records, which are those of the target's partition already; `seen` see `refer`."""
        target, copies_under_way = self.target, txn.partition.copies
        before = txn.state(target.id)
        txn.charge(before, int(rows["size"].sum()), len(rows), enforce=not self.within_root)
        copies, keywords = copies_of(rows, self.source.state, before, changeable(self.store, self.reader, target))
        own = self.store.private_bits(target, self.reader)
        if own:
            set_own(txn, target.id, self.reader, copies, own, before.highestmodseq + 1)
        txn.append(target.id, copies)
        txn.set_state(target.id, before, evolve(with_rows(before, copies), keywords=keywords))
        refer(txn, target.id, copies, seen=seen)
        uids = np.ascontiguousarray(copies["uid"])
        if self.event_of and last:                  # not before all are there: what is cut off goes again
            come = uids if under_way is None else np.concatenate((copies_under_way.uids(under_way, txn.handle), uids))
            txn.partition.script_events.add(target.id, COPY, self.event_of, come, txn.handle)
        if under_way is not None and last:
            copies_under_way.forget(under_way, txn.handle)
        elif under_way is not None:
            copies_under_way.add(under_way, uids, txn.handle)
        new: list[int] = uids.tolist()
        return new


def _pieces(rows: Rows, price: float) -> list[Rows]:
    """These records, for one transaction each (`slices`)."""
    ends = np.cumsum([len(some) for some in slices(np.ascontiguousarray(rows["uid"]), price)])
    return np.split(rows, ends[:-1])


@define
class _Removal:
    """Records that leave the source. `new`: the UIDs that they have in the target; `left`: those that are there still.
    """

    store: Store
    source: Mailbox
    target: MailboxEntry
    new: dict[int, int]
    left: Rows

    def run(self) -> None:
        """Take them out; flags that were changed meanwhile go to the new ones first.

        When that cannot be done, the new ones of those that are left go again. Raises StoreError, PartlyMoved.
        """
        rows = self.left
        try:
            for some in _pieces(rows, REMOVAL_UNITS):
                self._some(some)
        except StoreError as error:
            if error.problem is Problem.NO_MAILBOX:     # it was deleted, and what was in it can be restored from there
                return
            remove_messages(self.store, self.target, self._new_uids(self.left))
            if len(self.left) == len(rows):
                raise
            moved = take(rows, ~np.isin(rows["uid"], self.left["uid"]))
            raise PartlyMoved(error, np.ascontiguousarray(moved["uid"]), self._new_uids(moved)) from error

    def _some(self, rows: Rows) -> None:
        while len(rows):
            changed = patiently(self.store, lambda: self.store.transact(
                self.source.entry, lambda txn: _take_out(txn, self.source, rows)))        # noqa: B023
            gone = rows["uid"][~np.isin(rows["uid"], changed.rows["uid"])]
            self.left = take(self.left, ~np.isin(self.left["uid"], gone))
            rows = changed.rows
            if len(rows) and any(changeable(self.store, self.source.reader, self.target)):
                self._take_flags(changed)

    def _take_flags(self, changed: Mailbox) -> None:
        for row in changed.rows:
            flags = Flags(Flag(int(row["flags"])), changed.keyword_names(int(row["keywords"])))
            change_flags(self.store, self.target, [self.new[int(row["uid"])]], FlagAction.REPLACE, flags,
                         self.source.reader)
        self.store.partition_of(self.target).flush()

    def _new_uids(self, rows: Rows) -> list[int]:
        return [self.new[uid] for uid in rows["uid"].tolist()]


def _take_out(txn: WriteTxn, source: Mailbox, rows: Rows) -> Mailbox:
    """Take those records out that are still as they were; the mailbox with the others."""
    mailbox = source.entry.id
    state = txn.state(mailbox)
    uids = np.ascontiguousarray(rows["uid"])
    there = txn.rows_of(mailbox, uids)
    shown = txn.partition.views.as_seen(mailbox, there, source.reader, txn.handle)
    old = take(rows, places(rows, np.ascontiguousarray(there["uid"])))
    same = (shown["flags"] == old["flags"]) & (shown["keywords"] == old["keywords"])
    gone = take(there, same)
    take_out(txn, mailbox, state, gone, release=False)
    txn.refs.release_all(tally(mailbox, gone), int(time.time()), txn.handle)
    return Mailbox(source.entry, state, take(shown, ~same), source.reader)
