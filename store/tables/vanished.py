"""The log of expunged UIDs, from which a client that comes back learns what is gone (RFC 7162 §3.2).

`vanished.db`: (mailbox id, MODSEQ of the expunge) -> ranges of UIDs, 8 octets each. A mailbox keeps so many octets of
it; what happened before `MailboxState.log_since` is no longer known, and the server then says of every UID that is not
there that it is gone (RFC 7162 §3.2.5.1).
"""

import struct

import numpy as np
from attrs import evolve
from numpy.typing import NDArray

from mboxlist.engine.btree import Table, Txn
from mboxlist.entry import MailboxId
from store.tables.state import MailboxState

LIMIT = 256 << 10           # octets of a mailbox's log; past it the older half goes
_KEY = struct.Struct(">IQ")


class Vanished:
    """The table. `limit` is how many octets of a mailbox's log are kept."""

    def __init__(self, table: Table, limit: int = LIMIT) -> None:
        self._table = table
        self.limit = limit

    def record(self, mailbox: MailboxId, state: MailboxState, uids: NDArray[np.uint32], txn: Txn) -> MailboxState:
        """These UIDs (ascending) went with the change that gave the state its HIGHESTMODSEQ; the state then."""
        data = to_ranges(uids)
        self._table.put(_KEY.pack(mailbox, state.highestmodseq), data, txn)
        logged, since = state.logged + len(data), state.log_since
        if logged > self.limit:
            for key, old in list(self._table.scan(*_span(mailbox, 0), txn)):
                if logged <= self.limit // 2:
                    break
                self._table.delete(key, txn)
                logged -= len(old)
                since = _KEY.unpack(key)[1]
        return evolve(state, logged=logged, log_since=since)

    def since(self, mailbox: MailboxId, state: MailboxState, modseq: int, txn: Txn = None) -> NDArray[np.uint32] | None:
        """The UIDs, ascending, that were expunged after that MODSEQ; None when that is no longer known."""
        if modseq < state.log_since:
            return None
        pieces = [from_ranges(data) for _, data in self._table.scan(*_span(mailbox, modseq + 1), txn)]
        return np.sort(np.concatenate(pieces)) if pieces else np.empty(0, np.uint32)

    def octets(self, mailbox: MailboxId, txn: Txn = None) -> int:
        """How much of the mailbox's log there is."""
        return sum(len(data) for _, data in self._table.scan(*_span(mailbox, 0), txn))

    def forget(self, mailbox: MailboxId, txn: Txn) -> None:
        """The mailbox is no more."""
        for key, _ in list(self._table.scan(*_span(mailbox, 0), txn)):
            self._table.delete(key, txn)

    def mailboxes(self, txn: Txn = None) -> set[int]:
        """The mailboxes that have a log."""
        return {_KEY.unpack(key)[0] for key, _ in self._table.scan(txn=txn)}

    def all(self, mailbox: MailboxId, txn: Txn = None) -> list[tuple[int, bytes]]:
        """The mailbox's log, for another partition: MODSEQ and ranges."""
        return [(_KEY.unpack(key)[1], data) for key, data in self._table.scan(*_span(mailbox, 0), txn)]

    def put(self, mailbox: MailboxId, modseq: int, ranges: bytes, txn: Txn) -> None:
        """Set an item that `all` gave."""
        self._table.put(_KEY.pack(mailbox, modseq), ranges, txn)


def to_ranges(uids: NDArray[np.uint32]) -> bytes:
    """Ascending UIDs as pairs of first and last, little-endian."""
    breaks = np.flatnonzero(np.diff(uids) != 1)
    pairs = np.empty((len(breaks) + 1, 2), "<u4")
    pairs[:, 0] = uids[np.concatenate(([0], breaks + 1))]
    pairs[:, 1] = uids[np.concatenate((breaks, [len(uids) - 1]))]
    return pairs.tobytes()


def ranges_of(data: bytes) -> NDArray[np.int64] | None:
    """Pairs of first and last UID as they are stored; None for what nobody can have stored."""
    pairs = np.frombuffer(data[:len(data) // 8 * 8], "<u4").reshape(-1, 2).astype(np.int64)
    if (not len(pairs) or len(data) % 8 or (pairs[:, 0] > pairs[:, 1]).any() or pairs[0, 0] < 1
            or (pairs[1:, 0] <= pairs[:-1, 1]).any()):
        return None
    return pairs


def from_ranges(data: bytes) -> NDArray[np.uint32]:
    """The UIDs of such ranges, ascending."""
    pairs = np.frombuffer(data, "<u4").reshape(-1, 2).astype(np.int64)
    lengths = pairs[:, 1] - pairs[:, 0] + 1
    starts = np.repeat(pairs[:, 0] - np.concatenate(([0], np.cumsum(lengths)[:-1])), lengths)
    return (starts + np.arange(int(lengths.sum()))).astype(np.uint32)


def _span(mailbox: MailboxId, modseq: int) -> tuple[bytes, bytes]:
    return _KEY.pack(mailbox, modseq), _KEY.pack(mailbox + 1, 0)
