"""A transaction on one partition: mailboxes are locked by it, and what it did is told when it has been committed.

The work of a transaction is a function that may run more than once (after a deadlock), so it touches nothing outside.
Within a transaction the mailboxes are visited in order of their ids.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mboxlist.entry import MailboxEntry, MailboxId
from mboxlist.kv import Txn
from store.errors import Problem, StoreError
from store.index import CHUNK, ROW, Rows, chunk_key, chunk_of_key, decode, encode, extend, joined, take
from store.mailbox import MailboxState

if TYPE_CHECKING:
    from store.partition import Partition

MAX_TOLD = 64       # chunks of one change that are named to others; past it they read the mailbox anew


class WriteTxn:
    """See the module's text; made by `Partition.transact`."""

    def __init__(self, partition: "Partition", handle: Txn) -> None:
        self.partition = partition
        self.handle = handle
        self.refs = partition.refs
        self._before: dict[MailboxId, int] = {}
        self._chunks: dict[MailboxId, set[int]] = {}

    def state(self, mailbox: MailboxId) -> MailboxState:
        """The mailbox's figures; it is locked from here on. Raises StoreError NO_MAILBOX when it has been deleted."""
        data = self.partition.states.get_to_change(state_key(mailbox), self.handle)
        if data is None:
            raise StoreError(Problem.NO_MAILBOX)
        return MailboxState.from_bytes(data, self.partition.epoch)

    def set_state(self, mailbox: MailboxId, before: MailboxState | None, after: MailboxState) -> None:
        """Set the mailbox's figures."""
        self.partition.states.put(state_key(mailbox), after.to_bytes(), self.handle)
        if before is not None:
            self._before.setdefault(mailbox, before.highestmodseq)
            self._chunks.setdefault(mailbox, set())

    def append(self, mailbox: MailboxId, rows: Rows) -> None:
        """Add records, whose UIDs are all new and ascending."""
        numbers = (rows["uid"] - 1) // CHUNK
        for number in range(int(numbers[0]), int(numbers[-1]) + 1):
            part = rows[numbers == number] if len(rows) > 1 else rows
            if len(part):
                self.append_octets(mailbox, number, part.tobytes())

    def append_octets(self, mailbox: MailboxId, number: int, rows: bytes) -> None:
        """Add records in their stored form to one chunk."""
        key = chunk_key(mailbox, number)
        chunks = self.partition.index
        chunks.put(key, extend(chunks.get_to_change(key, self.handle), rows), self.handle)
        self._touch(mailbox, number)

    def chunks(self, mailbox: MailboxId, uids: NDArray[np.uint32] | None = None) -> Iterator[tuple[int, Rows]]:
        """The chunks with their numbers, those that could hold `uids` or all; the arrays may be changed."""
        table = self.partition.index
        if uids is None:
            start, end = chunk_key(mailbox, 0), chunk_key(MailboxId(mailbox + 1), 0)
            numbers = [chunk_of_key(key)[1] for key, _ in table.scan(start, end, self.handle)]
        else:
            numbers = np.unique((uids - 1) // CHUNK).tolist()
        for number in numbers:
            value = table.get_to_change(chunk_key(mailbox, number), self.handle)
            if value is not None:
                yield number, decode(value)

    def put_chunk(self, mailbox: MailboxId, number: int, rows: Rows) -> None:
        """Set a chunk; an empty one goes."""
        key = chunk_key(mailbox, number)
        if len(rows):
            self.partition.index.put(key, encode(rows), self.handle)
        else:
            self.partition.index.delete(key, self.handle)
        self._touch(mailbox, number)

    def rows_of(self, mailbox: MailboxId, uids: NDArray[np.uint32]) -> Rows:
        """The records of `uids` (ascending) that are there."""
        found = [take(rows, places(rows, uids)) for _, rows in self.chunks(mailbox, uids)]
        return joined(*found) if found else np.empty(0, ROW)

    def charge(self, entry: MailboxEntry, octets: int, messages: int, *, enforce: bool = True) -> None:
        """Add to what the mailbox's quota root uses. Raises StoreError OVER_QUOTA."""
        self.partition.quotas.charge(entry.quota_root, octets, messages, self.handle, enforce=enforce)

    def changed(self) -> Iterable[tuple[MailboxId, int, frozenset[int] | None]]:
        """Each mailbox that was changed, its HIGHESTMODSEQ before, and the chunks (None: many)."""
        for mailbox, before in self._before.items():
            chunks = self._chunks[mailbox]
            yield mailbox, before, frozenset(chunks) if len(chunks) <= MAX_TOLD else None

    def _touch(self, mailbox: MailboxId, number: int) -> None:
        self._chunks.setdefault(mailbox, set()).add(number)


def places(rows: Rows, uids: NDArray[np.uint32]) -> NDArray[np.intp]:
    """Where `uids` (ascending) are in a chunk, those that are there."""
    first, end = np.searchsorted(uids, (rows["uid"][0], int(rows["uid"][-1]) + 1))
    return np.flatnonzero(np.isin(rows["uid"], uids[first:end], assume_unique=True))


def state_key(mailbox: MailboxId) -> bytes:
    """The key of a mailbox in `state.db`."""
    return mailbox.to_bytes(4, "big")


def sorted_uids(uids: Iterable[int] | NDArray[np.uint32]) -> NDArray[np.uint32]:
    """As an ascending array without doubles."""
    array = np.asarray(uids if isinstance(uids, np.ndarray) else list(uids), np.uint32)
    return array if len(array) < 2 else np.unique(array)

