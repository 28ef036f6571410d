"""COPY and MOVE to a mailbox on another partition: the message files are brought there, one copy, and then records are
made that refer to them.

All or none of the messages are in the target. With MOVE the source's records go when the target is on disk: a crash in
between leaves the messages in both mailboxes.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TypeVar

import numpy as np
from attrs import evolve
from numpy.typing import NDArray

from mboxlist.entry import MailboxEntry
from store.delivery import durable
from store.delivery.batch import NotCopied, SideBySide, one_by_one, refer
from store.delivery.filecopy import TRIES, FileCopier, copy_rows
from store.errors import Problem, StoreError
from store.events.scriptevents import COPY
from store.mailboxes.authorization import changeable
from store.mailboxes.copymessages import PartlyMoved, copies_of, copy_messages, try_quota, with_rows
from store.mailboxes.expunge import remove as remove_messages
from store.mailboxes.expunge import take_out
from store.mailboxes.flagchanges import change_flags
from store.offload import change, run, threads_of
from store.partition.partition import Partition
from store.partition.transactions import WriteTxn, places, set_own, sorted_uids
from store.progress import Progress
from store.store import Store
from store.tables.index import Rows, take
from store.tables.references import tally
from store.tables.state import Mailbox
from store.values import Flag, FlagAction, Flags

T = TypeVar("T")

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
        _remove(store, mailbox, target, rows, new)
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
    for _ in range(TRIES):
        carried, = copy_rows(copier, [rows])
        try:
            new = there.transact(lambda txn: _arrive(
                store, txn, target, carried, mailbox, reader, within_root, event_of))   # noqa: B023
        except NotCopied:
            continue
        there.flush()
        return new
    raise StoreError(Problem.BUSY, detail="the same messages come and go on the other partition")


def _copy_from_snapshot(store: Store, partition: Partition, source: Mailbox, target: MailboxEntry, rows: Rows,
                     reader: str, within_root: bool, event_of: str) -> list[int]:
    """Add records of a snapshot of the partition, whose files are there still. Numbers of header fields are as they
    are now. Raises NotCopied."""
    new = partition.transact(lambda txn: _arrive(store, txn, target, rows, source, reader, within_root, event_of,
                                                     seen=False))
    partition.flush()
    return new


def _unless_abandoned(progress: Progress, side_by_side: SideBySide) -> SideBySide:
    """Leaves off between two batches of files, of which nothing is on record yet that anybody sees."""
    def synced(work: list[Callable[[], None]]) -> None:
        progress.step(0)
        side_by_side(work)

    return synced


def _arrive(store: Store, txn: WriteTxn, target: MailboxEntry, rows: Rows, source: Mailbox, reader: str,
            within_root: bool, event_of: str, *, seen: bool = True) -> list[int]:
    """Add the records, which are those of the target's partition already; `seen` see `refer`."""
    before = txn.state(target.id)
    octets = int(rows["size"].sum())
    txn.charge(before, octets, len(rows), enforce=not within_root)
    copies, keywords = copies_of(rows, source.state, before, changeable(store, reader, target))
    own = store.private_bits(target, reader)
    if own:
        set_own(txn, target.id, reader, copies, own, before.highestmodseq + 1)
    txn.append(target.id, copies)
    txn.set_state(target.id, before, evolve(with_rows(before, copies), keywords=keywords))
    refer(txn, target.id, copies, seen=seen)
    if event_of:
        txn.partition.script_events.add(target.id, COPY, event_of, np.ascontiguousarray(copies["uid"]), txn.handle)
    return [int(uid) for uid in copies["uid"]]


def _remove(store: Store, source: Mailbox, target: MailboxEntry, rows: Rows, new: list[int]) -> None:
    """Take the records out of the source; flags that were changed meanwhile go to the new ones first.

    When that cannot be done, the new ones go again. Raises StoreError.
    """
    uids = dict(zip(rows["uid"].tolist(), new, strict=True))
    try:
        while True:
            left = patiently(store, lambda: store.transact(
                source.entry, lambda txn: _take_out(txn, source, rows)))        # noqa: B023
            if not len(left.rows):
                return
            rows = left.rows
            if not any(changeable(store, source.reader, target)):
                continue
            for row in rows:
                flags = Flags(Flag(int(row["flags"])), left.keyword_names(int(row["keywords"])))
                change_flags(store, target, [uids[int(row["uid"])]], FlagAction.REPLACE, flags, source.reader)
            store.partition_of(target).flush()
    except StoreError as error:
        if error.problem is Problem.NO_MAILBOX:     # it was deleted, and what was in it can be restored from there
            return
        remove_messages(store, target, [uids[uid] for uid in rows["uid"].tolist()])
        raise


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
    for digest, count, check in tally(mailbox, gone):
        txn.refs.release(digest, count, check, txn.handle)
    return Mailbox(source.entry, state, take(shown, ~same), source.reader)
