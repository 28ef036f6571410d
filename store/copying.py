"""COPY and MOVE: records that refer to the same message files (RFC 3501 §6.4.7, RFC 6851)."""

import time
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
from attrs import evolve
from numpy.typing import NDArray

from mboxlist.entry import MailboxEntry
from store.errors import Problem, StoreError
from store.expunge import take_out
from store.flags import keyword_bits
from store.index import Rows
from store.mailbox import MailboxState
from store.txn import WriteTxn, sorted_uids
from store.values import Flag

if TYPE_CHECKING:
    from store.store import Store


def copy_messages(store: "Store", source: MailboxEntry, target: MailboxEntry,
                  uids: Iterable[int] | NDArray[np.uint32], *, remove: bool = False) -> list[int]:
    """Copy (with `remove`, move) all of `uids` or none; the new UIDs in ascending order of the old ones.

    Both mailboxes are on this partition; no file is touched. Not flushed yet.
    Raises StoreError GONE, NO_MAILBOX, OVER_QUOTA, LIMIT.
    """
    wanted = sorted_uids(uids)
    if source.partition != target.partition:
        raise StoreError(Problem.NO_PERMISSION, "The mailboxes are on different partitions")

    def work(txn: WriteTxn) -> list[int]:
        states = {entry_id: txn.state(entry_id) for entry_id in sorted({source.id, target.id})}
        rows = txn.rows_of(source.id, wanted)
        if len(rows) != len(wanted):
            raise StoreError(Problem.GONE)
        if not len(rows):
            return []
        octets = int(rows["size"].sum())
        moved_within_root = remove and source.quota_root == target.quota_root
        txn.charge(target, octets, len(rows), enforce=not moved_within_root)
        before = states[target.id]
        copies, keywords = _copies(rows, states[source.id], before)
        after = evolve(_with(before, copies, octets), keywords=keywords)
        txn.append(target.id, copies)
        txn.set_state(target.id, before, after)
        if not remove:
            for mid, count in sorted(Counter(bytes(mid) for mid in rows["mid"]).items()):
                txn.refs.add(mid, count, txn.handle)
        else:
            left = after if source.id == target.id else states[source.id]
            take_out(txn, source, left, rows, same_modseq=source.id == target.id, release=False)
        return [int(uid) for uid in copies["uid"]]

    return store.partition_of(target).transact(work)


def _copies(rows: Rows, source: MailboxState, target: MailboxState) -> tuple[Rows, tuple[str, ...]]:
    """The records as the target has them (its next UIDs, its keyword bits), and the keywords that it has with them."""
    copies = rows.copy()
    copies["uid"] = np.arange(target.uidnext, target.uidnext + len(rows))
    copies["modseq"] = target.highestmodseq + 1
    copies["saved"] = int(time.time())
    used = int(np.bitwise_or.reduce(rows["keywords"]))
    names = [name for at, name in enumerate(source.keywords) if used >> at & 1]
    _, words = keyword_bits(target, names, add=True)
    copies["keywords"] = 0
    widened = evolve(target, keywords=words)
    for name in names:
        old = np.uint64(keyword_bits(source, [name], add=False)[0])
        bit, _ = keyword_bits(widened, [name], add=True)
        copies["keywords"] |= np.where(rows["keywords"] & old, np.uint64(bit), np.uint64(0))
    return copies, words


def _with(state: MailboxState, rows: Rows, octets: int) -> MailboxState:
    """The figures after `rows` have been added."""
    seen = int(np.count_nonzero(rows["flags"] & np.uint16(Flag.SEEN)))
    deleted = int(np.count_nonzero(rows["flags"] & np.uint16(Flag.DELETED)))
    return evolve(state, uidnext=state.uidnext + len(rows), highestmodseq=state.highestmodseq + 1,
                  messages=state.messages + len(rows), unseen=state.unseen + len(rows) - seen,
                  deleted=state.deleted + deleted, octets=state.octets + octets)
