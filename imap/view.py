"""The mailbox as one session numbers it: RFC 3501 §2.3.1.2, §5.2, §5.5, §7.4.1, RFC 7162. Pure; whole arrays only.

A client's sequence numbers change only when it is told of an expunge, and that is not always allowed. So a view keeps
the records of messages that have vanished until it may say so, and they stay readable for as long as their files do.
"""

from collections.abc import Collection, Iterator

import numpy as np
from attrs import define, evolve, field, frozen
from numpy.typing import NDArray

from imap.lines import Mask, Positions, expunged, flags_changed, modseqs_changed
from imap.wire import responses
from imap.wire.numbers import NumberSet, format_numbers
from store.flags import MAX_KEYWORDS
from store.index import Rows, joined, put, take
from store.mailbox import Mailbox
from store.values import Flag

BATCH = 2000                # messages told of in one piece: well under a millisecond of work
_NONE: Positions = np.empty(0, np.intp)
ALL_FLAGS = Flag(31)
_END = 1 << 32              # above every UID


@frozen(eq=False)
class Belief:
    """Flags that the client takes these messages to have although it has not been told: after STORE .SILENT.

    With `modseqs` it is to hear of every MODSEQ that is another than these.
    """

    positions: Positions
    flags: NDArray[np.uint16]
    keywords: NDArray[np.uint64]
    modseqs: NDArray[np.uint64] | None = None


@frozen(eq=False)
class Told:
    """What `merge` found that the client must hear: places to expunge, then new figures, then flags."""

    expunged: Positions = _NONE
    more: bool = False              # new messages
    keywords: bool = False          # new keywords
    flags: Positions = _NONE
    modseqs: Positions = _NONE      # of which the MODSEQ is to be told, and not the flags
    vanished: NDArray[np.uint32] = field(factory=lambda: np.empty(0, np.uint32))    # the UIDs of `expunged`


@define(eq=False)
class View:
    """One session's numbering of its selected mailbox. `mailbox` is the newest picture that was merged."""

    mailbox: Mailbox
    read_only: bool
    changeable: Flag = ALL_FLAGS                # system flags that the user may change
    keywords: bool = True                       # whether the user may change keywords
    saved: NDArray[np.uint32] = field(init=False, factory=lambda: np.empty(0, np.uint32))
    """The UIDs that "$" stands for (RFC 5182 §2.1), ascending; some may have vanished."""
    rows: Rows = field(init=False)              # what the sequence numbers stand for: row n is message n + 1
    uids: NDArray[np.uint32] = field(init=False)                # theirs
    modseq: int = field(init=False)             # up to this HIGHESTMODSEQ the client has been told everything
    _gone: Mask | None = field(init=False, default=None)        # those of `rows` that have vanished
    _recent: list[tuple[int, int]] = field(init=False, factory=list)       # UIDs [first, end), ascending
    _other_rights: bool = field(init=False, default=False)      # since the client was last told of them

    def __attrs_post_init__(self) -> None:
        self._set_rows(self.mailbox.rows)
        self.modseq = self.mailbox.state.highestmodseq

    @property
    def exists(self) -> int:
        """How many messages the client knows of."""
        return len(self.rows)

    @property
    def has_vanished(self) -> bool:
        """Whether messages have vanished that the client has not been told of."""
        return self._gone is not None

    def add_recent(self, first: int, end: int = _END) -> None:
        r"""The UIDs [first, end) are \Recent in this session (RFC 3501 §2.3.2)."""
        if self._recent and self._recent[-1][1] >= first:
            first, end = self._recent[-1][0], max(end, self._recent.pop()[1])
        if first < end:
            self._recent.append((first, end))

    def forget_recent(self) -> None:
        r"""No message is \Recent: IMAP4rev2 has no such flag."""
        self._recent.clear()

    def recent_of(self, rows: Rows) -> Mask:
        r"""Which of these records are \Recent in this session."""
        uids = rows["uid"]
        recent = np.zeros(len(rows), np.bool_)
        for first, end in self._recent:
            if len(uids) and uids[-1] >= first:
                recent |= (uids >= first) & (uids < end)
        return recent

    def recent_count(self) -> int:
        r"""How many messages are \Recent in this session."""
        uids = self.uids
        return sum(int(np.searchsorted(uids, end) - np.searchsorted(uids, first)) for first, end in self._recent)

    def first_unseen(self) -> int | None:
        """The sequence number of the first message without \\Seen."""
        unseen = (self.rows["flags"] & int(Flag.SEEN)) == 0
        at = int(unseen.argmax()) if len(unseen) else 0
        return at + 1 if len(unseen) and unseen[at] else None

    def positions(self, messages: NumberSet, *, by_uid: bool) -> Positions:
        """The places of the messages of a sequence-set, ascending, each once.

        UIDs that are not there are passed over (RFC 3501 §6.4.8). Raises SyntaxProblem for a sequence number above the
        number of messages, which any is in an empty mailbox, `*` included (§9 seq-number).
        """
        if messages.saved:
            return _find(self.saved, self.uids)[1]
        return messages.select(self.uids) if by_uid else messages.positions(len(self.rows))

    def still_there(self, positions: Positions) -> Positions:
        """Those of `positions` that had not vanished when this view was last merged."""
        return positions if self._gone is None else positions[~self._gone[positions]]

    def merge(self, new: Mailbox, *, expunges: bool, always: Positions | None = None, belief: Belief | None = None
              ) -> Told:
        """Take over a newer picture and say what the client must hear of it.

        `expunges`: vanished messages may be told, and lose their numbers. Otherwise they keep them until a later merge.
        `always` are messages whose flags are told even if they are as before. Positions are those before this merge.
        """
        old, uids, rows = self.rows, self.uids, new.rows
        if new is self.mailbox and not (expunges and self.has_vanished) and always is None and belief is None:
            return Told()
        known = len(old)
        keywords = new.state.keywords != self.mailbox.state.keywords
        self.mailbox = new
        if self._gone is None and known <= len(rows) and np.array_equal(uids, rows["uid"][:known]):
            self.rows = rows
            if len(rows) > known:
                self.uids = np.ascontiguousarray(rows["uid"])
            self.modseq = new.state.highestmodseq
            differ = _differ(old, rows[:known], always, belief)
            return Told(_NONE, len(rows) > known, keywords, np.flatnonzero(differ),
                        np.flatnonzero(_moved(rows, differ, belief)))
        kept, where = _find(uids, rows["uid"])
        now = joined(old)
        put(now, kept, take(rows, where))
        differ = _differ(old, now, always, belief)
        moved = _moved(now, differ, belief)
        lost = np.ones(known, np.bool_)
        lost[kept] = False
        if expunges or not lost.any():
            self._set_rows(rows)
            self._gone = None
            self.modseq = new.state.highestmodseq
            return Told(np.flatnonzero(lost), len(rows) > len(kept), keywords, where[differ[kept]], where[moved[kept]],
                        uids[lost])
        added = rows[np.searchsorted(rows["uid"], uids[-1], "right"):]
        self._set_rows(joined(now, added))
        self._gone = np.concatenate((lost, np.zeros(len(added), np.bool_)))
        return Told(_NONE, len(added) > 0, keywords, np.flatnonzero(differ & ~lost), np.flatnonzero(moved & ~lost))

    def follow(self, acl: dict[str, str], changeable: Flag, keywords: bool) -> None:
        """The mailbox has that access control list now, and the user may change these flags in it."""
        if acl != self.mailbox.entry.acl:
            self.mailbox = evolve(self.mailbox, entry=evolve(self.mailbox.entry, acl=acl))
        self._other_rights |= (changeable, keywords) != (self.changeable, self.keywords) and not self.read_only
        self.changeable, self.keywords = changeable, keywords

    def other_rights(self) -> bytes:
        """What the client may change, once after that is different."""
        told, self._other_rights = self._other_rights, False
        return self.flags_line() if told else b""

    def _set_rows(self, rows: Rows) -> None:
        self.rows = rows
        self.uids = np.ascontiguousarray(rows["uid"])

    def responses(self, told: Told, *, by_uid: bool, enabled: Collection[bytes] = ()) -> Iterator[bytes]:
        """The untagged responses that say it, in pieces, to a client that has enabled these extensions.

        `by_uid`: the command is a UID command (RFC 3501 §6.4.8).
        """
        modseqs = b"CONDSTORE" in enabled
        if b"QRESYNC" in enabled:
            for at in range(0, len(told.vanished), BATCH):
                yield responses.vanished(format_numbers(told.vanished[at:at + BATCH]))
        else:
            for at in range(len(told.expunged), 0, -BATCH):
                yield expunged(told.expunged[max(0, at - BATCH):at])
        if told.more:
            yield responses.exists(self.exists)
            if b"IMAP4REV2" not in enabled:         # RFC 9051 has no RECENT
                yield responses.recent(self.recent_count())
        if told.keywords:
            yield self.flags_line()
        for at in range(0, len(told.flags), BATCH):
            positions = told.flags[at:at + BATCH]
            yield self.flags_lines(positions, by_uid=by_uid, modseqs=modseqs)
        for at in range(0, len(told.modseqs), BATCH):
            positions = told.modseqs[at:at + BATCH]
            yield modseqs_changed(positions, take(self.rows, positions))

    def flags_line(self) -> bytes:
        r"""FLAGS and PERMANENTFLAGS (RFC 3501 §7.2.6, §7.1): what occurs here, and what the client may change."""
        keywords = self.mailbox.state.keywords
        if self.read_only or not (self.changeable or self.keywords):
            code, text = responses.permanent_flags((), 0, more=False), "No flags can be changed"
        else:
            more = self.keywords and len(keywords) < MAX_KEYWORDS
            code = responses.permanent_flags(keywords if self.keywords else (), self.changeable, more=more)
            text = "Flags that can be changed"
        return responses.flags(keywords) + responses.ok(None, text, code)

    def flags_lines(self, positions: Positions, *, by_uid: bool, modseqs: bool = False) -> bytes:
        """FETCH responses with the flags of these messages."""
        rows = take(self.rows, positions)
        return flags_changed(positions, rows, self.recent_of(rows), self.mailbox.state.keywords, by_uid=by_uid,
                             modseqs=modseqs)


def _find(wanted: NDArray[np.uint32], there: NDArray[np.uint32]) -> tuple[Positions, Positions]:
    """Which of `wanted` are there, and where. Both are ascending."""
    if not len(there):
        return _NONE, _NONE
    where = np.searchsorted(there, wanted)
    where[where == len(there)] = 0
    kept = np.flatnonzero(there[where] == wanted)
    return kept, where[kept]


def _differ(old: Rows, new: Rows, always: Positions | None, belief: Belief | None) -> Mask:
    """Which messages have other flags than the client believes."""
    differ: Mask = (old["flags"] != new["flags"]) | (old["keywords"] != new["keywords"])
    if belief is not None:
        at = belief.positions
        differ[at] = (new["flags"][at] != belief.flags) | (new["keywords"][at] != belief.keywords)
    if always is not None:
        differ[always] = True
    return differ


def _moved(new: Rows, differ: Mask, belief: Belief | None) -> Mask:
    """Which messages have a MODSEQ that the client is to hear of, and flags that it knows."""
    moved: Mask = np.zeros(len(differ), np.bool_)
    if belief is not None and belief.modseqs is not None:
        moved[belief.positions] = new["modseq"][belief.positions] != belief.modseqs
        moved &= ~differ
    return moved
