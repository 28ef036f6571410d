"""The mailbox as one session numbers it: RFC 3501 §2.3.1.2, §5.2, §5.5, §7.4.1, RFC 7162. Pure; whole arrays only.

A client's sequence numbers change only when it is told of an expunge, and that is not always allowed. So a view keeps
the records of messages that have vanished until it may say so, and they stay readable for as long as their files do.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import numpy as np
from attrs import define, evolve, field, frozen
from numpy.typing import NDArray

from imap.lines import Mask, Positions, expunged, flags_changed, flags_changed_of, modseqs_changed
from imap.wire import responses
from imap.wire.flags import format_flags
from imap.wire.numbers import STAR, NumberSet, format_numbers
from store.partition.recordbuffers import is_longer
from store.tables.index import CHUNK, MAX_UID, Rows, flags_of, joined, put, spans, take
from store.tables.state import MAX_KEYWORDS, SEEN, Mailbox
from store.values import Flag

FEW = 4                     # messages, one in so many, are looked at one by one
BATCH = 2000                # messages told of in one piece: well under a millisecond of work
FIRST = 64                  # of which the first that is not \Seen is looked for; of more, if it is none of these
_NONE: Positions = np.empty(0, np.intp)
_NO_UIDS: NDArray[np.uint32] = np.empty(0, np.uint32)
ALL_FLAGS = Flag(31)
_SYSTEM = int(ALL_FLAGS)
_END = 1 << 32              # above every UID
Ascending = NDArray[Any]


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
class Merged:
    """What `merge` found that the client must hear: places to expunge, then new figures, then flags."""

    expunged: Positions = _NONE
    more: bool = False              # new messages
    keywords: bool = False          # new keywords
    flags: Positions = _NONE
    modseqs: Positions = _NONE      # of which the MODSEQ is to be told, and not the flags
    vanished: NDArray[np.uint32] = _NO_UIDS     # the UIDs of `expunged`


@define(eq=False)
class View:
    """One session's numbering of its selected mailbox. `mailbox` is the newest view that was merged."""

    mailbox: Mailbox
    read_only: bool
    changeable: Flag = ALL_FLAGS                # system flags that the user may change
    keywords: bool = True                       # whether the user may change keywords
    saved: NDArray[np.uint32] = field(init=False, default=_NO_UIDS)
    """The UIDs that "$" stands for (RFC 5182 §2.1), ascending; some may have vanished."""
    rows: Rows = field(init=False)              # what the sequence numbers stand for: row n is message n + 1
    uids: NDArray[np.uint32] = field(init=False)                # theirs
    modseq: int = field(init=False)             # up to this HIGHESTMODSEQ the client has been told everything
    _gone: Mask | None = field(init=False, default=None)        # those of `rows` that have vanished
    _recent: list[tuple[int, int]] = field(init=False, factory=list)       # UIDs [first, end), ascending
    answered: tuple[object, bytes] | None = field(init=False, default=None)
    """The search that was answered last, and the answer, if that depends on nothing but this view, as it is now."""
    other_rights: bool = field(init=False, default=False)
    """Whether the client may change other flags than when it was last told of them."""

    def __attrs_post_init__(self) -> None:
        self._set_rows(self.mailbox)
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
        return sum([self._below(end) - self._below(first) for first, end in self._recent]) if self._recent else 0

    def _below(self, uid: int) -> int:
        uids = self.uids            # of another type than theirs, all of them would be converted
        return int(uids.searchsorted(np.uint32(uid))) if uid <= MAX_UID else len(uids)

    def first_unseen(self) -> int | None:
        """The sequence number of the first message without \\Seen."""
        flags, at, count = self.rows["flags"], 0, FIRST
        while at < len(flags):
            unseen = (flags[at:at + count] & SEEN) == 0
            if unseen.any():
                return at + int(unseen.argmax()) + 1
            at, count = at + count, min(8 * count, BATCH)
        return None

    def positions(self, messages: NumberSet, *, by_uid: bool) -> Positions:
        """The places of the messages of a sequence-set, ascending, each once.

        UIDs that are not there are passed over (RFC 3501 §6.4.8). Raises SyntaxProblem for a sequence number above the
        number of messages, which any is in an empty mailbox, `*` included (§9 seq-number).
        """
        if messages.saved:
            return _find(self.saved, self.uids)[1]
        if not by_uid:
            return messages.positions(len(self.rows))
        (first, last), *more = messages.ranges
        if more or first != last or first == STAR:
            return messages.select(self.uids)
        uids = self.uids.data           # one message, which many commands name: found as in `place`
        at = bisect_left(uids, first)
        return np.array([at], np.intp) if at < len(uids) and uids[at] == first else _NONE

    def place(self, messages: NumberSet, *, by_uid: bool) -> int | None:
        """The place of the message, when the set is one number; None also when no message has it."""
        if len(messages.ranges) != 1:
            return None
        (number, last), = messages.ranges
        if number != last or number == STAR:
            return None
        if not by_uid:
            return number - 1 if number <= len(self.rows) else None
        uids = self.uids.data           # in which a number is found in half the time of `searchsorted`
        at = bisect_left(uids, number)
        return at if at < len(uids) and uids[at] == number else None

    def still_there(self, positions: Positions) -> Positions:
        """Those of `positions` that had not vanished when this view was last merged."""
        return positions if self._gone is None else positions[~self._gone[positions]]

    def merge(self, new: Mailbox, *, expunges: bool, always: Positions | None = None, belief: Belief | None = None
              ) -> Merged:
        """Take over a newer view and say what the client must hear of it.

        `expunges`: vanished messages may be told, and lose their numbers. Otherwise they keep them until a later merge.
        `always` are messages whose flags are told even if they are as before. Positions are those before this merge.
        """
        if new is self.mailbox and not (expunges and self.has_vanished) and always is None and belief is None:
            return Merged()
        self.answered = None
        since = new.since
        if (since is not None and since.at is not None and since.state is self.mailbox.state and self._gone is None
                and belief is None and (always is None or tuple(always.tolist()) == since.at)):
            return self._merge_some(new, since.at, always)
        old, uids, known = self.rows, self.uids, len(self.rows)
        at = self._to_compare(new, always, belief)
        where, gone = at, _NONE
        if (new.uids is not uids and (uids.base is None or not is_longer(new.uids, uids))
                and not np.array_equal(uids, new.uids[:known])):
            at = np.arange(known) if at is None else at
            kept, where = _find(uids[at], new.uids)
            at, gone = at[kept], np.delete(at, kept)
        keywords = new.state.keywords != self.mailbox.state.keywords
        self.mailbox = new
        differ, moved = _compare(old, at, new.rows, where, always, belief)
        if expunges or at is None or where is None or not len(gone):
            more = len(new.uids) > known - len(gone)
            self._set_rows(new)
            self._gone = None
            self.modseq = new.state.highestmodseq
            return Merged(gone, more, keywords, _those(where, differ), _those(where, moved), uids[gone])
        added = new.rows[np.searchsorted(new.uids, uids[-1], "right"):]
        self.rows = joined(old, added)
        put(self.rows, at, take(new.rows, where))
        self.uids = np.ascontiguousarray(self.rows["uid"])
        self._gone = np.zeros(len(self.rows), np.bool_)
        self._gone[gone] = True
        return Merged(_NONE, len(added) > 0, keywords, _those(at, differ), _those(at, moved))

    def _merge_some(self, new: Mailbox, at: tuple[int, ...], told: Positions | None) -> Merged:
        """`merge` when nothing is new but arrivals, and system flags of the messages at these places, of which a client
        is `told` anyway, if those are there: what each click of a user costs, and each delivery."""
        if told is None:
            changed = [place for place in at if self.rows[place]["flags"] != new.rows[place]["flags"]]
            told = np.array(changed, np.intp) if changed else _NONE
        more, keywords = len(new.uids) > len(self.uids), new.state.keywords != self.mailbox.state.keywords
        self.take_over(new)
        return Merged(_NONE, more, keywords, told)

    def take_over(self, new: Mailbox) -> None:
        """Take over a newer view in which no message has vanished. The caller knows what is new, and tells it."""
        self.answered = None
        self.mailbox, self.rows, self.uids = new, new.rows, new.uids
        self.modseq = new.state.highestmodseq

    def _to_compare(self, new: Mailbox, always: Positions | None, belief: Belief | None) -> Positions | None:
        """The places of the messages that may be other than the client believes, unless those are many (None: all)."""
        if self._gone is not None:
            return None
        chunks: Collection[int] = ()
        if new is not self.mailbox:
            if new.since is None or new.since.state is not self.mailbox.state:
                return None
            chunks = new.since.chunks
        asked = [positions for positions in (always, None if belief is None else belief.positions)
                 if positions is not None]
        if FEW * (CHUNK * len(chunks) + sum(map(len, asked))) > len(self.rows):
            return None
        if chunks:
            begins, ends = spans(self.uids, np.array(sorted(chunks), np.int64))
            asked += [np.arange(begin, end) for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]
        return np.unique(np.concatenate(asked)) if len(asked) > 1 else asked[0] if asked else _NONE

    def follow(self, acl: dict[str, str], changeable: Flag, keywords: bool) -> None:
        """The mailbox has that access control list now, and the user may change these flags in it."""
        if acl != self.mailbox.entry.acl:
            self.mailbox = evolve(self.mailbox, entry=evolve(self.mailbox.entry, acl=acl))
        self.other_rights |= (changeable, keywords) != (self.changeable, self.keywords) and not self.read_only
        self.changeable, self.keywords = changeable, keywords

    def _set_rows(self, mailbox: Mailbox) -> None:
        self.rows, self.uids = mailbox.rows, mailbox.uids

    def responses(self, merged: Merged, *, by_uid: bool, enabled: Collection[bytes] = ()) -> Iterable[bytes]:
        """The untagged responses that say it, in pieces, to a client that has enabled these extensions.

        `by_uid`: the command is a UID command (RFC 3501 §6.4.8). IMAP4rev2 always has the UID (RFC 9051 §7.5.2).
        """
        by_uid = by_uid or b"IMAP4REV2" in enabled
        modseqs = b"CONDSTORE" in enabled
        if len(merged.flags) == 1 and not (len(merged.expunged) or merged.more or merged.keywords
                                           or len(merged.modseqs)):
            return self.flags_line_of(int(merged.flags[0]), by_uid=by_uid, modseqs=modseqs),
        return self._responses(merged, by_uid, modseqs, enabled)

    def _responses(self, merged: Merged, by_uid: bool, modseqs: bool, enabled: Collection[bytes]) -> Iterator[bytes]:
        if b"QRESYNC" in enabled:
            for at in range(0, len(merged.vanished), BATCH):
                yield responses.vanished(format_numbers(merged.vanished[at:at + BATCH]))
        else:
            for at in range(len(merged.expunged), 0, -BATCH):
                yield expunged(merged.expunged[max(0, at - BATCH):at])
        if merged.more:
            yield responses.exists(self.exists)
            if b"IMAP4REV2" not in enabled:         # RFC 9051 has no RECENT
                yield responses.recent(self.recent_count())
        if merged.keywords:
            yield self.flags_line()
        for at in range(0, len(merged.flags), BATCH):
            positions = merged.flags[at:at + BATCH]
            yield self.flags_lines(positions, by_uid=by_uid, modseqs=modseqs)
        for at in range(0, len(merged.modseqs), BATCH):
            positions = merged.modseqs[at:at + BATCH]
            rows = take(self.rows, positions)
            yield modseqs_changed(positions, rows["uid"], self.mailbox.modseqs(rows))

    def flags_line(self) -> bytes:
        r"""FLAGS and PERMANENTFLAGS (RFC 3501 §7.2.6, §7.1): what occurs here, and what the client may change."""
        keywords = self.mailbox.state.keywords
        if self.read_only:
            return responses.changeable_flags(keywords, 0, named=False, more=False)
        return responses.changeable_flags(keywords, int(self.changeable), named=self.keywords,
                                          more=self.keywords and len(keywords) < MAX_KEYWORDS)

    def flags_lines(self, positions: Positions, *, by_uid: bool, modseqs: bool = False) -> bytes:
        """FETCH responses with the flags of these messages."""
        if len(positions) == 1:
            return self.flags_line_of(int(positions[0]), by_uid=by_uid, modseqs=modseqs)
        rows = take(self.rows, positions)
        return flags_changed(positions, rows, self.recent_of(rows), self.mailbox.state.keywords, by_uid=by_uid,
                             modseqs=self.mailbox.modseqs(rows) if modseqs else None)

    def flags_line_of(self, at: int, *, by_uid: bool, modseqs: bool) -> bytes:
        """The FETCH response with the flags of the message at that place."""
        uid, flags, _, words, modseq = flags_of(self.rows[at])
        if modseqs:
            modseq = max(modseq, self.mailbox.least_modseq)
        return flags_changed_of(at + 1, uid, self._flag_list(uid, flags, words), modseq, by_uid=by_uid, modseqs=modseqs)

    def flag_list(self, row: np.void) -> bytes:
        """The flags of one record, in parentheses."""
        uid, flags, _, words, _ = flags_of(row)
        return self._flag_list(uid, flags, words)

    def _flag_list(self, uid: int, flags: int, words: int) -> bytes:
        recent = False
        for first, end in self._recent:
            recent |= first <= uid < end
        return format_flags(flags & _SYSTEM, self.mailbox.keyword_names(words) if words else (), recent)


def _find(wanted: Ascending, there: Ascending | None) -> tuple[Any, Positions]:
    """Which of `wanted` are there (None: in 0, 1, 2, ...), and where. Both are ascending."""
    if there is None:
        return slice(None), wanted
    if not len(there):
        return _NONE, _NONE
    where = np.searchsorted(there, wanted)
    where[where == len(there)] = 0
    kept = np.flatnonzero(there[where] == wanted)
    return kept, where[kept]


def _those(at: Positions | None, which: Mask) -> Positions:
    """Those of the places `at` (None: all)."""
    return np.flatnonzero(which) if at is None else at[which]


def _compare(old: Rows, at: Positions | None, new: Rows, where: Positions | None, always: Positions | None,
             belief: Belief | None) -> tuple[Mask, Mask]:
    """Which messages have other flags than the client believes, and which a MODSEQ that it is to hear of, and flags
    that it knows.

    Compared are those that are in `old` in the places `at` (None: all) and in `new` in the places `where`.
    """
    mine: Any = slice(None) if at is None else at
    now: Any = slice(len(old)) if where is None else where
    flags, keywords = new["flags"][now], new["keywords"][now]
    differ: Mask = (old["flags"][mine] != flags) | (old["keywords"][mine] != keywords)
    moved: Mask = np.zeros(len(differ), np.bool_)
    if belief is not None:
        believed, found = _find(belief.positions, at)
        places: Any = found if len(found) < len(differ) else slice(None)        # many times as fast
        differ[places] = (flags[places] != belief.flags[believed]) | (keywords[places] != belief.keywords[believed])
        if belief.modseqs is not None:
            moved[places] = new["modseq"][now][places] != belief.modseqs[believed]
    if always is not None:
        differ[_find(always, at)[1]] = True
    return differ, moved & ~differ
