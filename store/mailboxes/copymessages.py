"""COPY and MOVE: records that refer to the same message files (RFC 3501 §6.4.7, RFC 6851)."""

import time
from collections.abc import Callable, Iterable

import numpy as np
from attrs import evolve
from numpy.typing import NDArray

from mboxlist.entry import MailboxEntry, MailboxId
from store.errors import Problem, StoreError
from store.mailboxes.authorization import changeable
from store.mailboxes.expunge import take_out
from store.mailboxes.flagchanges import keyword_bits, set_own
from store.partition.transactions import WriteTxn, sorted_uids
from store.progress import Progress
from store.store import Store
from store.tables.index import Rows
from store.tables.references import marks, tally
from store.tables.state import MailboxState
from store.values import Flag


def copy_messages(store: Store, source: MailboxEntry, target: MailboxEntry,
                  uids: Iterable[int] | NDArray[np.uint32], *, remove: bool = False, reader: str = "",
                  progress: Progress | None = None, guard: Callable[[MailboxState], None] = lambda source: None
                  ) -> list[int]:
    """Copy (with `remove`, move) all of `uids` or none; the new UIDs in ascending order of the old ones.

    Flags are copied as the `reader` sees them (`Store.private_bits`), those that it may set in the target.
    Both mailboxes are on this partition; no file is touched. Not flushed yet. `guard` gets the source's figures, and
    raises what keeps the messages where they are.
    Raises StoreError GONE, NO_MAILBOX, OVER_QUOTA, LIMIT; Abandoned, and then none are copied.
    """
    wanted = sorted_uids(uids)
    own_source, own_target = store.private_bits(source, reader), store.private_bits(target, reader)
    allowed = changeable(store, reader, target)

    def work(txn: WriteTxn) -> list[int]:
        counted = progress or Progress()
        counted.total = counted.done = 0
        states = {entry_id: txn.state(entry_id) for entry_id in sorted({source.id, target.id})}
        guard(states[source.id])
        rows = txn.rows_of(source.id, wanted)
        if len(rows) != len(wanted):
            raise StoreError(Problem.GONE)
        if not len(rows):
            return []
        octets = int(rows["size"].sum())
        before = states[target.id]
        moved_within_root = remove and states[source.id].quota_root == before.quota_root
        txn.charge(before, octets, len(rows), enforce=not moved_within_root)
        shown = txn.partition.views.as_seen(source.id, rows, reader if own_source else "", txn.handle)
        copies, keywords = copies_of(shown, states[source.id], before, allowed)
        if own_target:
            set_own(txn, target.id, reader, copies, own_target, before.highestmodseq + 1)
        after = evolve(with_rows(before, copies, octets), keywords=keywords)
        txn.append(target.id, copies)
        txn.set_state(target.id, before, after)
        if not remove:
            counted.begin(len(copies))
            for digest, count, check in tally(target.id, copies):
                txn.refs.add(digest, count, check, txn.handle)
                counted.step(count)
        else:
            left = after if source.id == target.id else states[source.id]
            take_out(txn, source.id, left, rows, same_modseq=source.id == target.id, release=False)
            counted.begin(len(copies))
            _exchange(txn, source.id, rows, target.id, copies, counted)
        return [int(uid) for uid in copies["uid"]]

    return store.partition_of(target).transact(work)


def _exchange(txn: WriteTxn, source: MailboxId, old: Rows, target: MailboxId, new: Rows, progress: Progress) -> None:
    """The files are used as often as before, by other records."""
    befores, afters = marks(source, old["uid"]).tolist(), marks(target, new["uid"]).tolist()
    for digest, before, after in sorted(zip(old["digest"].tolist(), befores, afters, strict=True)):
        txn.refs.exchange(digest, before, after, txn.handle)
        progress.step(1)


def copies_of(rows: Rows, source: MailboxState, target: MailboxState, allowed: tuple[Flag, bool]
              ) -> tuple[Rows, tuple[str, ...]]:
    """The records as the target has them (its next UIDs, its keyword bits), and the keywords that it has with them.

    Only the flags that are `allowed` (`authorization.changeable`) go with them (RFC 4314 §4).
    """
    copies = rows.copy()
    copies["flags"] &= np.uint16(allowed[0])
    copies["uid"] = np.arange(target.uidnext, target.uidnext + len(rows))
    copies["modseq"] = target.highestmodseq + 1
    copies["saved"] = int(time.time())
    used = int(np.bitwise_or.reduce(rows["keywords"])) if allowed[1] else 0
    names = [name for at, name in enumerate(source.keywords) if used >> at & 1]
    _, words = keyword_bits(target, names, add=True)
    copies["keywords"] = 0
    widened = evolve(target, keywords=words)
    for name in names:
        old = np.uint64(keyword_bits(source, [name], add=False)[0])
        bit, _ = keyword_bits(widened, [name], add=True)
        copies["keywords"] |= np.where(rows["keywords"] & old, np.uint64(bit), np.uint64(0))
    return copies, words


def with_rows(state: MailboxState, rows: Rows, octets: int) -> MailboxState:
    """The figures after `rows` have been added."""
    seen = int(np.count_nonzero(rows["flags"] & np.uint16(Flag.SEEN)))
    deleted = int(np.count_nonzero(rows["flags"] & np.uint16(Flag.DELETED)))
    return evolve(state, uidnext=state.uidnext + len(rows), highestmodseq=state.highestmodseq + 1,
                  messages=state.messages + len(rows), unseen=state.unseen + len(rows) - seen,
                  deleted=state.deleted + deleted, octets=state.octets + octets)
