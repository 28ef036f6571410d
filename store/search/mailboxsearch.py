"""SEARCH over one mailbox: RFC 3501 §6.4.4.

Keys that the index can answer are evaluated on whole arrays, and narrow what is left; of that, what the columns know
(`columns`: the envelope) narrows again before any message is opened. Of the rest, headers come before bodies.
"""

from collections.abc import Callable, Iterable
from datetime import date

import numpy as np
from attrs import define, evolve, frozen
from numpy.typing import NDArray

from store.message.collation import casemap
from store.progress import Progress
from store.readable import Readable
from store.search import searchkeys
from store.search.columns import NO_DATE, columns_of
from store.search.matching import find
from store.search.projection import Column
from store.search.searchkeys import (
    Among,
    And,
    Body,
    Envelope,
    Header,
    Key,
    Mask,
    Not,
    Numbers,
    Or,
    Ranges,
    Sent,
    Text,
    Uids,
)
from store.tables.index import take
from store.tables.state import Mailbox

_EPOCH = date(1970, 1, 1).toordinal()
_DAY = 86400
LARGE = 10_000              # messages of a mailbox in which only those are looked at that a key names by their numbers


def places(store: Readable, mailbox: Mailbox, key: Key, recent: tuple[int, int] = (0, 0),
           progress: Progress | None = None) -> NDArray[np.intp]:
    """Where in `mailbox.rows` those are that `search` finds. In a large mailbox only the part is looked at in which a
    key names messages by numbers or UIDs."""
    if len(mailbox.rows) >= LARGE and isinstance(key, And) and (named := _named(mailbox, key.keys)) is not None:
        part = evolve(mailbox, rows=mailbox.rows[named], uids=mailbox.uids[named])
        return np.asarray(places(store, part, _within(mailbox, key, named), recent, progress) + named.start)
    return search(store, mailbox, key, recent, progress).nonzero()[0]


def search(store: Readable, mailbox: Mailbox, key: Key, recent: tuple[int, int] = (0, 0),
           progress: Progress | None = None) -> Mask:
    """Which of `mailbox.rows` the key finds; `recent` is the first of the UIDs that are \\Recent and their end.

    For a thread: it may read every message. A message that cannot be read is not found, and logged.
    Raises Abandoned.
    """
    tree = _prepare(key, _Index(mailbox, recent))
    if isinstance(tree, Among):
        return tree.mask
    progress = progress or Progress()
    tree, found = _by_columns(store, mailbox, tree, _bound(tree, len(mailbox.rows)), progress)
    if isinstance(tree, Among):
        return found & tree.mask
    left = np.flatnonzero(found)
    if searchkeys.asks(tree, Body, Text) and not searchkeys.asks(tree, Header):     # a header may spare some bodies
        columns_of(store).read(store, mailbox, take(mailbox.rows, left), ("body",), Progress(progress.unwanted))
    found = np.zeros(len(found), np.bool_)
    found[left] = find(store, mailbox, tree, left, progress)
    return found


def _named(mailbox: Mailbox, keys: Iterable[Key]) -> slice | None:
    """The part of the mailbox that all messages are in which one of these keys names by numbers or UIDs; None if they
    name none, or many."""
    count = len(mailbox.rows)
    for key in keys:
        if isinstance(key, Numbers | Uids):
            starts, ends = _spans(mailbox, key)
            there = starts < ends
            first, end = starts.min(initial=count, where=there), ends.max(initial=0, where=there)
            if end - first <= count // 2:
                return slice(int(min(first, end)), int(end))
    return None


def _within(mailbox: Mailbox, key: Key, part: slice) -> Key:
    """The key for that part of the mailbox alone, in which numbers would be others."""
    def of(leaf: Key) -> Key:
        if isinstance(leaf, Among):
            return Among(leaf.mask[part])
        if not isinstance(leaf, Numbers | Uids):
            return leaf
        count = part.stop - part.start
        starts, ends = (np.clip(each - part.start, 0, count) for each in _spans(mailbox, leaf))
        return Among(_covered(starts, ends, count))
    return searchkeys.mapped(key, of)


@frozen
class _Index:
    """Evaluates keys that need no message."""

    mailbox: Mailbox
    recent: tuple[int, int]

    def mask(self, key: Key) -> Mask | None:
        """The messages that the key finds; None where the index does not know."""
        rows = self.mailbox.rows
        match key:
            case Among(mask):
                return mask
            case searchkeys.All():
                return np.ones(len(rows), np.bool_)
            case searchkeys.HasFlag(flag):
                return np.asarray(rows["flags"] & int(flag) != 0)
            case searchkeys.Keyword(name):
                return self._keyword(name.lower())
            case searchkeys.Recent():
                return np.asarray((rows["uid"] >= self.recent[0]) & (rows["uid"] < self.recent[1]))
            case searchkeys.Received(relation, day):
                return np.asarray(relation(self._days(), _since_epoch(day)))
            case searchkeys.ReceivedAt(relation, time):
                return np.asarray(relation(rows["received"], time))
            case searchkeys.Size(relation, octets):
                return np.asarray(relation(rows["size"], octets))
            case searchkeys.ModSeq(least):
                return np.asarray(self.mailbox.modseqs(rows) >= least)
            case Numbers() | Uids():
                return _covered(*_spans(self.mailbox, key), len(rows))
        return None

    def left(self, key: Key) -> Key:
        """What is to be asked elsewhere for a key of which the index knows nothing."""
        return _folded(key)

    def _keyword(self, wanted: str) -> Mask:
        bits = sum(1 << bit for bit, name in enumerate(self.mailbox.state.keywords) if name.lower() == wanted)
        return np.asarray(self.mailbox.rows["keywords"] & np.uint64(bits) != 0)

    def _days(self) -> NDArray[np.int64]:
        """The internal dates as days since 1970, each in its own zone."""
        rows = self.mailbox.rows
        return np.asarray((rows["received"] + rows["zone"].astype(np.int64) * 60) // _DAY)


def _spans(mailbox: Mailbox, key: Numbers | Uids) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Where the ranges of a key begin and end in the mailbox, each end behind its last message."""
    uids, count = mailbox.uids, len(mailbox.rows)
    if isinstance(key, Numbers):
        bounds = np.minimum(_resolved(key.ranges, count), count + 1)
        return bounds[:, 0] - 1, np.minimum(bounds[:, 1], count)
    bounds = _resolved(key.ranges, int(uids[-1]) if len(uids) else 0).astype(uids.dtype)    # or all `uids` would change
    return np.searchsorted(uids, bounds[:, 0]), np.searchsorted(uids, bounds[:, 1], side="right")


def _resolved(ranges: Ranges, largest: int) -> NDArray[np.int64]:
    """The ranges with `largest` for "*", the lower number first."""
    bounds = np.array(ranges, np.int64).reshape(-1, 2)
    bounds[bounds == 0] = largest
    bounds.sort(axis=1)
    return bounds


def _covered(starts: NDArray[np.intp], ends: NDArray[np.intp], count: int) -> Mask:
    """Which of so many places are in one of these spans."""
    if len(starts) == 1:
        mask = np.zeros(count, np.bool_)
        mask[starts[0]:ends[0]] = True
        return mask
    begin, end = np.bincount(starts, minlength=count + 1), np.bincount(ends, minlength=count + 1)
    return np.asarray(np.cumsum(begin[:count] - end[:count]) > 0)


@define
class _Envelopes:
    """Evaluates keys that the columns know, for the messages at these places; others are not found."""

    store: Readable
    mailbox: Mailbox
    at: NDArray[np.intp]
    readable: Mask

    def mask(self, key: Key) -> Mask | None:
        """The messages that the key finds; None where the columns do not know."""
        columns = columns_of(self.store)
        match key:
            case Envelope(name, text):
                field = columns.subjects(self.mailbox) if name == "subject" else columns.people(self.mailbox, name)
                return self._among(field, lambda: field.text.having(text.encode("utf-8", "replace")))
            case Sent(relation, day):
                dates = columns.dates(self.mailbox)
                return self._among(dates, lambda: relation(dates.day, _since_epoch(day)) & (dates.day != NO_DATE))
        return None

    def left(self, key: Key) -> Key:
        """What messages are to be opened for."""
        return key

    def _among(self, column: Column, known: Callable[[], Mask]) -> Mask:
        """`known` says of each place of the column whether it is found, once the messages are in it."""
        places = column.places(self.store, self.mailbox.entry, take(self.mailbox.rows, self.at))
        self.readable[self.at[places == 0]] = False
        mask = np.zeros(len(self.mailbox.rows), np.bool_)
        mask[self.at] = known()[places]
        return mask


def _by_columns(store: Readable, mailbox: Mailbox, tree: Key, found: Mask, progress: Progress) -> tuple[Key, Mask]:
    """What is left of a prepared key when the columns have been asked, and what it can still find."""
    everything, at = np.ones(len(found), np.bool_), np.flatnonzero(found)
    names = filter(None, map(_column_of, searchkeys.leaves(tree)))
    columns_of(store).read(store, mailbox, take(mailbox.rows, at), names, progress)
    tree = _prepare(tree, _Envelopes(store, mailbox, at, everything))
    return tree, found & everything & _bound(tree, len(found))


def _since_epoch(day: date) -> int:
    return day.toordinal() - _EPOCH


def _folded(key: Key) -> Key:
    """A key with its text folded for comparison (RFC 5255 §4.2) and the name of a field in lower case.

    An empty text is in every field that is there. An envelope does not tell an empty field of addresses from none: of
    messages without addresses the header is looked at.
    """
    match key:
        case Envelope(name, ""):
            return Or(Envelope(name.lower(), ""), Header(name.lower(), ""))
        case Envelope(name, text):
            return Envelope(name.lower(), casemap(text))
        case Header(name, text):
            return Header(name.strip().lower(), casemap(text))
        case Body(text):
            return Body(casemap(text))
        case Text(text):
            return Text(casemap(text))
    return key


def _prepare(key: Key, index: _Index | _Envelopes) -> Key:
    """The key with all that the index, or the columns, know replaced by masks; cheap before dear."""
    match key:
        case And(keys):
            return _conjunction((_prepare(inner, index) for inner in keys), len(index.mailbox.rows))
        case Or(first, second):
            pair = sorted((_prepare(first, index), _prepare(second, index)), key=_cost)
            if isinstance(pair[0], Among) and isinstance(pair[1], Among):
                return Among(pair[0].mask | pair[1].mask)
            return Or(*pair)
        case Not(inner):
            inner = _prepare(inner, index)
            return Among(~inner.mask) if isinstance(inner, Among) else Not(inner)
        case Among():
            return key
    mask = index.mask(key)
    return index.left(key) if mask is None else Among(mask)


def _conjunction(keys: Iterable[Key], count: int) -> Key:
    """One mask for all that have one, which are made and let go of one after the other."""
    mask = np.ones(count, np.bool_)
    others = []
    for key in keys:
        if isinstance(key, Among):
            mask &= key.mask
        else:
            others.append(key)
    if not others:
        return Among(mask)
    return And((Among(mask), *sorted(others, key=_cost)))


def _cost(key: Key) -> int:
    match key:
        case Among():
            return 0
        case Body() | Text():
            return 2
        case And(keys):
            return max(map(_cost, keys))
        case Or(first, second):
            return max(_cost(first), _cost(second))
        case Not(inner):
            return _cost(inner)
    return 1


def _bound(key: Key, count: int) -> Mask:
    """The messages that a prepared key can find; no other need be looked at."""
    match key:
        case Among(mask):
            return mask
        case And(keys):
            mask = np.ones(count, np.bool_)
            for inner in keys:
                mask = mask & _bound(inner, count)
            return mask
        case Or(first, second):
            return _bound(first, count) | _bound(second, count)
    return np.ones(count, np.bool_)


def _column_of(key: Key) -> str | None:
    """The column that knows of it."""
    if isinstance(key, Envelope):
        return key.name
    return "date" if isinstance(key, Sent) else None
