"""One field of all messages of a mailbox, side by side, made from cache records as far as messages are asked for.

It only grows, and what is new costs reading its records and no others. Messages go by the first octets of their
digests: they say what the content is wherever the message is.
"""

import logging
import threading
from collections.abc import Sequence
from functools import cached_property
from itertools import takewhile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mboxlist.entry import MailboxEntry
from store.errors import StoreError
from store.message import envelopes
from store.message.cacherecord import CachedMessage
from store.progress import Progress
from store.readable import Readable
from store.tables.index import ROW, Rows, take

log = logging.getLogger(__name__)

BATCH = 256                 # cache records that are read together

Numbers = NDArray[np.int64]
Places = NDArray[np.intp]

_BEFORE = sum(ROW[name].itemsize for name in takewhile(lambda name: name != "digest", ROW.names or ()))
_DIGEST = np.dtype([("before", f"V{_BEFORE}"), ("digest", "<u8"), ("after", f"V{ROW.itemsize - _BEFORE - 8}")])


class Batch:
    """Cache records that some columns are made of; what several of them need is looked for once."""

    def __init__(self, records: Sequence[CachedMessage]) -> None:
        self.records = records

    @cached_property
    def fields(self) -> list[envelopes.Fields]:
        """The fields of all envelopes."""
        return [envelopes.split(record.envelope) for record in self.records]

    @cached_property
    def ends(self) -> list[tuple[bytes, bytes, bytes, bytes]]:
        """See `envelopes.ends`."""
        return [envelopes.ends(record.envelope) for record in self.records]

    def among(self, which: Sequence[int]) -> "Batch":
        """Some of the records."""
        return self if len(which) == len(self.records) else Batch([self.records[at] for at in which])


class Column:
    """One field of the messages of a mailbox. Message n is at place n; 0 stands for those that cannot be read."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._new: list[Any] = []
        self._digests: NDArray[np.uint64] = np.zeros(0, np.uint64)     # ascending
        self._order: Places = np.zeros(0, np.intp)          # the places of those
        self._asked: NDArray[np.uint64] = self._digests     # what was asked for last, and the answer
        self._answer: Places = np.zeros(0, np.intp)

    def __len__(self) -> int:
        return len(self._digests)

    def places(self, store: Readable, entry: MailboxEntry, rows: Rows) -> Places:
        """Where these messages are in the column, into which those that are new are read."""
        asked = digests(rows)
        with self.lock:
            if len(asked) == len(self._asked) and np.array_equal(asked, self._asked):
                return self._answer
            places = self.find(asked)
            if not places.all():
                read(store, entry, rows, [self], Progress())
                places = self.find(asked)
            if places.all():
                self._asked, self._answer = asked, places
            return places

    def knows(self, asked: NDArray[np.uint64]) -> bool:
        """Whether nothing is missing; for one who holds the lock."""
        same = len(asked) == len(self._asked) and np.array_equal(asked, self._asked)
        return same or bool(self.find(asked).all())

    def find(self, asked: NDArray[np.uint64]) -> Places:
        """The places as far as they are known; for one who holds the lock."""
        if not len(self._digests):
            return np.zeros(len(asked), np.intp)
        at = np.searchsorted(self._digests, asked)
        at[at == len(self._digests)] = 0
        return np.where(self._digests[at] == asked, self._order[at], 0)

    def add(self, new: NDArray[np.uint64]) -> None:
        """The messages of which all records have been taken since the last time; for one who holds the lock."""
        values, self._new = self._new, []
        self.extend(values)
        places = np.arange(len(self._digests) + 1, len(self._digests) + 1 + len(new))
        order = np.argsort(new)
        at = np.searchsorted(self._digests, new[order])
        self._digests = np.insert(self._digests, at, new[order])
        self._order = np.insert(self._order, at, places[order])

    def take(self, batch: Batch) -> None:
        """Keep what these records say, in `_new`."""
        raise NotImplementedError

    def extend(self, new: list[Any]) -> None:
        """Add what was kept of the records of one reading, all of which have been taken."""
        raise NotImplementedError


def digests(rows: Rows) -> NDArray[np.uint64]:
    """By what messages are known in columns."""
    return np.ascontiguousarray(rows.view(_DIGEST)["digest"])


def read(store: Readable, entry: MailboxEntry, rows: Rows, columns: Sequence[Column], progress: Progress) -> None:
    """Read what is missing in these columns, whose locks the caller holds: each record once. Raises Abandoned."""
    asked = digests(rows)
    columns = [column for column in columns if not column.knows(asked)]
    missing = np.zeros((len(columns), len(rows)), np.bool_)
    for column, lacks in zip(columns, missing, strict=True):
        first = np.unique(asked, return_index=True)[1]
        lacks[first[column.find(asked[first]) == 0]] = True
    wanted = np.flatnonzero(missing.any(axis=0))            # in the order in which the records are on disk
    if not len(wanted):
        return
    known: list[list[int]] = [[] for _ in columns]
    progress.begin(len(wanted))
    try:
        for start in range(0, len(wanted), BATCH):
            places = wanted[start:start + BATCH]
            records = readable(store, entry, take(rows, places))
            there = [at for at, record in enumerate(records) if record is not None]
            batch = Batch([record for record in records if record is not None])
            for column, lacks, known_places in zip(columns, missing, known, strict=True):
                which = np.flatnonzero(lacks[places[there]])
                column.take(batch.among(which.tolist()))
                known_places += places[there][which].tolist()
            progress.step(len(places))
    finally:
        for column, known_places in zip(columns, known, strict=True):
            column.add(asked[known_places])


def readable(store: Readable, entry: MailboxEntry, rows: Rows) -> list[CachedMessage | None]:
    """The cache records of these messages; None, and a line in the log, for one that cannot be read."""
    try:
        return list(store.cached(entry, rows))
    except StoreError as error:
        if len(rows) == 1:
            log.warning("search in %s: %s", entry.name, error)
            return [None]
    return [readable(store, entry, rows[at:at + 1])[0] for at in range(len(rows))]
