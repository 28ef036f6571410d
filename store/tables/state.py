"""A mailbox as its readers see it: its state and its records."""

import struct
from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from attrs import define, evolve, field, frozen
from numpy.typing import NDArray

from mboxlist.entry import MailboxEntry
from store.errors import Problem, StoreError
from store.tables.counters import FIGURES, counters_of
from store.tables.index import Rows
from store.values import Flag

MAX_KEYWORDS = 64           # of a mailbox: bits of a record's field
_STATE = FIGURES
_REMOVED, _HERE = _STATE.size - 5, bytes(5)      # where `removed` and `moving` are, which come last
_EPOCH = 48
MODSEQ_END, MESSAGES = 16, slice(28, 32)        # UIDVALIDITY, UIDNEXT and HIGHESTMODSEQ come first; then these:
SHOWN = struct.Struct("<IIQI")                  # all four
SEEN, DELETED = int(Flag.SEEN), int(Flag.DELETED)      # `Flag` counts in Python what the figures count in C

UNCOUNTED_KEY = bytes(3)        # of a row before all others: see `rebuild.recount.note_uncounted`
state_key: Callable[[int], bytes] = struct.Struct(">I").pack       # the key of a mailbox's row


MOVING, UNLISTED = 1, 2     # values of `MailboxState.moving`

UID_SKIP = 1 << 16          # what a mailbox skips after an unclean end: more than can have been seen and lost
MODSEQ_SKIP = 1 << 24
MODSEQ_FLOOR = -MODSEQ_SKIP         # a mask: see `Mailbox.least_modseq`


@define(eq=False)       # `frozen` would set each of the attributes by a call, and every SELECT makes one
class MailboxState:
    """The figures of a mailbox; nobody changes one.

    `changed` is the MODSEQ of the last change other than an arrival, `recent` the first UID that no session has been
    told is \\Recent; `epoch` counts the unclean ends that the figures allow for. Expunged UIDs are on record for all
    that happened after the MODSEQ `log_since`, in `logged` octets. `removed` is the Unix time at which the mailbox was
    deleted, or 0. Nobody writes to a mailbox that is `moving`: it is on its way to another partition (MOVING), or its
    row in the list may not be on disk yet (UNLISTED). `quota_root` is what its messages are charged to.
    """

    uidvalidity: int
    uidnext: int
    highestmodseq: int
    changed: int
    recent: int
    messages: int
    unseen: int
    deleted: int
    octets: int
    epoch: int
    log_since: int
    logged: int
    removed: int
    moving: int
    quota_root: str
    keywords: tuple[str, ...] = ()

    @classmethod
    def new(cls, uidvalidity: int, epoch: int, quota_root: str, moving: int = 0) -> "MailboxState":
        """That of an empty mailbox."""
        return cls(uidvalidity, 1, 1, 1, 1, 0, 0, 0, 0, epoch, 0, 0, 0, moving, quota_root)

    def to_bytes(self) -> bytes:
        """The stored form."""
        return _STATE.pack(self.uidvalidity, self.uidnext, self.highestmodseq, self.changed, self.recent, self.messages,
                           self.unseen, self.deleted, self.octets, self.epoch, self.log_since, self.logged,
                           self.removed, self.moving) + "\n".join((self.quota_root, *self.keywords)).encode()

    @classmethod
    def from_bytes(cls, data: bytes, epoch: int) -> "MailboxState":
        """From the stored form, for a partition in that epoch.

        UIDs and MODSEQs that were shown, but not yet on disk when the machine stopped, must not come to mean something
        else: a mailbox last written in an earlier epoch skips ahead before it gives out the next. Whoever was moving
        the mailbox then moves it no more. Figures of a later epoch stay as they are, so that nothing gets smaller; who
        would write to such a mailbox is refused (`LaterEpoch`).
        """
        root, *keywords = data[_STATE.size:].decode().split("\n")
        (validity, uidnext, highest, changed, recent, messages, unseen, deleted, octets, then, log_since, logged,
         removed, moving) = _STATE.unpack_from(data)
        behind = epoch - then
        if behind:
            if behind < 0:
                epoch = then
            else:
                uidnext += behind * UID_SKIP
                highest += behind * MODSEQ_SKIP
                changed = highest
                moving = 0
        return cls(validity, uidnext, highest, changed, recent, messages, unseen, deleted, octets, epoch, log_since,
                   logged, removed, moving, root, tuple(keywords))


class LaterEpoch(StoreError):
    """Nobody writes to a mailbox whose figures are of a later epoch than its partition: they are damaged, or this
    process has not heard of the epoch. After the next unclean end it would not skip ahead."""

    def __init__(self, of: int, epoch: int) -> None:
        super().__init__(Problem.CORRUPT, "The mailbox cannot be changed until it has been repaired",
                         f"its figures are of epoch {of}, its partition has come to {epoch}")


def _to_change(data: bytes, epoch: int) -> bytes:
    """Figures of another epoch, in stored form, as those of this one. Raises StoreError NO_MAILBOX, BUSY, CORRUPT."""
    state = MailboxState.from_bytes(data, epoch)
    if state.epoch != epoch:
        _require(state.removed, state.moving)
        raise LaterEpoch(state.epoch, epoch)
    return state.to_bytes()


def counted(state: MailboxState, rows: Rows) -> MailboxState:
    """The state with the counters that these records, all of the mailbox's, give."""
    return evolve(state, **counters_of(rows)._asdict())


def gained(state: MailboxState, rows: Rows, sign: int = 1) -> MailboxState:
    """The state with these records more; with `sign` -1, without them."""
    more = counters_of(rows)
    return evolve(state, messages=state.messages + sign * more.messages, unseen=state.unseen + sign * more.unseen,
                  deleted=state.deleted + sign * more.deleted, octets=state.octets + sign * more.octets)


def arrived(data: bytes, epoch: int, size: int, system: int) -> tuple[int, int, str, bytes]:
    """The figures of a mailbox, in stored form, when a message of that size and system flags arrives.

    Gives its UID, its MODSEQ, the quota root, and the figures then. Raises StoreError NO_MAILBOX, BUSY, CORRUPT.
    """
    (validity, uid, highest, changed, recent, messages, unseen, deleted, octets, then, log_since, logged, removed,
     moving) = _STATE.unpack_from(data)
    if then != epoch:
        return arrived(_to_change(data, epoch), epoch, size, system)
    if removed or moving:
        _require(removed, moving)
    names = data[_STATE.size:]
    after = _STATE.pack(validity, uid + 1, highest + 1, changed, recent, messages + 1, unseen + (not system & SEEN),
                        deleted + (system & DELETED != 0), octets + size, epoch, log_since, logged, 0, 0)
    return uid, highest + 1, names.partition(b"\n")[0].decode(), after + names


def flagged(data: bytes, epoch: int, unseen: int, deleted: int) -> tuple[int, bytes]:
    r"""The figures of a mailbox, in stored form, when flags of one message change: so many messages more are unseen,
    so many more \Deleted.

    Gives the MODSEQ of the change, and the figures then. Raises StoreError NO_MAILBOX, BUSY, CORRUPT.
    """
    (validity, uid, highest, _, recent, messages, before, marked, octets, then, log_since, logged, removed,
     moving) = _STATE.unpack_from(data)
    if then != epoch:
        return flagged(_to_change(data, epoch), epoch, unseen, deleted)
    if removed or moving:
        _require(removed, moving)
    after = _STATE.pack(validity, uid, highest + 1, highest + 1, recent, messages, before + unseen, marked + deleted,
                        octets, epoch, log_since, logged, 0, 0)
    return highest + 1, after + data[_STATE.size:]


def claimed(data: bytes, epoch: int) -> tuple[int, int, bytes]:
    r"""The UIDs that no session has been told are \Recent, from the first up to but not including UIDNEXT, and the
    stored figures when a session has been told of all. Raises StoreError NO_MAILBOX, BUSY, CORRUPT."""
    (validity, uidnext, highest, changed, recent, messages, unseen, deleted, octets, then, log_since, logged, removed,
     moving) = _STATE.unpack_from(data)
    if then != epoch:
        return claimed(_to_change(data, epoch), epoch)
    if removed or moving:
        _require(removed, moving)
    after = _STATE.pack(validity, uidnext, highest, changed, uidnext, messages, unseen, deleted, octets, epoch,
                        log_since, logged, 0, 0)
    return recent, uidnext, after + data[_STATE.size:]


def all_claimed(data: bytes, epoch: int) -> int | None:
    r"""UIDNEXT in stored figures of this epoch, of a mailbox that has not been removed, if sessions have been told of
    all \Recent messages. In figures of an earlier epoch UIDNEXT is not what is stored."""
    _, uidnext, _, _, recent, _, _, _, _, then, _, _, removed, _ = _STATE.unpack_from(data)
    return uidnext if recent >= uidnext and then >= epoch and not removed else None


def must_be_here(data: bytes, epoch: int) -> None:
    """Raises StoreError NO_MAILBOX, BUSY for the stored figures of a mailbox that nobody writes to."""
    if data[_REMOVED:_STATE.size] != _HERE:
        state = MailboxState.from_bytes(data, epoch)
        _require(state.removed, state.moving)


def _require(removed: int, moving: int) -> None:
    """Raises StoreError for a mailbox that nobody writes to."""
    if removed:
        raise StoreError(Problem.NO_MAILBOX)
    if moving:
        raise StoreError(Problem.BUSY, "The mailbox is being moved, or made")


def before_skip(data: bytes, epoch: int) -> int | None:
    """UIDNEXT in stored figures from before an unclean end of a partition that is in that epoch now; None in those that
    have been stored since."""
    return int.from_bytes(data[4:8], "little") if int.from_bytes(data[_EPOCH:_EPOCH + 4], "little") < epoch else None


def charged_root(data: bytes) -> str:
    """The quota root in stored figures."""
    return data[_STATE.size:].partition(b"\n")[0].decode()


def root_if_here(data: bytes) -> str | None:
    """The quota root in stored figures of a mailbox that is here (`is_here`), else None."""
    if data[_REMOVED:_STATE.size] != _HERE:
        return None
    return data[_STATE.size:].partition(b"\n")[0].decode()


def in_epoch(data: bytes, epoch: int) -> bytes:
    """Stored figures as those of that epoch, if they are of no later one."""
    return data if int.from_bytes(data[_EPOCH:_EPOCH + 4], "little") == epoch else (
        MailboxState.from_bytes(data, epoch).to_bytes())


def keywords_of(data: bytes) -> list[str]:
    """The keywords in stored figures."""
    return data[_STATE.size:].decode().split("\n")[1:]


def is_moving(data: bytes) -> bool:
    """Whether stored figures are those of a mailbox that nobody writes to, or wrote to in an earlier epoch."""
    return data[_STATE.size - 1] != 0


def at_rest(data: bytes) -> bytes:
    """Stored figures as those of a mailbox that moves no more."""
    return data[:_STATE.size - 1] + b"\0" + data[_STATE.size:]


def is_here(data: bytes) -> bool:
    """Whether stored figures are those of a mailbox that is neither moving nor removed: those of two partitions never
    are at the same time."""
    return data[_REMOVED:_STATE.size] == _HERE


def is_unchanged(data: bytes, epoch: int, highestmodseq: int) -> bool:
    """Whether stored figures are those of a mailbox that is here (`is_here`) and has that HIGHESTMODSEQ, in that epoch.
    """
    _, _, highest, _, _, _, _, _, _, then, _, _, removed, moving = _STATE.unpack_from(data)
    if then < epoch:
        highest += (epoch - then) * MODSEQ_SKIP
    return bool(highest == highestmodseq and not removed and not moving)


@frozen(eq=False)
class Since:
    """What is new in a view since an older one with that state: nothing but arrivals, and what is in these chunks; with
    `at` nothing but arrivals, and system flags of the records at these places, which ascend.
    """

    state: MailboxState
    chunks: frozenset[int]
    at: tuple[int, ...] | None = None


@define(eq=False)       # as `MailboxState`
class Mailbox:
    """An immutable view of a mailbox, which nobody changes; `rows` is in ascending order of UID.

    `reader` is the user whose own flags are shown in it; "" in a mailbox where everybody sees the same. `uids` is a
    column of `rows`. Some views that came out of older ones have `since`.
    """

    entry: MailboxEntry
    state: MailboxState
    rows: Rows
    reader: str = ""
    uids: NDArray[np.uint32] = field()
    since: Since | None = None

    @uids.default
    def _uids_of_rows(self) -> NDArray[np.uint32]:
        return np.ascontiguousarray(self.rows["uid"])

    @property
    def least_modseq(self) -> int:
        """No client hears of a MODSEQ below this one. Each skip raises it.

        A client may have seen changes that an unclean end or a failover then lost: to it all that is so again is new,
        although it was changed longer ago than what the client has seen. So who was here before the skip, and asks what
        has changed since (RFC 7162 §3.1.4.1, §3.2.5), is told of all. So it is once in 2^24 other changes, too.
        """
        return self.state.highestmodseq & MODSEQ_FLOOR

    def modseqs(self, rows: Rows) -> NDArray[np.uint64]:
        """The MODSEQs of some of its records, as clients hear of them."""
        return np.asarray(np.maximum(rows["modseq"], np.uint64(self.least_modseq)), np.uint64)

    def keyword_names(self, bits: int) -> tuple[str, ...]:
        """The keywords whose bits are set."""
        return tuple(name for at, name in enumerate(self.state.keywords) if bits >> at & 1)

    def row(self, uid: int) -> Any | None:
        """The record of that UID."""
        at = bisect_left(self.uids, uid)
        return self.rows[at] if at < len(self.uids) and self.uids[at] == uid else None


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
