"""Flags: system flags and keywords as bits of the index records, and changing them (RFC 3501 §2.3.2, §6.4.6)."""

from collections.abc import Iterable
from functools import partial
from typing import Any, cast

import numpy as np
from attrs import evolve, frozen
from numpy.typing import NDArray

from mboxlist.entry import MailboxEntry, MailboxId
from store.errors import Problem, StoreError
from store.events.scriptevents import FLAG
from store.mailboxes.authorization import changeable
from store.partition.recordbuffers import Step
from store.partition.transactions import WriteTxn, places
from store.store import Store
from store.tables.index import CHUNK, Rows, take
from store.tables.slices import FLAG_UNITS, in_slices, sorted_uids
from store.tables.state import MODSEQ_FLOOR, MailboxState, keyword_bits
from store.values import SYSTEM_NAMES, Flag, FlagAction, Flags

_NONE = np.empty(0, np.uint32)
_ALL = sum(SYSTEM_NAMES)     # bits of the system flags


@frozen(eq=False)
class Known:
    """The messages as the client knows them, for STORE with UNCHANGEDSINCE (RFC 7162 §3.1.3)."""

    since: int
    rows: Rows


@frozen(eq=False)
class Update:
    """What a change of flags came to: the UIDs that are gone, those left alone since they were changed after
    `Known.since`, and all others with their MODSEQs now. `figures`: those of the mailbox before and after, when it was
    one transaction, which wrote all records and did just what was asked for."""

    gone: NDArray[np.uint32]
    modified: NDArray[np.uint32]
    uids: NDArray[np.uint32]
    modseqs: NDArray[np.uint64]
    figures: tuple[MailboxState, MailboxState] | None = None

    @classmethod
    def of_gone(cls, uids: NDArray[np.uint32]) -> "Update":
        """The outcome when none of these messages is there."""
        return cls(uids, _NONE, _NONE, np.empty(0, np.uint64))


def change_flags(store: Store, entry: MailboxEntry, uids: Iterable[int] | NDArray[np.uint32],
                 action: FlagAction, flags: Flags, reader: str = "") -> NDArray[np.uint32]:
    """`update_flags` of all; those of `uids` that are gone."""
    return update_flags(store, entry, uids, action, flags, reader).gone


def update_flags(store: Store, entry: MailboxEntry, uids: Iterable[int] | NDArray[np.uint32],
                 action: FlagAction, flags: Flags, reader: str = "", known: Known | None = None, *,
                 event_of: str = "") -> Update:
    """Change the flags of `uids`, with `known` of those only that pass its test. Not flushed yet; of many, some at a
    time: what is refused half way raises PartlyDone (RFC 3501 §6.4.6 says nothing else).

    In a mailbox of somebody else's the private flags (`Settings.private_flags`) that change are the reader's own. Flags
    that the reader has no right to change stay as they are (RFC 4314 §4). `event_of`: whose command it is, if a script
    is to run for it; for flags of readers' own none does.
    Raises StoreError NO_MAILBOX, LIMIT, and NO_PERMISSION when none of the flags may be changed.
    """
    own = store.private_bits(entry, reader)
    allowed, words = changeable(store, reader, entry)
    asked, may = int(flags.system), int(allowed)        # `Flag` would count in Python
    system, named = asked & may, flags.keywords if words else ()
    if not (system or named) and (asked or flags.keywords or not (may or words)):
        raise StoreError(Problem.NO_PERMISSION)

    wanted = sorted_uids(uids)
    if len(wanted) == 1 and known is None and not own and not named and not event_of and (
            action is not FlagAction.REPLACE or not words):
        return _update_one(store, entry, wanted, action, system, may)

    def work(txn: WriteTxn, wanted: NDArray[np.uint32]) -> Update:
        before = txn.state(entry.id)
        bits, keywords = keyword_bits(before, named, add=action is not FlagAction.REMOVE)
        change = _Change(action, system, bits, may, words, own, before.highestmodseq + 1)
        rows = txn.load(entry.id, wanted)
        found = at = places(rows, wanted)
        if known is not None:
            at = found[change.passes(_shown(txn, entry.id, rows, found, reader if own else ""), known)]
        which: Any = slice(None) if len(at) == len(rows) else at        # many times as fast
        there, old = rows["uid"][which].copy(), rows["flags"][which].copy()     # others get the records' memory
        old_words = rows["keywords"][which].copy() if event_of else None
        differ = change.of_all(rows, which)
        if differ.any():
            txn.rewrite_flags(entry.id, rows, differ, before.uidnext)
        changed_own = bool(own) and _change_own(txn, entry.id, reader, there, change)
        figures = None
        if changed_own or differ.any():
            new = rows["flags"][which]
            after = evolve(
                before, highestmodseq=change.modseq, changed=change.modseq, keywords=keywords,
                unseen=before.unseen - _more(old, new, Flag.SEEN, change),
                deleted=before.deleted + _more(old, new, Flag.DELETED, change))
            txn.set_state(entry.id, before, after)
            if old_words is not None:
                _have_script_run(txn, entry.id, event_of, there, old ^ new,
                                 old_words ^ rows["keywords"][which], keywords)
            if len(rows) == before.messages:
                txn.hand_over(entry.id, after, rows)
                if may == _ALL and words and not own and known is None:
                    figures = before, after
        present = there if found is at else rows["uid"][found]
        modseqs = rows["modseq"][which].copy() if not own else _shown(txn, entry.id, rows, at, reader)["modseq"]
        return Update(_without(wanted, present), _without(present, there), there, modseqs, figures)

    return _joined(in_slices(wanted, FLAG_UNITS, lambda some: store.transact(entry, partial(work, wanted=some))))


def update_one(store: Store, entry: MailboxEntry, uid: int, action: FlagAction, flags: Flags, reader: str = "", *,
               event_of: str = "") -> tuple[bool, Step | None]:
    """`update_flags` of one message; whether it is there, and the change where that is known as a step. What every
    click of a user costs: in a mailbox of one's own, and of system flags, there is nothing else to look at."""
    if (entry.acl or entry.name.owner != reader or flags.keywords or event_of or action is FlagAction.REPLACE
            or not reader):
        return not len(update_flags(store, entry, (uid,), action, flags, reader, event_of=event_of).gone), None
    bits = int(flags.system)
    kept, come = (~0, bits) if action is FlagAction.ADD else (~bits, 0)
    flagged = store.transact(entry, lambda txn: txn.flag(entry.id, uid, kept, come))
    return (False, None) if flagged is None else (True, flagged[1])


def change_within(txn: WriteTxn, mailbox: MailboxId, uid: int, come: Flags, gone: Flags) -> None:
    """Give one message flags and take others away, if it is there still; keywords for which there is no room are left
    out. Raises StoreError NO_MAILBOX, BUSY, CORRUPT."""
    before = txn.state(mailbox)
    try:
        bits, keywords = keyword_bits(before, come.keywords, add=True)
    except StoreError:
        bits, keywords = keyword_bits(before, come.keywords, add=False)
    lost, _ = keyword_bits(before, gone.keywords, add=False)
    wanted = np.array([uid], np.uint32)
    rows = txn.load(mailbox, wanted)
    at = places(rows, wanted)
    if not len(at):
        return
    one = rows[at[0]]
    old, words = int(one["flags"]), int(one["keywords"])
    new = (old | int(come.system)) & ~int(gone.system)
    new_words = (words | bits) & ~lost
    if (old, words) == (new, new_words):
        return
    modseq = before.highestmodseq + 1
    one["flags"], one["keywords"], one["modseq"] = new, new_words, modseq
    differ = np.zeros(len(rows), np.bool_)
    differ[at] = True
    txn.rewrite_flags(mailbox, rows, differ, before.uidnext)
    seen, deleted = int(Flag.SEEN), int(Flag.DELETED)
    txn.set_state(mailbox, before, evolve(
        before, highestmodseq=modseq, changed=modseq, keywords=keywords,
        unseen=before.unseen + bool(old & seen) - bool(new & seen),
        deleted=before.deleted + bool(new & deleted) - bool(old & deleted)))


def _have_script_run(txn: WriteTxn, mailbox: MailboxId, user: str, uids: NDArray[np.uint32], flags: Rows, words: Rows,
                     keywords: tuple[str, ...]) -> None:
    """The script of the mailbox is to hear which flags of these messages are other than before."""
    changed = np.stack((flags.astype(np.uint64), words))
    for kind in np.unique(changed[:, changed.any(axis=0)], axis=1).T:
        names = [name for bit, name in SYSTEM_NAMES.items() if int(kind[0]) & bit]
        names += [name for at, name in enumerate(keywords) if int(kind[1]) >> at & 1]
        some = np.sort(uids[(changed == kind[:, None]).all(axis=0)])
        txn.partition.script_events.add(mailbox, FLAG, user, some, txn.handle, names)


def _update_one(store: Store, entry: MailboxEntry, wanted: NDArray[np.uint32], action: FlagAction, system: int,
                allowed: int) -> Update:
    """`update_flags` of system flags (bits) of one message."""
    uid, kept, come = int(wanted[0]), ~0, system
    if action is FlagAction.REMOVE:
        kept, come = ~system, 0
    elif action is FlagAction.REPLACE:
        kept = ~allowed
    flagged = store.transact(entry, lambda txn: txn.flag(entry.id, uid, kept, come))
    if flagged is None:
        return Update.of_gone(wanted)
    return Update(_NONE, _NONE, wanted, np.array([flagged[0]], np.uint64))


def _joined(done: list[Update]) -> Update:
    """What slices came to, as one."""
    if len(done) == 1:
        return done[0]
    return Update(np.concatenate([one.gone for one in done]), np.concatenate([one.modified for one in done]),
                  np.concatenate([one.uids for one in done]), np.concatenate([one.modseqs for one in done]))


def _without(uids: NDArray[np.uint32], some: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """The UIDs that are not among `some` of them."""
    return uids[:0] if len(some) == len(uids) else np.setdiff1d(uids, some, assume_unique=True)


def _shown(txn: WriteTxn, mailbox: MailboxId, rows: Rows, at: NDArray[np.intp], reader: str) -> Rows:
    """The records at these places as the reader sees them."""
    return txn.partition.views.as_seen(mailbox, take(rows, at), reader, txn.handle)


@frozen
class _Change:
    """What a STORE does to records: `system` and `keywords` are bits, `own` the bits that are the reader's own.

    Of the system flags those in `allowed` may be changed, and the keywords if `words`.
    """

    action: FlagAction
    system: int
    keywords: int
    allowed: int
    words: bool
    own: int
    modseq: int

    def passes(self, rows: Rows, known: Known) -> NDArray[np.bool_]:
        """Which of these records pass the test of UNCHANGEDSINCE.

        One that was changed, but not in flags that this adds or removes, passes (RFC 7162 §3.1.11): the client knows
        how those are, if what it knows of the message is as old as it says.
        """
        if known.since < (self.modseq - 1) & MODSEQ_FLOOR:       # see `Mailbox.least_modseq`
            return np.zeros(len(rows), np.bool_)
        passed = rows["modseq"] <= known.since
        if self.action is not FlagAction.REPLACE:
            old = take(known.rows, places(known.rows, np.ascontiguousarray(rows["uid"])))
            same = (old["flags"] ^ rows["flags"]) & np.uint16(self.system) == 0
            same &= (old["keywords"] ^ rows["keywords"]) & np.uint64(self.keywords) == 0
            passed |= same & (old["modseq"] <= known.since)
        return np.asarray(passed)

    def of_all(self, rows: Rows, which: Any) -> NDArray[np.bool_]:
        """Change the flags that everybody sees, in the records at these places; which of all are different now."""
        old = rows["flags"][which].copy()
        new = _apply(self.action, old, self.system & ~self.own, old & np.uint16(self.own | ~self.allowed & 0xFFFF))
        rows["flags"][which] = new
        other = old != new
        if self.words and (self.keywords or self.action is FlagAction.REPLACE):
            old_words = rows["keywords"][which].copy()
            new_words = _apply(self.action, old_words, self.keywords, np.uint64(0))
            rows["keywords"][which] = new_words
            other |= old_words != new_words
        differ = np.zeros(len(rows), np.bool_)
        differ[which] = other
        rows["modseq"][slice(None) if differ.all() else differ] = self.modseq
        return differ


def _change_own(txn: WriteTxn, mailbox: MailboxId, reader: str, uids: NDArray[np.uint32], change: _Change) -> bool:
    """Change the reader's own flags of these UIDs; whether any is different now."""
    changed = False
    numbers = (uids - 1) // CHUNK
    for number in np.unique(numbers).tolist():
        own = txn.partition.readers.chunk(mailbox, number, reader, txn.handle)
        at = (uids[numbers == number] - 1) % CHUNK
        old = own["flags"][at]
        new = _apply(change.action, old, change.system & change.own, old & np.uint8(~change.allowed & 0xFF))
        differ = old != new
        if differ.any():
            own["flags"][at] = new
            own["modseq"][at[differ]] = change.modseq
            txn.put_own(mailbox, number, reader, own)
            changed = True
    return changed


def _apply(action: FlagAction, old: Rows, bits: int, kept: Any) -> Rows:
    """The new flags; REPLACE leaves those in `kept` as they are."""
    mask = old.dtype.type(bits)
    if action is FlagAction.ADD:
        return cast(Rows, old | mask)
    if action is FlagAction.REMOVE:
        return cast(Rows, old & ~mask)
    return cast(Rows, np.full_like(old, mask) | kept)


def _more(old: Rows, new: Rows, flag: Flag, change: _Change) -> int:
    """How many messages more have the flag."""
    if change.action is not FlagAction.REPLACE and not change.system & flag.value:
        return 0
    return int(np.count_nonzero(new & np.uint16(flag))) - int(np.count_nonzero(old & np.uint16(flag)))
