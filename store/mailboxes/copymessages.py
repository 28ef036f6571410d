"""COPY and MOVE: records that refer to the same message files (RFC 3501 §6.4.7, RFC 6851)."""

import logging
import time
from collections.abc import Callable, Iterable
from functools import partial

import numpy as np
from attrs import evolve, frozen
from numpy.typing import NDArray

from mboxlist.entry import MailboxEntry, MailboxId
from store.errors import Problem, StoreError
from store.events.scriptevents import COPY
from store.mailboxes.authorization import changeable
from store.mailboxes.expunge import take_out
from store.partition.partition import Partition
from store.partition.transactions import WriteTxn, places, set_own
from store.progress import Progress
from store.store import Store
from store.tables.copiesunderway import CopyUnderWay
from store.tables.index import Rows
from store.tables.references import tally
from store.tables.slices import COPY_UNITS, MOVE_UNITS, PartlyDone, slices, sorted_uids
from store.tables.state import MailboxState, gained, keyword_bits
from store.values import Flag, Flags

log = logging.getLogger(__name__)

PAUSE = 0.05                # seconds between two tries to undo a copy


class PartlyMoved(PartlyDone):
    """A MOVE has come to its end half way: the messages `uids` have been moved, and are `new` now (RFC 6851 §4.3)."""

    def __init__(self, error: StoreError, uids: NDArray[np.uint32], new: list[int]) -> None:
        super().__init__(error, new)
        self.uids = uids
        self.new = new


def copy_messages(store: Store, source: MailboxEntry, target: MailboxEntry,
                  uids: Iterable[int] | NDArray[np.uint32], *, remove: bool = False, reader: str = "",
                  progress: Progress | None = None, guard: Callable[[MailboxState], None] | None = None,
                  event_of: str = "") -> list[int]:
    """Copy (with `remove`, move) all of `uids` or none; the new UIDs in ascending order of the old ones.

    Flags are copied as the `reader` sees them (`Store.private_bits`), those that it may set in the target.
    Both mailboxes are on this partition; no file is touched. Not flushed yet. `guard` gets the source's figures, and
    raises what keeps the messages where they are; with it, they are copied in one transaction. `event_of`: whose
    command it is, if a script of the target is to run for it.

    Many are copied some at a time. When a copy cannot be made to its end, what there is of it goes again; a move
    leaves what it has moved, and raises PartlyMoved.
    Raises StoreError GONE, NO_MAILBOX, OVER_QUOTA, LIMIT; Abandoned, and then none are copied.
    """
    wanted = sorted_uids(uids)
    copying = _Copying(store, source, target, reader, remove, progress or Progress(), guard or (lambda source: None),
                       event_of)
    pieces = [wanted] if guard else list(slices(wanted, MOVE_UNITS if remove else COPY_UNITS))
    partition = store.partition_of(target)
    copying.progress.total = copying.progress.done = 0
    copying.progress.begin(len(wanted))
    if len(pieces) == 1:
        return partition.transact(partial(copying.some, uids=wanted))
    partition.transact(partial(copying.try_all, octets=copying.octets(wanted), messages=len(wanted)))
    under_way = None if remove else CopyUnderWay(target.id, partition.serials.next_serial())
    new: list[int] = []
    try:
        for piece in pieces:
            copying.progress.step(0)
            new += partition.transact(partial(copying.some, uids=piece, under_way=under_way, last=piece is pieces[-1]))
            copying.progress.done = len(new)
    except BaseException as error:
        if under_way is not None:
            undo_or_say(store, partition, under_way)
        elif new and isinstance(error, StoreError):
            raise PartlyMoved(error, wanted[:len(new)], new) from error
        raise
    return new


@frozen
class _Copying:
    """What `copy_messages` was asked for."""

    store: Store
    source: MailboxEntry
    target: MailboxEntry
    reader: str
    remove: bool
    progress: Progress
    guard: Callable[[MailboxState], None]
    event_of: str

    def octets(self, wanted: NDArray[np.uint32]) -> int:
        """Of all messages. Raises StoreError GONE."""
        rows = self.store.open_mailbox(self.source).rows
        there = places(rows, wanted)
        if len(there) != len(wanted):
            raise StoreError(Problem.GONE)
        return int(rows["size"][there].sum())

    def try_all(self, txn: WriteTxn, octets: int, messages: int) -> None:
        """See whether there is room for all. Raises StoreError OVER_QUOTA."""
        states = self._states(txn)
        if not self._within_root(states):
            try_quota(txn, states[self.target.id], octets, messages)

    def some(self, txn: WriteTxn, uids: NDArray[np.uint32], under_way: CopyUnderWay | None = None, last: bool = True
             ) -> list[int]:
        """Copy or move these; `under_way` is on record until the last ones are there."""
        source, target, reader = self.source, self.target, self.reader
        states = self._states(txn)
        self.guard(states[source.id])
        rows = txn.rows_of(source.id, uids)
        if len(rows) != len(uids):
            raise StoreError(Problem.GONE)
        if not len(rows):
            return []
        before = states[target.id]
        txn.charge(before, int(rows["size"].sum()), len(rows), enforce=not self._within_root(states))
        shown = txn.partition.views.as_seen(
            source.id, rows, reader if self.store.private_bits(source, reader) else "", txn.handle)
        copies, keywords = copies_of(shown, states[source.id], before, changeable(self.store, reader, target))
        if own := self.store.private_bits(target, reader):
            set_own(txn, target.id, reader, copies, own, before.highestmodseq + 1)
        after = evolve(with_rows(before, copies), keywords=keywords)
        txn.append(target.id, copies)
        txn.set_state(target.id, before, after)
        tallies = tally(target.id, copies)
        if self.remove:
            left = after if source.id == target.id else states[source.id]
            take_out(txn, source.id, left, rows, same_modseq=source.id == target.id, release=False)
            # The files are used as often as before, by other records.
            tallies = [(digest, 0, new - old) for (digest, _, new), (_, _, old) in zip(
                tallies, tally(source.id, rows), strict=True)]
        txn.refs.add_all(tallies, txn.handle)
        if self.event_of and (last or under_way is None):       # not before all are there: what is cut off goes again
            come = np.ascontiguousarray(copies["uid"])
            if under_way is not None:
                come = np.concatenate((txn.partition.copies.uids(under_way, txn.handle), come))
            txn.partition.script_events.add(target.id, COPY, self.event_of, come, txn.handle)
        if under_way is not None and last:
            txn.partition.copies.forget(under_way, txn.handle)
        elif under_way is not None:
            txn.partition.copies.add(under_way, copies["uid"], txn.handle)
        uidlist: list[int] = copies["uid"].tolist()
        return uidlist

    def _states(self, txn: WriteTxn) -> dict[MailboxId, MailboxState]:
        return {mailbox: txn.state(mailbox) for mailbox in sorted({self.source.id, self.target.id})}

    def _within_root(self, states: dict[MailboxId, MailboxState]) -> bool:
        return self.remove and states[self.source.id].quota_root == states[self.target.id].quota_root


def undo_or_say(store: Store, partition: Partition, copy: CopyUnderWay) -> None:
    """`undo`; what cannot be done in the store's patience is left to housekeeping, which the log hears."""
    deadline = time.monotonic() + store.patience
    while True:
        try:
            undo(store, partition, copy)
            return
        except StoreError as error:         # one of its mailboxes is being moved, or the disk is full
            if time.monotonic() > deadline:
                partition.copies.left.append(copy)
                log.error("what there is of a copy into mailbox %d, which failed, goes as soon as that can be done: %s",
                          copy.mailbox, error)
                return
        time.sleep(PAUSE)


def undo(store: Store, partition: Partition, copy: CopyUnderWay) -> None:
    """What there is of a copy that has not come to its end goes again. Raises StoreError."""
    entry = store.mailboxes.find_id(copy.mailbox)

    def work(txn: WriteTxn, some: NDArray[np.uint32]) -> None:
        rows = txn.rows_of(copy.mailbox, some)
        take_out(txn, copy.mailbox, txn.state(copy.mailbox), rows, release=False)
        txn.refs.release_all(tally(copy.mailbox, rows), int(time.time()), txn.handle)

    if entry is not None:                   # else it has been deleted since, and nobody has heard of the copy
        for some in slices(partition.copies.uids(copy), MOVE_UNITS):
            store.transact(entry, partial(work, some=some))
    partition.transact(lambda txn: partition.copies.forget(copy, txn.handle))


def undo_all(store: Store) -> None:
    """Undo the copies that were cut off with the processes that made them. For the one that opens the store first."""
    for partition in store.partitions.values():
        for copy in list(partition.copies.all()):
            log.info("a copy into mailbox %d was cut off: what there is of it goes", copy.mailbox)
            try:
                undo(store, partition, copy)
            except StoreError as error:
                log.error("what there is of a copy into mailbox %d, which was cut off, goes when the store is next "
                          "opened: %s", copy.mailbox, error)


def left(store: Store) -> list[tuple[str, CopyUnderWay]]:
    """What this process has still to undo, and on which partition. For housekeeping."""
    return [(name, copy) for name, partition in store.writable.items() for copy in partition.copies.left]


def undo_left(store: Store, item: tuple[str, CopyUnderWay]) -> int:
    """Undo one of the copies that are `left`. Raises StoreError."""
    name, copy = item
    partition = store.partitions[name]
    undo(store, partition, copy)
    partition.flush()
    partition.copies.left.remove(copy)
    return 1


def try_quota(txn: WriteTxn, target: MailboxState, octets: int, messages: int) -> None:
    """See whether there is room for so much. Raises StoreError OVER_QUOTA."""
    txn.charge(target, octets, messages)
    txn.charge(target, -octets, -messages)


def copies_of(rows: Rows, source: MailboxState, target: MailboxState, allowed: tuple[Flag, bool]
              ) -> tuple[Rows, tuple[str, ...]]:
    """The records as the target has them (its next UIDs, its keyword bits), and the keywords that it has with them.

    Only the flags that are `allowed` (`authorization.changeable`) go with them (RFC 4314 §4).
    """
    copies = rows.copy()
    copies["flags"] &= np.uint16(allowed[0])
    copies["uid"] = np.arange(target.uidnext, target.uidnext + len(rows))
    copies["modseq"] = target.highestmodseq + 1
    copies["saved"] = int(time.time())
    used = int(np.bitwise_or.reduce(rows["keywords"])) if allowed[1] else 0
    names = [name for at, name in enumerate(source.keywords) if used >> at & 1]
    _, words = keyword_bits(target, names, add=True)
    copies["keywords"] = 0
    widened = evolve(target, keywords=words)
    for name in names:
        old = np.uint64(keyword_bits(source, [name], add=False)[0])
        bit, _ = keyword_bits(widened, [name], add=True)
        copies["keywords"] |= np.where(rows["keywords"] & old, np.uint64(bit), np.uint64(0))
    return copies, words


def copy_within(txn: WriteTxn, source: MailboxEntry, target: MailboxEntry, uid: int, flags: Flags) -> bool:
    """Copy one message, which gets these flags; whether it is there still. Both mailboxes are on this partition.
    Keywords for which there is no room are left away. Raises StoreError NO_MAILBOX, OVER_QUOTA, BUSY, CORRUPT."""
    states = {mailbox: txn.state(mailbox) for mailbox in sorted({source.id, target.id})}
    rows, before = txn.rows_of(source.id, np.array([uid], np.uint32)), states[target.id]
    if not len(rows):
        return False
    txn.charge(before, int(rows["size"].sum()), len(rows))
    copies, _ = copies_of(rows, states[source.id], before, (flags.system, False))
    try:
        bits, keywords = keyword_bits(before, flags.keywords, add=True)
    except StoreError:
        bits, keywords = keyword_bits(before, flags.keywords, add=False)
    copies["flags"], copies["keywords"] = int(flags.system), bits
    txn.append(target.id, copies)
    txn.set_state(target.id, before, evolve(with_rows(before, copies), keywords=keywords))
    txn.refs.add_all(tally(target.id, copies), txn.handle)
    return True


def with_rows(state: MailboxState, rows: Rows) -> MailboxState:
    """The figures after `rows` have been added."""
    return evolve(gained(state, rows), uidnext=state.uidnext + len(rows), highestmodseq=state.highestmodseq + 1)
