"""Views of the mailboxes on a partition, as their readers see them, and how they are brought up to date."""

from bisect import bisect_left
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Protocol

import numpy as np

from mboxlist.engine.btree import Table, Txn
from mboxlist.engine.kv import Env
from mboxlist.engine.transact import Deadlock, transact
from mboxlist.entry import MailboxEntry, MailboxId
from store.changes import Change
from store.errors import NotAtOnce, StoreError
from store.partition.recordbuffers import LARGE, Copy, LastViews, Pieces, Records, Shelf, Step
from store.settings import Settings
from store.tables.index import (
    CHUNK,
    ROW,
    Rows,
    chunk_key,
    chunk_number,
    chunk_of_key,
    join,
    octets_in,
    octets_of,
    records_of,
    spans,
)
from store.tables.readerflags import ReaderFlags, overlay
from store.tables.state import Mailbox, MailboxState, Since, before_skip, is_here, is_unchanged, state_key

STEPS = 8                   # changes of single records of a mailbox that are remembered with the record
REMEMBERED = 32             # changes of one mailbox that a process remembers
MAILBOXES_REMEMBERED = 5000
LOCK_SECONDS = 0.001        # how long a reading `at_once` waits for locks
MANY = 10_000               # so many records are read in a thread,
AT_ONCE = 200               # unless no more chunks than these must be read


class Source(Protocol):
    """What views are read from: a partition."""

    env: Env
    index: Table
    states: Table
    readers: ReaderFlags
    settings: Settings
    epoch: int
    damaged: set[MailboxId]

    def state(self, mailbox: MailboxId, txn: Txn = None) -> MailboxState:
        """The figures of a mailbox. Raises StoreError NO_MAILBOX."""

    def glance_state(self, mailbox: MailboxId) -> MailboxState | None:
        """The figures as they are at this moment, committed or not; None if there are none."""

    def changed_elsewhere(self, mailbox: MailboxId) -> list[Change]:
        """What other processes have lately changed in a mailbox, as far as they show it, in no order."""

    def whole(self, mailbox: MailboxId, values: list[bytes]) -> list[bytes]:
        """Returns the values if none is damaged. Raises StoreError CORRUPT."""

    def found_damage(self, mailbox: MailboxId) -> None:
        """Note that something of the mailbox is not what was written."""


class MailboxViews:
    """Reads mailboxes. It remembers changes that this process makes to a mailbox that it has read (`remember`)."""

    def __init__(self, partition: Source) -> None:
        self._partition = partition
        self._shelf = Shelf()
        self._last = LastViews()
        self._steps: dict[int, tuple[Step, ...]] = {}       # the last changes of mailboxes that have a history, if of
                                                            # single records, one after another
        self.history: OrderedDict[int, deque[tuple[int, int, frozenset[int] | None]]] = OrderedDict()
        """The changes of the mailboxes that were read here, and of no others."""

    def remember(self, mailbox: MailboxId, before: int, chunks: frozenset[int] | None) -> None:
        """Note that a transaction changed these chunks (None: many) when the mailbox's HIGHESTMODSEQ was `before`."""
        history = self.history.get(mailbox)
        if history is not None:
            history.append((before, before + 1, chunks))

    def step(self, mailbox: MailboxId, change: Step) -> None:
        """Note all that a transaction has just changed: one record. The mailbox need not be read again for it."""
        if mailbox in self.history:
            before = self._steps.get(mailbox, ())
            follows = before and before[-1].before + 1 == change.before
            self._steps[mailbox] = (*before[1 - STEPS:], change) if follows else (change,)

    def hand(self, mailbox: MailboxId, state: MailboxState, rows: Rows) -> None:
        """Take all records of the mailbox in that state. A transaction has just written them, and does not use them any
        more."""
        if mailbox in self.history and len(rows) >= LARGE:
            self._shelf.put(mailbox, "", Copy(state, np.ascontiguousarray(rows["uid"]), octets_of(rows)))

    def is_quick(self, entry: MailboxEntry, reader: str, known: Records | None = None) -> bool:
        """Whether `read`, or `refresh` of a view with these records, has little to read from the database."""
        state = self._partition.glance_state(entry.id)
        if state is None:
            return False
        if max(state.messages, 0 if known is None else len(known.rows)) < MANY:
            return True
        seen = None if known is None and self._is_own(reader) else self._shelf.newest(entry.id, reader)
        if known is None or seen is not None and seen.state.highestmodseq > known.state.highestmodseq:
            known = seen
        if known is None:
            return False
        chunks = self._changed_since(entry.id, known.state, state)
        arrived = chunk_number(state.uidnext) - chunk_number(known.state.uidnext)
        return (chunks is not None and len(chunks) + arrived <= AT_ONCE
                or known.state.highestmodseq == state.highestmodseq)

    def forget(self) -> None:
        """Keep nothing in memory, so that the next view is read from the database."""
        self._shelf = Shelf()
        self._last = LastViews()
        self._steps.clear()

    def forget_changes(self, mailbox: MailboxId) -> None:
        """Forget the changes of a mailbox that has been deleted."""
        self.history.pop(mailbox, None)
        self._steps.pop(mailbox, None)
        self._last.forget(mailbox)

    def read(self, entry: MailboxEntry, reader: str = "", *, at_once: bool = False) -> Mailbox | None:
        """A view of the mailbox, with the reader's own flags; with `at_once` None if a thread should read it.

        Raises StoreError NO_MAILBOX, CORRUPT, NotAtOnce.
        """
        if not at_once and self._partition.env.at_once:
            mailbox = self.read(entry, reader, at_once=True)
            if mailbox is None:
                raise NotAtOnce
            return mailbox
        if not reader and (again := self._again(entry, self._partition.glance_state(entry.id))) is not None:
            return again
        if at_once and not self.is_quick(entry, reader):
            return None
        if entry.id not in self.history:           # whoever has opened a mailbox asks for its changes
            self.history[entry.id] = deque(maxlen=REMEMBERED)
            if len(self.history) > MAILBOXES_REMEMBERED:
                self._steps.pop(self.history.popitem(last=False)[0], None)
        if self._is_own(reader):            # another user may have that name now, which is no change
            self._shelf.forget(entry.id, reader)
        view = self._in_transaction(lambda txn: self._view(entry, reader, None, txn), at_once=at_once)
        if view is not None:
            self._last.put(view)
        return view

    def again(self, entry: MailboxEntry) -> Mailbox | None:
        """A view of a mailbox that is here, and has not changed since this process read it last. None for any other
        mailbox, and for one that has skipped ahead since it was stored (`uidskip`). It takes one look at the figures.
        """
        partition = self._partition
        data = partition.states.glance(state_key(entry.id))
        if data is None or not is_here(data) or before_skip(data, partition.epoch) is not None:
            return None
        return self._again(entry, MailboxState.from_bytes(data, partition.epoch))

    def _again(self, entry: MailboxEntry, state: MailboxState | None) -> Mailbox | None:
        """A view of a mailbox that has not changed since it was read last; `state` is what it is at this moment."""
        if state is None or entry.id in self._partition.damaged:
            return None
        known = self._last.of(entry.id) if state.messages < LARGE else self._shelf.newest(entry.id, "")
        if known is None:
            return None
        was = known.state
        if (state.highestmodseq, state.uidvalidity, state.uidnext, state.messages) != (
                was.highestmodseq, was.uidvalidity, was.uidnext, was.messages):
            return None
        return Mailbox(entry, state, known.rows, "", known.uids)

    def glance(self, mailbox: Mailbox) -> Mailbox | None:
        """The view as it is now, if the figures of this moment alone are enough to know it: nothing has changed, or
        this process has added single records or changed flags of some, or another session has read all. None otherwise,
        and when the mailbox is not here.
        """
        partition, old = self._partition, mailbox.state
        data = partition.states.glance(state_key(mailbox.entry.id))
        if data is None:
            return None
        if is_unchanged(data, partition.epoch, old.highestmodseq):
            return mailbox
        steps = self._steps.get(mailbox.entry.id)
        if (steps is None or steps[-1].figures != data or not 0 <= old.highestmodseq - steps[0].before < len(steps)
                or mailbox.reader and self._is_own(mailbox.reader)):
            return None if mailbox.reader else self._read_by_another(mailbox, data)
        return self._stepped(mailbox, steps)

    def stepped(self, mailbox: Mailbox, step: Step) -> Mailbox | None:
        """The view after that change of a record that is in it. A transaction of this process has just made the change,
        and returned it. None unless it follows on the view, and is the last one that is remembered."""
        steps = self._steps.get(mailbox.entry.id)
        if (steps is None or steps[-1] is not step or step.before != mailbox.state.highestmodseq or step.arrives
                or mailbox.reader):
            return None
        entry, figures = mailbox.entry, MailboxState.from_bytes(step.figures, self._partition.epoch)
        if len(mailbox.uids) >= LARGE:
            seen = self._shelf.stepped(entry.id, mailbox, steps, figures)
            return Mailbox(entry, figures, seen.rows, "", seen.uids)
        octets, at = bytearray(octets_of(mailbox.rows)), bisect_left(mailbox.uids.data, step.uid) * ROW.itemsize
        octets[at:at + ROW.itemsize] = step.record
        rows = np.frombuffer(octets, ROW)
        rows.flags.writeable = False
        view = Mailbox(entry, figures, rows, "", mailbox.uids)
        self._last.put(view)
        return view

    def handed(self, mailbox: Mailbox, before: MailboxState, after: MailboxState) -> Mailbox | None:
        """The view after a change of flags that has written all records, and that a transaction of this process has
        just made. None unless it follows on the view and names no new keywords, and if it is not at hand."""
        if before.highestmodseq != mailbox.state.highestmodseq or mailbox.reader or (
                after.keywords != mailbox.state.keywords):
            return None
        seen = self._shelf.newest(mailbox.entry.id, "")
        if seen is None or seen.state is not after:
            return None
        return Mailbox(mailbox.entry, after, seen.rows, "", seen.uids)

    def _read_by_another(self, mailbox: Mailbox, data: bytes) -> Mailbox | None:
        """The view of another session, if it has those figures: of many sessions that have a mailbox open, one reads
        it."""
        if len(mailbox.uids) < LARGE:
            last = self._last.of(mailbox.entry.id)
            if last is None or last.state.highestmodseq <= mailbox.state.highestmodseq:
                return None             # the same one
        state = MailboxState.from_bytes(data, self._partition.epoch)
        again = None if state.removed or state.moving else self._again(mailbox.entry, state)
        return None if again is None else self._since(again, mailbox.state)

    def _stepped(self, mailbox: Mailbox, steps: Sequence[Step]) -> Mailbox | None:
        """The view with those of these changes that it does not have yet; None when a record is not in it."""
        old, uids = mailbox.state, mailbox.uids
        new = steps[old.highestmodseq - steps[0].before:]
        figures = MailboxState.from_bytes(steps[-1].figures, self._partition.epoch)
        if len(new) == 1 and not new[0].arrives and len(uids) >= LARGE:         # as below, with less
            number, at = new[0].uid, bisect_left(uids, new[0].uid)
            if at == len(uids) or uids[at] != number:
                return None
            seen = self._shelf.stepped(mailbox.entry.id, mailbox, steps, figures)
            since = Since(old, frozenset(((number - 1) // CHUNK,)), (at,))
            return Mailbox(mailbox.entry, figures, seen.rows, mailbox.reader, seen.uids, since)
        where: list[int] = []           # the places of their records,
        places: set[int] = set()        # and of those that the view has: comprehensions would be calls
        chunks: set[int] = set()
        arrived: list[int] = []
        for step in new:
            at = bisect_left(uids, step.uid)
            if at < len(uids) and uids[at] == step.uid:
                places.add(at)
                chunks.add((step.uid - 1) // CHUNK)
            elif step.arrives and at == len(uids):
                at += len(arrived)
                arrived.append(step.uid)
            elif step.uid in arrived:
                at += arrived.index(step.uid)
            else:
                return None
            where.append(at)
        since = Since(old, frozenset(chunks), tuple(sorted(places)))
        if len(uids) + len(arrived) >= LARGE:
            seen = self._shelf.stepped(mailbox.entry.id, mailbox, steps, figures)
            return Mailbox(mailbox.entry, figures, seen.rows, mailbox.reader, seen.uids, since)
        octets, size = bytearray(octets_of(mailbox.rows)), ROW.itemsize
        for at, step in zip(where, new, strict=True):
            octets[at * size:(at + 1) * size] = step.record
        rows = np.frombuffer(octets, ROW)
        rows.flags.writeable = False
        if arrived:
            uids = np.concatenate((uids, np.array(arrived, np.uint32)))
        view = Mailbox(mailbox.entry, figures, rows, mailbox.reader, uids, since)
        self._last.put(view)
        return view

    def refresh(self, mailbox: Mailbox, *, at_once: bool = False) -> Mailbox | None:
        """A view of the mailbox as it is now; the same object when nothing has changed. With `at_once` None if a thread
        should read it."""
        entry, old = mailbox.entry, mailbox.state
        state = self._partition.glance_state(entry.id)
        if state is not None and state.highestmodseq == old.highestmodseq:
            return mailbox
        if not mailbox.reader and (again := self._again(entry, state)) is not None:
            return self._since(again, old)
        known = Records(old, mailbox.rows, mailbox.uids)
        large = len(mailbox.rows) >= MANY or state is not None and state.messages >= MANY
        if at_once and large and not self.is_quick(entry, mailbox.reader, known):
            return None

        def work(txn: Txn) -> Mailbox:
            return self._since(self._view(entry, mailbox.reader, known, txn), old)

        view = self._in_transaction(work, at_once=at_once)
        if view is not None:
            self._last.put(view)
        return view

    def _since(self, new: Mailbox, old: MailboxState) -> Mailbox:
        """The view with what has changed since that state, if this process knows it."""
        chunks = self._changed_since(new.entry.id, old, new.state)
        if chunks is None:
            return new
        since = Since(old, frozenset(chunks), () if new.state.changed <= old.highestmodseq else None)
        return Mailbox(new.entry, new.state, new.rows, new.reader, new.uids, since)

    def _in_transaction(self, work: Callable[[Txn], Mailbox], *, at_once: bool) -> Mailbox | None:
        """Read within a transaction. With `at_once` None when another transaction holds a lock on what is read: a
        mailbox's figures may be on one page with another user's mailbox, which stays locked while 262,144 of its
        messages are changed."""
        try:
            return transact(self._partition.env, work, seconds=LOCK_SECONDS if at_once else None, reads=True)
        except Deadlock:
            if not at_once:
                raise
            return None

    def _view(self, entry: MailboxEntry, reader: str, known: Records | None, txn: Txn) -> Mailbox:
        state = self._partition.state(entry.id, txn)        # while this row is locked the chunks stand still
        seen = self._shelf.newest(entry.id, reader)
        if seen is None or seen.state.highestmodseq != state.highestmodseq:
            seen = None         # else nobody could change it
            copy = self._up_to_date(entry.id, reader, state, known, txn)
            seen = self._shelf.put(entry.id, reader, copy) if state.messages >= LARGE else copy.seen()
        return Mailbox(entry, state, seen.rows, reader, seen.uids)

    def _up_to_date(self, mailbox: MailboxId, reader: str, state: MailboxState, known: Records | None, txn: Txn
                    ) -> Copy:
        """The records as they are now: in an array that nobody holds, or at whose end they arrived; else in a copy."""
        copy = self._shelf.take(mailbox, reader, lambda copy: (
            (copy.free or state.changed <= copy.state.highestmodseq)
            and self._changed_since(mailbox, copy.state, state) is not None))
        if copy is not None:
            seen = copy.seen()
            try:
                if copy.fill(state, seen, self._pieces(mailbox, reader, seen, state, txn) or ()):
                    return copy
            except BaseException:
                self._shelf.put(mailbox, reader, copy)
                raise
        newest = self._shelf.newest(mailbox, reader)
        if known is None or newest is not None and newest.state.highestmodseq > known.state.highestmodseq:
            known = newest
        pieces = self._pieces(mailbox, reader, known, state, txn) if known is not None else None
        values = self._chunks(mailbox, 0, txn) if known is None or pieces is None else []
        copy = self._shelf.take(mailbox, reader, lambda copy: copy.free) or Copy.with_room(state, state.messages)
        if known is None or pieces is None:
            return self._read_into(copy, mailbox, reader, state, values, txn)
        if not copy.fill(state, known, pieces):
            copy = Copy.with_room(state, len(known.rows) + sum(len(rows) for _, rows in pieces))
            copy.fill(state, known, pieces)
        return copy

    def _read_into(self, copy: Copy, mailbox: MailboxId, reader: str, state: MailboxState, values: Sequence[bytes],
                   txn: Txn) -> Copy:
        if not copy.load(state, values):
            copy = Copy.with_room(state, octets_in(values) // ROW.itemsize)
            copy.load(state, values)
        if self._is_own(reader):
            copy.show(self.as_seen(mailbox, copy.seen().rows, reader, txn))
        return copy

    def _is_own(self, reader: str) -> bool:
        return bool(reader and self._partition.settings.private_bits)

    def as_seen(self, mailbox: MailboxId, rows: Rows, reader: str, txn: Txn) -> Rows:
        """The records with the reader's own flags instead of the owner's."""
        if not self._is_own(reader) or not len(rows):
            return rows
        numbers: list[int] = np.unique((rows["uid"] - 1) // CHUNK).tolist()
        try:
            own = self._partition.readers.of(mailbox, reader, numbers, txn)
        except StoreError:
            self._partition.found_damage(mailbox)
            raise
        return overlay(rows, own, self._partition.settings.private_bits)

    def _changed_since(self, mailbox: int, since: MailboxState, until: MailboxState, *, learnt: bool = False
                       ) -> set[int] | None:
        """The chunks that changed by more than arrivals; None if nobody remembers."""
        numbers: set[int] = set()
        if until.changed <= since.highestmodseq:
            return numbers
        at = until.highestmodseq
        # Threads add to it, and what other processes changed may be heard of late.
        for before, after, chunks in sorted(self.history.get(mailbox, ()), key=itemgetter(0, 1), reverse=True):
            if before >= at:                # of a transaction that was committed since
                continue
            if after < at or chunks is None:
                break
            numbers |= chunks
            at = before
            if at <= since.highestmodseq:
                break
        # The difference of two views does not say what a view between them had: there may have been an arrival that is
        # gone again.
        if at == since.highestmodseq:
            return numbers
        return None if learnt or not self._learn(mailbox) else self._changed_since(mailbox, since, until, learnt=True)

    def _learn(self, mailbox: int) -> bool:
        """Remember what other processes show of the mailbox; whether any of it is new to this one."""
        history = self.history.get(mailbox)
        if history is None:
            return False
        new = [entry for change in self._partition.changed_elsewhere(MailboxId(mailbox))
               if (entry := (change.before, change.before + 1, change.chunks)) not in history]
        history.extend(sorted(new, key=itemgetter(0)))
        return bool(new)

    def _pieces(self, mailbox: MailboxId, reader: str, known: Records, state: MailboxState, txn: Txn) -> Pieces | None:
        """The chunks that differ from those of `known` now; None if the whole mailbox must be read."""
        numbers = self._changed_since(mailbox, known.state, state)
        table = self._partition.index
        if numbers is None:
            return None if self._is_own(reader) else self._compared(mailbox, known, state, txn)
        if state.changed <= known.state.highestmodseq:
            start, end = chunk_key(mailbox, chunk_number(known.state.uidnext)), chunk_key(MailboxId(mailbox + 1), 0)
            found = [(chunk_of_key(key)[1], value) for key, value in table.scan(start, end, txn)]
        else:
            found = [(number, table.get(chunk_key(mailbox, number), txn) or b"") for number in sorted(numbers)]
        return [(number, self._records_of(mailbox, reader, value, txn)) for number, value in found]

    def _records_of(self, mailbox: MailboxId, reader: str, value: bytes, txn: Txn) -> Rows:
        values = self._partition.whole(mailbox, [value] if value else [])
        return self.as_seen(mailbox, join(values), reader, txn)

    def _compared(self, mailbox: MailboxId, known: Records, state: MailboxState, txn: Txn) -> Pieces:
        """Those chunks, found by looking at every one, since another process has changed some. The result is
        remembered."""
        numbers = np.unique((known.uids - 1) // CHUNK).astype(np.int64)
        begins, ends = spans(known.uids, numbers)
        places = dict(zip(numbers.tolist(), zip(begins.tolist(), ends.tolist(), strict=True), strict=True))
        pieces: list[tuple[int, Rows]] = []
        start, end = chunk_key(mailbox, 0), chunk_key(MailboxId(mailbox + 1), 0)
        for key, value in self._partition.index.scan(start, end, txn):
            number = chunk_of_key(key)[1]
            at, to = places.pop(number, (0, 0))
            if records_of(value) != known.rows[at:to].tobytes():
                pieces.append((number, self._records_of(mailbox, "", value, txn)))
        pieces += [(number, join([])) for number in places]
        pieces.sort(key=itemgetter(0))
        history = self.history.get(mailbox)
        if history is not None:
            changed = frozenset(number for number, _ in pieces)
            history.append((known.state.highestmodseq, state.highestmodseq, changed))
        return pieces

    def _chunks(self, mailbox: MailboxId, first: int, txn: Txn) -> list[bytes]:
        start, end = chunk_key(mailbox, first), chunk_key(MailboxId(mailbox + 1), 0)
        return self._partition.whole(mailbox, [value for _, value in self._partition.index.scan(start, end, txn)])
