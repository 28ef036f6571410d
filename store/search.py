"""SEARCH over one mailbox: RFC 3501 §6.4.4.

Keys that the index can answer are evaluated on whole arrays, and narrow what is left before any message is opened; of
the rest, headers are looked at before bodies.
"""

import logging
from collections.abc import Iterator
from datetime import date
from typing import TYPE_CHECKING

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from store.cache import CachedMessage
from store.errors import StoreError
from store.index import Rows
from store.mailbox import Mailbox
from store.matching import Message, matches
from store.searchkeys import (
    All,
    Among,
    And,
    Before,
    Body,
    HasFlag,
    Header,
    Key,
    Keyword,
    Larger,
    Mask,
    New,
    Not,
    Numbers,
    Old,
    On,
    Or,
    Ranges,
    Recent,
    SentBefore,
    SentOn,
    SentSince,
    Since,
    Smaller,
    Text,
    Uids,
)
from store.values import Flag

if TYPE_CHECKING:
    from store.store import Store

__all__ = [
    "All",
    "Among",
    "And",
    "Before",
    "Body",
    "HasFlag",
    "Header",
    "Key",
    "Keyword",
    "Larger",
    "New",
    "Not",
    "Numbers",
    "Old",
    "On",
    "Or",
    "Recent",
    "SentBefore",
    "SentOn",
    "SentSince",
    "Since",
    "Smaller",
    "Text",
    "Uids",
    "search",
]

log = logging.getLogger(__name__)

BATCH = 256                 # cache records that are fetched together
_EPOCH = date(1970, 1, 1).toordinal()
_DAY = 86400


def search(store: "Store", mailbox: Mailbox, key: Key, recent: tuple[int, int] = (0, 0)) -> Mask:
    """Which of `mailbox.rows` the key finds; `recent` is the first of the UIDs that are \\Recent and their end.

    For a thread: it may read every message. A message that cannot be read is not found, and logged.
    """
    tree = _prepare(key, _Index(mailbox, recent))
    found = _bound(tree, len(mailbox.rows))
    if isinstance(tree, Among):
        return found
    found = found.copy()
    for at, message in _messages(store, mailbox, np.flatnonzero(found)):
        found[at] = message is not None and _matches_safely(tree, int(at), message)
    return found


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
            case All():
                return np.ones(len(rows), np.bool_)
            case HasFlag(flag):
                return self._flag(flag)
            case Keyword(name):
                return self._keyword(name.lower())
            case Recent():
                return self._recent()
            case New():
                return self._recent() & ~self._flag(Flag.SEEN)
            case Old():
                return ~self._recent()
            case Before(day):
                return np.asarray(self._days() < day.toordinal() - _EPOCH)
            case On(day):
                return np.asarray(self._days() == day.toordinal() - _EPOCH)
            case Since(day):
                return np.asarray(self._days() >= day.toordinal() - _EPOCH)
            case Larger(octets):
                return np.asarray(rows["size"] > octets)
            case Smaller(octets):
                return np.asarray(rows["size"] < octets)
            case Numbers(ranges):
                return self._numbers(ranges)
            case Uids(ranges):
                return self._uids(ranges)
        return None

    def _flag(self, flag: Flag) -> Mask:
        return np.asarray(self.mailbox.rows["flags"] & int(flag) != 0)

    def _keyword(self, wanted: str) -> Mask:
        bits = sum(1 << bit for bit, name in enumerate(self.mailbox.state.keywords) if name.lower() == wanted)
        return np.asarray(self.mailbox.rows["keywords"] & np.uint64(bits) != 0)

    def _recent(self) -> Mask:
        uids = self.mailbox.rows["uid"]
        return np.asarray((uids >= self.recent[0]) & (uids < self.recent[1]))

    def _days(self) -> NDArray[np.int64]:
        """The internal dates as days since 1970, each in its own zone."""
        rows = self.mailbox.rows
        return np.asarray((rows["received"] + rows["zone"].astype(np.int64) * 60) // _DAY)

    def _numbers(self, ranges: Ranges) -> Mask:
        mask = np.zeros(len(self.mailbox.rows), np.bool_)
        for first, last in _resolved(ranges, len(mask)):
            mask[first - 1:last] = True
        return mask

    def _uids(self, ranges: Ranges) -> Mask:
        uids = self.mailbox.rows["uid"].astype(np.int64)
        mask = np.zeros(len(uids), np.bool_)
        for first, last in _resolved(ranges, int(uids[-1]) if len(uids) else 0):
            mask[np.searchsorted(uids, first):np.searchsorted(uids, last, side="right")] = True
        return mask


def _resolved(ranges: Ranges, largest: int) -> Iterator[tuple[int, int]]:
    """The ranges with `largest` for "*", the lower number first; nothing when nothing is there."""
    if largest:
        for pair in ranges:
            first, last = pair[0] or largest, pair[1] or largest
            yield min(first, last), max(first, last)


def _prepare(key: Key, index: _Index) -> Key:
    """The key with all that the index knows replaced by masks, cheap before dear, and texts folded for comparison."""
    match key:
        case And(keys):
            return _conjunction([_prepare(inner, index) for inner in keys], len(index.mailbox.rows))
        case Or(first, second):
            pair = sorted((_prepare(first, index), _prepare(second, index)), key=_cost)
            if isinstance(pair[0], Among) and isinstance(pair[1], Among):
                return Among(pair[0].mask | pair[1].mask)
            return Or(*pair)
        case Not(inner):
            inner = _prepare(inner, index)
            return Among(~inner.mask) if isinstance(inner, Among) else Not(inner)
        case Header(name, text):
            return Header(name.strip().lower(), text.casefold())
        case Body(text):
            return Body(text.casefold())
        case Text(text):
            return Text(text.casefold())
    mask = index.mask(key)
    return key if mask is None else Among(mask)


def _conjunction(keys: list[Key], count: int) -> Key:
    mask = np.ones(count, np.bool_)
    others = []
    for key in keys:
        if isinstance(key, Among):
            mask = mask & key.mask
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


def _messages(store: "Store", mailbox: Mailbox, places: NDArray[np.intp]) -> Iterator[tuple[int, Message | None]]:
    """The messages at these places; None for one that cannot be read."""
    for start in range(0, len(places), BATCH):
        batch = places[start:start + BATCH]
        for at, cached in zip(batch.tolist(), _cached(store, mailbox, mailbox.rows[batch]), strict=True):
            yield at, None if cached is None else Message(store, mailbox, at, cached)


def _cached(store: "Store", mailbox: Mailbox, rows: Rows) -> list[CachedMessage | None]:
    try:
        return list(store.cached(mailbox.entry, rows))
    except StoreError as error:
        if len(rows) == 1:
            log.warning("search in %s: %s", mailbox.entry.name, error)
            return [None]
    return [_cached(store, mailbox, rows[at:at + 1])[0] for at in range(len(rows))]


def _matches_safely(key: Key, at: int, message: Message) -> bool:
    """Whether the key finds the message; not when it cannot be read."""
    try:
        return matches(key, at, message)
    except StoreError as error:
        log.warning("search: %s", error)
        return False
    finally:
        message.close()
