"""Flags: system flags and keywords as bits of the index records, and changing them (RFC 3501 §2.3.2, §6.4.6)."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

import numpy as np
from attrs import evolve
from numpy.typing import NDArray

from mboxlist.entry import MailboxEntry
from store.errors import Problem, StoreError
from store.index import Rows
from store.mailbox import MailboxState
from store.txn import WriteTxn, places, sorted_uids
from store.values import Flag, FlagAction, Flags

if TYPE_CHECKING:
    from store.store import Store

MAX_KEYWORDS = 64           # of a mailbox: bits of a record's field


def keyword_bits(state: MailboxState, names: Iterable[str], *, add: bool) -> tuple[int, tuple[str, ...]]:
    """The bits of `names`, and the mailbox's keywords with those that are new (with `add`; else they are left out).

    Keywords are the same in any case. Raises StoreError LIMIT when a mailbox would have more than 64.
    """
    bits, keywords = 0, state.keywords
    for name in names:
        known = [keyword.lower() for keyword in keywords]
        if name.lower() not in known:
            if not add:
                continue
            if len(keywords) >= MAX_KEYWORDS:
                raise StoreError(Problem.LIMIT, f"A mailbox has at most {MAX_KEYWORDS} keywords")
            known.append(name.lower())
            keywords = (*keywords, name)
        bits |= 1 << known.index(name.lower())
    return bits, keywords


def change_flags(store: "Store", entry: MailboxEntry, uids: Iterable[int] | NDArray[np.uint32],
                 action: FlagAction, flags: Flags) -> NDArray[np.uint32]:
    """Change the flags of `uids`; those of them that are gone. All in one transaction, not flushed yet.

    Raises StoreError NO_MAILBOX, LIMIT.
    """
    wanted = sorted_uids(uids)

    def work(txn: WriteTxn) -> NDArray[np.uint32]:
        before = txn.state(entry.id)
        bits, keywords = keyword_bits(before, flags.keywords, add=action is not FlagAction.REMOVE)
        modseq = before.highestmodseq + 1
        found = []
        unseen = deleted = changed = 0
        for number, rows in txn.chunks(entry.id, wanted):
            at = places(rows, wanted)
            found.append(rows["uid"][at])
            old, old_words = rows["flags"][at], rows["keywords"][at]
            new, new_words = _apply(action, old, int(flags.system)), _apply(action, old_words, bits)
            differ = (old != new) | (old_words != new_words)
            if not differ.any():
                continue
            changed += 1
            unseen += _count(old, Flag.SEEN) - _count(new, Flag.SEEN)
            deleted += _count(new, Flag.DELETED) - _count(old, Flag.DELETED)
            rows["flags"][at], rows["keywords"][at] = new, new_words
            rows["modseq"][at[differ]] = modseq
            txn.put_chunk(entry.id, number, rows)
        if changed:
            txn.set_state(entry.id, before, evolve(
                before, highestmodseq=modseq, changed=modseq, unseen=before.unseen + unseen,
                deleted=before.deleted + deleted, keywords=keywords))
        there = np.concatenate(found) if found else wanted[:0]
        return np.setdiff1d(wanted, there, assume_unique=True)

    return store.partition_of(entry).transact(work)


def _apply(action: FlagAction, old: Rows, bits: int) -> Rows:
    mask = old.dtype.type(bits)
    if action is FlagAction.ADD:
        return cast(Rows, old | mask)
    if action is FlagAction.REMOVE:
        return cast(Rows, old & ~mask)
    return np.full_like(old, mask)


def _count(flags: Rows, flag: Flag) -> int:
    return int(np.count_nonzero(flags & np.uint16(flag)))
