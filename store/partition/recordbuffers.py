"""The records of large mailboxes, as this process holds them: few arrays, for any number of views and sessions.

What a view shows never changes while anybody holds a part of it. For the next view, an array that nobody holds is
brought up to date where it differs. So the cost of a change does not depend on the size of the mailbox.
"""

import threading
import weakref
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Sequence

import numpy as np
from attrs import define, field
from numpy.typing import NDArray

from store.tables.index import ROW, Rows, lay_out, octets_in, spans
from store.tables.state import Mailbox, MailboxState

LARGE = 1000                # a mailbox with so many records has arrays here; fewer are copied quickly
FREE = 64 << 20             # octets, about, of arrays that nobody holds
LAST = 50_000               # records of views of small mailboxes that are kept, 5 MB
EACH = 3                    # arrays of a mailbox, as this reader sees it, that are remembered
ROOM = 64                   # one record in so many, and as many records again, is room for arrivals

Pieces = Sequence[tuple[int, Rows]]     # numbers of chunks, ascending, and what is in them
_ONE = np.dtype((np.void, ROW.itemsize))


@define(eq=False)       # `frozen` would set each of the attributes by a call, for each click of a user
class Records:
    """The records of a mailbox, as they were when it had these figures. Whoever has this object holds them. Nobody
    changes one."""

    state: MailboxState
    rows: Rows
    uids: NDArray[np.uint32]


@define(eq=False)       # as `Records`
class Step:
    """One change of a mailbox: of one record's system flags, or a record that `arrives`. It has HIGHESTMODSEQ before
    the change (afterwards it is one more), and the figures after it and the record, both in their stored form. Nobody
    changes one."""

    before: int
    figures: bytes
    uid: int
    record: bytes
    arrives: bool = False


@define(eq=False)
class Copy:
    """The records of a mailbox at one MODSEQ, in memory that has room for more.

    Everything that is shown of it is a part of one array. When that array is gone, nobody holds it, and the memory may
    be changed.
    """

    state: MailboxState
    uids: NDArray[np.uint32]
    memory: memoryview = field(repr=False)
    _array: "weakref.ref[Rows]" = field(init=False, repr=False)
    _numbers: NDArray[np.uint32] | None = field(init=False, default=None, repr=False)
    """What `uids` is the first part of, if all behind it is room that nobody has seen."""

    def __attrs_post_init__(self) -> None:
        self._array = weakref.ref(np.empty(0, ROW))

    @classmethod
    def with_room(cls, state: MailboxState, count: int) -> "Copy":
        """An empty copy with room for that many records, and for some more if they are many."""
        room = count + (count // ROOM + ROOM if count >= LARGE else 0)
        return cls(state, np.empty(0, np.uint32), np.empty(room * ROW.itemsize, np.uint8).data)

    @property
    def free(self) -> bool:
        """Whether nobody holds a part of it."""
        return self._array() is None

    def seen(self) -> Records:
        """What is in it."""
        array = self._array()
        if array is None:
            array = np.frombuffer(self.memory.toreadonly(), ROW)
            self._array = weakref.ref(array)
        rows: Rows = array[:len(self.uids)]
        return Records(self.state, rows, self.uids)

    def fill(self, state: MailboxState, source: Records | Mailbox, pieces: Pieces) -> bool:
        """Set the records to `source`, with the records of some chunks replaced. `source` may be this copy's own array.

        False when there is no room; then nothing has changed.
        """
        uids = source.uids
        begins, ends = spans(uids, np.array([number for number, _ in pieces], np.int64))
        target, octets = np.frombuffer(self.memory, _ONE), source.rows.view(_ONE)
        own = bool(len(octets)) and np.may_share_memory(octets, target)
        sizes = np.array([len(new) for _, new in pieces], np.int64)
        if len(octets) + int((sizes - (ends - begins)).sum()) > len(target):
            return False
        if own and ((sizes > ends - begins) & (ends < len(octets))).any():
            return False                # what follows would be overwritten before it is moved
        at = done = 0
        kept = True                     # nobody's UID has changed; there may be more
        parts: list[NDArray[np.uint32]] = []
        for (_, new), begin, end in zip(pieces, begins.tolist(), ends.tolist(), strict=True):
            if not own or at != done:
                target[at:at + begin - done] = octets[done:begin]
            at += begin - done
            target[at:at + len(new)] = new.view(_ONE)
            at += len(new)
            parts += [uids[done:begin], new["uid"]]
            kept = kept and (len(new) == end - begin or end == len(uids)) and np.array_equal(
                new["uid"][:end - begin], uids[begin:end])
            done = end
        if not own or at != done:
            target[at:at + len(octets) - done] = octets[done:]
        if kept and at == len(uids):
            self._numbers = self._numbers if uids is self.uids else None
            self.uids = uids
        elif kept and at >= LARGE:
            self._extend(uids, target[len(uids):at].view(ROW)["uid"])
        else:
            self._numbers, self.uids = None, np.concatenate([*parts, uids[done:]])
        self.state = state
        return True

    def _extend(self, uids: NDArray[np.uint32], arrived: NDArray[np.uint32]) -> None:
        """Set `uids` to these UIDs and the `arrived` ones behind them; they are copied only when there is no room."""
        count = len(uids) + len(arrived)
        if self._numbers is None or uids is not self.uids or count > len(self._numbers):
            self._numbers = np.empty(count + count // ROOM + ROOM, np.uint32)
            self._numbers[:len(uids)] = uids
        self._numbers[len(uids):count] = arrived
        self.uids = self._numbers[:count]

    def catch_up(self, steps: Sequence[Step], figures: MailboxState) -> bool:
        """Apply these changes of single records, after which the mailbox has those figures. False when there is no
        room; then nothing has changed."""
        size, arrived = ROW.itemsize, []
        for step in steps:
            if step.arrives:
                arrived.append(step.uid)
        if arrived:
            if (len(self.uids) + len(arrived)) * size > self.memory.nbytes:
                return False
            self._extend(self.uids, np.array(arrived, np.uint32))
        for step in steps:
            at = bisect_left(self.uids.data, step.uid) * size       # in half the time of `searchsorted`
            self.memory[at:at + size] = step.record
        self.state = figures
        return True

    def load(self, state: MailboxState, values: Sequence[bytes]) -> bool:
        """Set the records to those of these chunks, in their stored form. False when there is no room."""
        octets = octets_in(values)
        if octets > self.memory.nbytes:
            return False
        lay_out(values, self.memory)
        self._numbers, self.uids = None, np.frombuffer(self.memory[:octets], ROW)["uid"].copy()
        self.state = state
        return True

    def show(self, rows: Rows) -> None:
        """Set the records to these, which have the same UIDs."""
        np.frombuffer(self.memory, _ONE)[:len(rows)] = rows.view(_ONE)


def is_longer(uids: NDArray[np.uint32], before: NDArray[np.uint32]) -> bool:
    """Whether one array is the other one with more records at its end. This is told by their addresses: both must be
    the beginning of an array that only grows."""
    return (uids.base is before.base is not None and len(uids) >= len(before)
            and uids.__array_interface__["data"] == before.__array_interface__["data"])


class LastViews:
    """The last view of each small mailbox, for those that were asked for last, so that selecting one again reads
    nothing. Records that several views share are counted for each."""

    def __init__(self) -> None:
        self._views: OrderedDict[int, Mailbox] = OrderedDict()
        self._lock = threading.Lock()
        self._room = LAST
        self.of: Callable[[int], Mailbox | None] = self._views.get
        """That of a mailbox."""

    def put(self, view: Mailbox) -> None:
        """Keep the view, unless its mailbox is large, or it belongs to one reader alone."""
        if view.reader or len(view.rows) >= LARGE:
            return
        with self._lock:
            self._drop(self._views.pop(view.entry.id, None))
            self._views[view.entry.id] = view
            self._room -= len(view.rows) + 1
            while self._room < 0:
                self._drop(self._views.popitem(last=False)[1])

    def forget(self, mailbox: int) -> None:
        """Forget the view: nobody asks for it any more."""
        with self._lock:
            self._drop(self._views.pop(mailbox, None))

    def _drop(self, view: Mailbox | None) -> None:
        if view is not None:
            self._room += len(view.rows) + 1


class Shelf:
    """The copies of all mailboxes of a partition, by mailbox and reader. Those used last are at the end."""

    def __init__(self) -> None:
        self._copies: OrderedDict[tuple[int, str], list[Copy]] = OrderedDict()
        self._lock = threading.Lock()
        self._octets = 0
        self._look_at = FREE

    def newest(self, mailbox: int, reader: str) -> Records | None:
        """What is in the newest copy."""
        with self._lock:
            copies = self._copies.get((mailbox, reader))
            return copies[-1].seen() if copies else None

    def take(self, mailbox: int, reader: str, suits: Callable[[Copy], bool]) -> Copy | None:
        """The newest copy that suits. It belongs to the caller alone until `put` gives it back."""
        with self._lock:
            copies = self._copies.get((mailbox, reader), [])
            for copy in reversed(copies):
                if suits(copy):
                    copies.remove(copy)
                    self._octets -= copy.memory.nbytes
                    return copy
        return None

    def put(self, mailbox: int, reader: str, copy: Copy) -> Records:
        """Keep a copy as long as there is room; older ones that nobody holds are dropped first. Returns what is in it.
        """
        with self._lock:
            seen = copy.seen()
            copies = self._copies.setdefault((mailbox, reader), [])
            self._copies.move_to_end((mailbox, reader))
            at, modseq = len(copies), copy.state.highestmodseq
            while at and copies[at - 1].state.highestmodseq > modseq:
                at -= 1
            copies.insert(at, copy)
            self._octets += copy.memory.nbytes
            if len(copies) > EACH:
                self._octets -= copies.pop(0).memory.nbytes
            if self._octets > self._look_at:
                self._drop()
            return seen

    def stepped(self, mailbox: int, known: Records | Mailbox, steps: Sequence[Step], figures: MailboxState) -> Records:
        """The records after these changes of single records, which are the last ones, in order; `known` has only some
        of them, or none. If there is a copy as new as the first of them, they are in an array that nobody holds, or at
        whose end they arrived. Then the cost does not depend on the size of the mailbox."""
        first = steps[0].before
        with self._lock:
            key = mailbox, ""
            copies = self._copies.get(key, [])
            for at in range(len(copies) - 1, -1, -1):
                copy = copies[at]
                then = copy.state.highestmodseq
                if then == figures.highestmodseq:
                    return copy.seen()
                if (first <= then < figures.highestmodseq and (copy._array() is None or figures.changed <= then)
                        and copy.catch_up(steps[then - first:], figures)):
                    while at + 1 < len(copies) and copies[at + 1].state.highestmodseq <= figures.highestmodseq:
                        copies[at], copies[at + 1] = copies[at + 1], copy
                        at += 1
                    self._copies.move_to_end(key)
                    return copy.seen()
        copy = Copy.with_room(known.state, max(figures.messages, len(known.rows)))
        copy.fill(known.state, known, ())
        copy.catch_up(steps[known.state.highestmodseq - first:], figures)
        return self.put(mailbox, "", copy)

    def forget(self, mailbox: int, reader: str) -> None:
        """Drop the copies of this mailbox."""
        with self._lock:
            self._octets -= sum(copy.memory.nbytes for copy in self._copies.pop((mailbox, reader), ()))

    def _drop(self) -> None:
        free = sum(copy.memory.nbytes for copies in self._copies.values() for copy in copies if copy.free)
        for key, copies in tuple(self._copies.items()):
            for copy in [copy for copy in copies if copy.free]:
                if free > FREE // 2:
                    free -= copy.memory.nbytes
                    self._octets -= copy.memory.nbytes
                    copies.remove(copy)
            if not copies:
                del self._copies[key]
        self._look_at = self._octets - free + FREE
