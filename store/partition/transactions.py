"""A transaction on one partition. It locks the mailboxes that it uses, and what it did is announced after the commit.

The work of a transaction is a function that may run more than once (after a deadlock), so it touches nothing outside.
Within a transaction the mailboxes are visited in the order of their ids.

A change of many messages is several transactions: see `store.tables.slices`.
"""

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from attrs import evolve
from numpy.typing import NDArray

from mboxlist.engine.btree import Txn
from mboxlist.entry import MailboxId
from store.changes import Change
from store.errors import Problem, StoreError
from store.events.eventvalues import APPEND, NEW
from store.events.recording import Recording, kinds_of_flags
from store.events.recording import Step as Heard
from store.partition.recordbuffers import Step
from store.tables.index import (
    CHUNK,
    DIVIDED,
    HEAD,
    OLDER,
    ROW,
    Rows,
    arrival_of,
    balanced,
    chunk_key,
    decode,
    divided,
    encode,
    extend,
    flags_at,
    heads_of,
    is_whole,
    octets_of,
    place_of,
    take,
    with_flags,
)
from store.tables.slices import distinct, starts
from store.tables.state import (
    DELETED,
    SEEN,
    UNLISTED,
    LaterEpoch,
    MailboxState,
    arrived,
    claimed,
    flagged,
    must_be_here,
    state_key,
)

if TYPE_CHECKING:
    from mboxlist.table import MailboxList
    from store.partition.partition import Partition

T = TypeVar("T")

FEW = 8             # so few chunks are read one by one
MAX_NAMED = 64       # chunks of one change that are named to others; past it they read the whole mailbox


class WriteTxn:
    """See the module's text; made by `Partition.transact`."""

    def __init__(self, partition: "Partition", handle: Txn) -> None:
        self.partition = partition
        self.handle = handle
        self.refs = partition.refs
        self._arrived: list[tuple[MailboxId, int, int]] = []        # mailboxes, HIGHESTMODSEQ before, a chunk of each
        self.charged: list[tuple[str, int, int]] = []       # domain, octets, messages: of domains that have limits
        self.handed: dict[MailboxId, tuple[MailboxState, Rows]] = {}    # see `hand_over`
        self.steps: list[tuple[MailboxId, Step]] = []       # what it did to single records, in turn
        self._figures = b""                                 # of the last mailbox in which a message arrived,
        self._delivery = False                              # and whether a delivery brought it
        self._loaded: dict[bytes, bytes] = {}               # chunks that were loaded to be changed
        self._before: dict[MailboxId, int] = {}
        self._chunks: dict[MailboxId, set[int]] = {}
        recorder = partition.recorder       # who hears of what it does, if anybody does:
        self.hears = recorder.receivers if recorder is not None and recorder.receivers.of_records else None
        self._heard: Heard | None = None                    # of what it did to a message, while that is all,
        self._recording: Recording | None = None            # else of all that it did

    @property
    def recording(self) -> Recording | None:
        """What it does, for those who hear of it; None when nobody does."""
        recorder = self.partition.recorder
        if self._recording is None and self.hears is not None and recorder is not None:
            self._recording = Recording(recorder, [] if self._heard is None else [self._heard])
        return self._recording

    def _hear_of_flags(self, mailbox: MailboxId, uid: int, come: int, gone: int, figures: bytes) -> None:
        """See `Recording.flagged`."""
        kinds = kinds_of_flags(come, gone)
        if self._heard is None and self._recording is None and len(kinds) == 1:
            (kind, flags), = kinds
            self._heard = mailbox, kind, uid, uid, 0, flags, figures
        elif (recording := self.recording) is not None:
            recording.flagged(mailbox, uid, come, gone, figures)

    def _hear_of_arrival(self, mailbox: MailboxId, value: bytes | None, record: bytes) -> None:
        """See `Recording.arrived`."""
        uid, flags, keywords, size = arrival_of(record)
        if self._heard is None and self._recording is None and not keywords:
            self._heard = mailbox, NEW if self._delivery else APPEND, uid, uid, size, flags, self._figures
        elif (recording := self.recording) is not None:
            recording.arrived(mailbox, value, record, self._figures, delivery=self._delivery)

    def tell(self) -> None:
        """Write what receivers are to hear of it: the last thing that it does."""
        partition = self.partition
        if self._recording is not None:
            self._recording.write(partition, self.handle)
        elif self._heard is not None and partition.recorder is not None:
            partition.recorder.write_sole(self._heard, partition.outbox, self.handle)

    def state(self, mailbox: MailboxId) -> MailboxState:
        """The mailbox's figures; it is locked from here on.

        Raises StoreError NO_MAILBOX when it has been deleted, BUSY while it is being moved or made, LaterEpoch.
        """
        state = self.any_state(mailbox)
        if state is None or state.removed:
            raise StoreError(Problem.NO_MAILBOX)
        if state.moving:
            raise StoreError(Problem.BUSY, "The mailbox is being moved, or made")
        if state.epoch != self.partition.epoch:
            self.partition.found_damage(mailbox)
            raise LaterEpoch(state.epoch, self.partition.epoch)
        return state

    def any_state(self, mailbox: MailboxId) -> MailboxState | None:
        """As `state`, also for a mailbox that has been deleted, or is on its way elsewhere; None when there is none."""
        data = self.partition.states.get_to_change(state_key(mailbox), self.handle)
        return None if data is None else MailboxState.from_bytes(data, self.partition.epoch)

    def set_state(self, mailbox: MailboxId, before: MailboxState | None, after: MailboxState) -> None:
        """Set the mailbox's figures."""
        self.partition.states.put(state_key(mailbox), after.to_bytes(), self.handle)
        if before is not None:
            self._before.setdefault(mailbox, before.highestmodseq)
            self._chunks.setdefault(mailbox, set())

    def make_writable(self, mailbox: MailboxId, listed: "MailboxList", new: MailboxState | None = None) -> None:
        """The mailbox's row in the list is on disk now: allow writing to it, unless it has been deleted since.

        Housekeeping may have found it unfinished, and removed it (`interrupted`). Then it comes back as it was, or as
        `new`, its state if it was just made.
        """
        state = self.any_state(mailbox) or new
        if state is None or state.moving not in (0, UNLISTED) or listed.find_id(mailbox) is None:
            return
        if state.removed:
            self.charge(state, state.octets, state.messages, enforce=False)
        if state.removed or state.moving:
            self.set_state(mailbox, None, evolve(state, removed=0, moving=0))

    def arrive(self, mailbox: MailboxId, octets: int, system: int, *, enforce: bool, delivery: bool) -> tuple[int, int]:
        """A message of that size, with these flags, arrives: returns its UID and MODSEQ. `append_arrival` must follow.

        Every recipient of every delivery costs this, so it works on the figures as they are stored. `delivery`: see
        `QuotaTable.charge`. Raises StoreError NO_MAILBOX, BUSY, CORRUPT, OVER_QUOTA, QUOTA_GRACE_ENDED.
        """
        partition, key = self.partition, state_key(mailbox)
        data = partition.states.get_to_change(key, self.handle)
        if data is None:
            raise StoreError(Problem.NO_MAILBOX)
        try:
            uid, modseq, root, after = arrived(data, partition.epoch, octets, system)
        except LaterEpoch:
            partition.found_damage(mailbox)
            raise
        if partition.domains.limited:
            self.charge_root(root, octets, 1, enforce=enforce, delivery=delivery)
        else:
            partition.quotas.charge(root, octets, 1, self.handle, enforce=enforce, delivery=delivery)
        partition.states.put(key, after, self.handle)
        self._arrived.append((mailbox, modseq - 1, (uid - 1) // CHUNK))
        self._figures, self._delivery = after, delivery
        return uid, modseq

    def append_arrival(self, mailbox: MailboxId, uid: int, record: bytes) -> None:
        """Add the record of what has just arrived (`arrive`), in its stored form."""
        key, chunks = chunk_key(mailbox, (uid - 1) // CHUNK), self.partition.index
        value = chunks.get_to_change(key, self.handle)
        if self.hears is not None and self.hears.arrivals:
            self._hear_of_arrival(mailbox, value, record)
        chunks.put(key, extend(value, record), self.handle)
        if mailbox in self.partition.views.history:
            self.steps.append((mailbox, Step(self._arrived[-1][1], self._figures, uid, record, True)))

    def flag(self, mailbox: MailboxId, uid: int, kept: int, come: int) -> tuple[int, Step | None] | None:
        """Change the system flags of one message: of those that it has the `kept` ones stay, and the `come` ones are
        added. Returns its MODSEQ afterwards, and the change, if there is one; None when it is gone.

        Every click of a user costs this, so it works on what is stored, as `arrive` does. Raises StoreError NO_MAILBOX,
        BUSY, CORRUPT.
        """
        partition, handle, key = self.partition, self.handle, state_key(mailbox)
        data = partition.states.get_to_change(key, handle)
        if data is None:
            raise StoreError(Problem.NO_MAILBOX)
        number = (uid - 1) // CHUNK
        place = chunk_key(mailbox, number)
        value = partition.index.get_to_change(place, handle)
        older = False
        if value is not None:
            if not is_whole(value):
                partition.whole(mailbox, [value])
            if older := len(value) % ROW.itemsize == OLDER:
                value = divided(decode(value))
        at = place_of(value, uid) if value is not None else None
        if value is None or at is None:
            must_be_here(data, partition.epoch)
            return None
        _, old, _, _, modseq = flags_at(value, at)
        flags = old & kept | come
        gone, come = old & ~flags, flags & ~old
        if not (gone or come):
            must_be_here(data, partition.epoch)
            return modseq, None
        try:
            modseq, after = flagged(data, partition.epoch, bool(gone & SEEN) - bool(come & SEEN),
                                    bool(come & DELETED) - bool(gone & DELETED))
        except LaterEpoch:
            partition.found_damage(mailbox)
            raise
        if self.hears is not None and self.hears.flags:
            self._hear_of_flags(mailbox, uid, come, gone, after)
        record, part = with_flags(value, at, flags, modseq)
        if older:
            partition.index.put(place, value[:at] + part + value[at + len(part):], handle)
        else:
            partition.index.put_part(place, at, part, handle)
        partition.states.put(key, after, handle)
        self._before.setdefault(mailbox, modseq - 1)
        self._chunks.setdefault(mailbox, set()).add(number)
        step = Step(modseq - 1, after, uid, record)
        self.steps.append((mailbox, step))
        return modseq, step

    def claim_recent(self, mailbox: MailboxId) -> tuple[int, int]:
        """See `Store.claim_recent`. For each client in IDLE every delivery costs this, so it works on what is stored.
        Raises StoreError NO_MAILBOX, BUSY."""
        partition, key = self.partition, state_key(mailbox)
        data = partition.states.get_to_change(key, self.handle)
        if data is None:
            raise StoreError(Problem.NO_MAILBOX)
        try:
            first, uidnext, after = claimed(data, partition.epoch)
        except LaterEpoch:
            partition.found_damage(mailbox)
            raise
        if first < uidnext:
            partition.states.put(key, after, self.handle)
        return first, uidnext

    def append(self, mailbox: MailboxId, rows: Rows) -> None:
        """Add records, whose UIDs are all new and ascending."""
        numbers = (rows["uid"] - 1) // CHUNK
        for number in range(int(numbers[0]), int(numbers[-1]) + 1):
            part = rows[numbers == number] if len(rows) > 1 else rows
            if len(part):
                self.append_octets(mailbox, number, part.tobytes())
                self._touch(mailbox, number)

    def append_octets(self, mailbox: MailboxId, number: int, rows: bytes) -> None:
        """Add records in their stored form to one chunk."""
        key = chunk_key(mailbox, number)
        chunks = self.partition.index
        value = chunks.get_to_change(key, self.handle)
        recording = self.recording
        if recording is not None and self.hears is not None and self.hears.arrivals:
            recording.note(mailbox, number, value)
        chunks.put(key, extend(value, rows), self.handle)

    def load(self, mailbox: MailboxId, uids: NDArray[np.uint32] | None = None, *, most: int | None = None) -> Rows:
        """The records of all chunks, or of those that could hold `uids` (ascending); the array may be changed.

        `most` is how many chunks are read, the first ones. Raises StoreError CORRUPT.
        """
        table = self.partition.index
        numbers = None if uids is None else distinct((uids - 1) // CHUNK)
        if numbers is not None and (len(numbers) < FEW or 2 * len(numbers) < int(numbers[-1]) - int(numbers[0])):
            found = []
            for number in numbers.tolist():
                key = chunk_key(mailbox, number)
                if (one := table.get_to_change(key, self.handle)) is not None:
                    found.append((key, one))
        else:
            start = chunk_key(mailbox, 0 if numbers is None else int(numbers[0]))
            end = chunk_key(MailboxId(mailbox + 1), 0) if numbers is None else chunk_key(mailbox, int(numbers[-1]) + 1)
            found = list(islice(table.scan_to_change(start, end, self.handle), most))
        if uids is not None:
            self._loaded.update(found)
        return self.partition.writable(mailbox, [value for _, value in found])

    def rewrite(self, mailbox: MailboxId, rows: Rows, changed: NDArray[np.bool_], kept: NDArray[np.bool_] | None = None
                ) -> None:
        """Write those chunks of what `load` gave in which records changed; with `kept`, only the records it names."""
        for number, begin, end, _, _ in self._touched(mailbox, rows, changed):
            some = rows[begin:end]
            self.put_chunk(mailbox, number, some if kept is None else take(some, kept[begin:end]))

    def rewrite_flags(self, mailbox: MailboxId, rows: Rows, changed: NDArray[np.bool_], uidnext: int) -> None:
        """Write only the records, of those that `load` has just given, whose flags, keywords or MODSEQs have changed.
        What is before the first one of a chunk, or behind the last one, is not logged, and of a divided chunk only
        heads are. A full chunk of which most records change is divided: no message arrives below UIDNEXT."""
        index, handle, size, loaded = self.partition.index, self.handle, rows.itemsize, self._loaded
        octets, heads = octets_of(rows), b""
        ends: list[int] = []
        balances: list[bytes] = []
        recording = self.recording if self.hears is not None and self.hears.flags else None
        for number, begin, end, first, last in self._touched(mailbox, rows, changed):
            key = chunk_key(mailbox, number)
            if recording is not None:
                recording.note(mailbox, number, index.get_to_change(key, handle))
            old = loaded[key]
            form = len(old) % size
            if form == DIVIDED:
                heads = heads or heads_of(rows)
                at, part = (first - begin) * HEAD, heads[first * HEAD:(last + 1) * HEAD]
            elif form == OLDER or (number + 1) * CHUNK < uidnext and 2 * (last + 1 - first) > end - begin:
                index.put(key, divided(rows[begin:end]), handle)
                continue
            else:
                at, part = (first - begin) * size, bytes(octets[first * size:(last + 1) * size])
            part = balanced(part, at, old)
            index.put_part(key, at, part, handle)
            ends.append(last)
            balances.append(part[-4:])
        rows["balance"][ends] = np.frombuffer(b"".join(balances), "<u4")        # who sees them sees what is stored

    def _touched(self, mailbox: MailboxId, rows: Rows, changed: NDArray[np.bool_]
                 ) -> Iterator[tuple[int, int, int, int, int]]:
        """The chunks in which records change; it also notes them. For each: its number; where it begins and ends among
        the records; the places of its first and its last record that change."""
        numbers = (rows["uid"] - 1) // CHUNK
        which = np.flatnonzero(changed)
        if len(which) == len(numbers) > 0:      # all: in half the time
            firsts = begins = np.flatnonzero(starts(numbers))
            touched, ends = numbers[begins], np.append(begins[1:], len(numbers))
            lasts = ends - 1
        else:
            some = numbers[which]
            touched = some[starts(some)]              # `distinct`, a call less
            begins, ends = np.searchsorted(numbers, touched, "left"), np.searchsorted(numbers, touched, "right")
            firsts, lasts = which[which.searchsorted(begins)], which[which.searchsorted(ends) - 1]
        chunks = touched.tolist()
        self._chunks.setdefault(mailbox, set()).update(chunks)
        return zip(chunks, begins.tolist(), ends.tolist(), firsts.tolist(), lasts.tolist(), strict=True)

    def hand_over(self, mailbox: MailboxId, state: MailboxState, rows: Rows) -> None:
        """Announce that this transaction writes all records of the mailbox, in that state, so that the next reader need
        not read them. Nobody changes the array any more."""
        self.handed[mailbox] = state, rows

    def put_chunk(self, mailbox: MailboxId, number: int, rows: Rows) -> None:
        """Set a chunk; an empty one is removed."""
        key = chunk_key(mailbox, number)
        if (recording := self.recording) is not None:
            recording.note(mailbox, number, self.partition.index.get_to_change(key, self.handle))
        if len(rows):
            self.partition.index.put(key, encode(rows), self.handle)
        else:
            self.partition.index.delete(key, self.handle)
        self._touch(mailbox, number)

    def put_own(self, mailbox: MailboxId, number: int, reader: str, own: NDArray[np.void]) -> None:
        """Set a reader's own flags of the UIDs of a chunk."""
        recording = self.recording
        if recording is not None and self.hears is not None and self.hears.flags:
            recording.note_own(mailbox, number, reader, self.partition.readers.chunk(
                mailbox, number, reader, self.handle), own)
        self.partition.readers.put_chunk(mailbox, number, reader, own, self.handle)
        self._touch(mailbox, number)

    def rows_of(self, mailbox: MailboxId, uids: NDArray[np.uint32]) -> Rows:
        """The records of `uids` (ascending) that are there."""
        rows = self.load(mailbox, uids)
        return take(rows, places(rows, uids))

    def charge(self, state: MailboxState, octets: int, messages: int, *, enforce: bool = True) -> None:
        """Add to what the mailbox's quota root uses. Raises StoreError OVER_QUOTA."""
        self.charge_root(state.quota_root, octets, messages, enforce=enforce)

    def charge_root(self, root: str, octets: int, messages: int, *, enforce: bool, delivery: bool = False) -> None:
        """Add to what a quota root uses, and its domain; see `QuotaTable.charge`.

        Raises StoreError OVER_QUOTA, QUOTA_GRACE_ENDED.
        """
        domains, domain = self.partition.domains, None
        if domains.limited and (domain := domains.of(root)) is not None and enforce and messages > 0:
            full = domains.full(domain, octets, messages, self.charged)
            if full is not None:
                self.partition.quotas.refuse(root, octets, messages, self.handle, delivery=delivery, domain=full)
        self.partition.quotas.charge(root, octets, messages, self.handle, enforce=enforce, delivery=delivery)
        if domain is not None:
            self.charged.append((domain, octets, messages))

    def changes(self) -> list[Change]:
        """What was changed, in the order of arrivals."""
        found, partition = [], self.partition.number
        for mailbox, before, number in self._arrived:
            found.append(Change(partition, mailbox, before, frozenset((number,))))
        for mailbox, before in self._before.items():
            chunks = self._chunks[mailbox]
            found.append(Change(partition, mailbox, before, frozenset(chunks) if len(chunks) <= MAX_NAMED else None))
        return found

    def _touch(self, mailbox: MailboxId, number: int) -> None:
        self._chunks.setdefault(mailbox, set()).add(number)


def set_own(txn: WriteTxn, mailbox: MailboxId, reader: str, rows: Rows, private: int, modseq: int) -> None:
    """Make the private flags of these new records the reader's own, and take them away for everybody else. Changes
    `rows`."""
    mine = (rows["flags"] & np.uint16(private)).astype(np.uint8)
    rows["flags"] &= np.uint16(~private & 0xFFFF)
    numbers = (rows["uid"] - 1) // CHUNK
    for number in np.unique(numbers[mine != 0]).tolist():
        own = txn.partition.readers.chunk(mailbox, number, reader, txn.handle)
        here = numbers == number
        at = (rows["uid"][here] - 1) % CHUNK
        own["flags"][at] = mine[here]
        own["modseq"][at] = modseq
        txn.put_own(mailbox, number, reader, own)


def places(rows: Rows, uids: NDArray[np.uint32]) -> NDArray[np.intp]:
    """Where `uids` (ascending) are in these records, those that are there."""
    if not len(uids):
        return np.empty(0, np.intp)
    there = np.ascontiguousarray(rows["uid"])
    if np.array_equal(there, uids):
        return np.arange(len(uids))
    at = np.minimum(np.searchsorted(uids, there), len(uids) - 1)
    return np.flatnonzero(uids[at] == there)
