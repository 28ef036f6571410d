"""What a client has missed: SELECT with QRESYNC (RFC 7162 §3.2.5) and UID FETCH with VANISHED (§3.2.6)."""

import numpy as np
from numpy.typing import NDArray

from imap.lines import Positions
from imap.session import Session
from imap.view import BATCH, View
from imap.wire import responses
from imap.wire.modseq import Resync, SequenceMatch
from imap.wire.numbers import ALL, NumberSet, format_numbers, format_ranges

Ranges = NDArray[np.int64]          # first and last of each, ascending


async def resync(session: Session, view: View, wanted: Resync) -> None:
    """Tell what has changed since the client was here last, unless its UIDs mean nothing any more.

    Changes that it has seen may have been lost, also an expunge: the client then does not name that message's UID.
    """
    if wanted.uidvalidity != view.mailbox.state.uidvalidity:
        return
    known = wanted.uids or ALL
    await vanished(session, view, known, wanted.modseq, wanted.match)
    if _may_be_lost(view, wanted.modseq):
        positions = view.positions(ALL, by_uid=True)
    else:
        positions = changed_since(view, view.positions(known, by_uid=True), wanted.modseq)
    for at in range(0, len(positions), BATCH):
        session.stream.write(view.flags_lines(positions[at:at + BATCH], by_uid=True, modseqs=True))
        await session.stream.drain(session.settings.command_time)


def _may_be_lost(view: View, modseq: int) -> bool:
    """Whether a client that knows the mailbox as of that MODSEQ may have seen something that is not so any more: before
    the last skip, or at another machine."""
    return not view.mailbox.least_modseq <= modseq <= view.mailbox.state.highestmodseq


def changed_since(view: View, positions: Positions, modseq: int) -> Positions:
    """Those of these messages that were changed after that MODSEQ; all, if the client may have seen something that is
    not so any more."""
    if modseq < view.mailbox.least_modseq:
        return positions
    return positions[view.rows["modseq"][positions] > modseq]


async def vanished(session: Session, view: View, uids: NumberSet, modseq: int, match: SequenceMatch | None = None
                   ) -> None:
    """Tell which of these UIDs were expunged after that MODSEQ.

    When nobody knows that any more, tell all UIDs that are not there, except those below the point up to which the
    client's `match` shows that it knows the mailbox as it is (RFC 7162 §3.2.5.2). If what the client has seen may have
    been lost, `match` shows nothing.
    """
    lines = await session.of_many(len(view.uids), lambda: _vanished_lines(session, view, uids, modseq, match))
    for numbers in lines:
        session.stream.write(responses.vanished(numbers, earlier=True))
        await session.stream.drain(session.settings.command_time)


def _vanished_lines(session: Session, view: View, uids: NumberSet, modseq: int, match: SequenceMatch | None
                    ) -> list[bytes]:
    """`vanished`, as sets of UIDs."""
    top = view.mailbox.state.uidnext - 1        # "*" is the last UID that there was, not the last that is left
    ranges = uids.joined(top)
    ranges = np.minimum(ranges[ranges[:, 0] <= top], top)
    lost = _may_be_lost(view, modseq)
    gone = None if lost else session.source.vanished(view.mailbox.entry, modseq)
    if gone is not None:
        # What was expunged after this view was made still has its number in it, and will be told by that.
        gone = np.setdiff1d(gone, view.uids, assume_unique=True)
        gone = gone[_inside(gone, ranges)]
        return [format_numbers(gone[at:at + BATCH]) for at in range(0, len(gone), BATCH)]
    missing = gaps(view.uids, ranges, known_up_to(view.uids, match) if match is not None and not lost else 0)
    return [format_ranges(missing[at:at + BATCH, 0], missing[at:at + BATCH, 1])
            for at in range(0, len(missing), BATCH)]


def gaps(uids: NDArray[np.uint32], ranges: Ranges, known: int) -> Ranges:
    """The parts of `ranges` in which none of `uids` (ascending) is, above `known`."""
    there = uids.astype(np.int64)
    firsts, lasts = np.concatenate(([known + 1], there + 1)), np.concatenate((there - 1, [np.iinfo(np.int64).max]))
    firsts = np.maximum(firsts, known + 1)
    empty = firsts > lasts
    firsts, lasts = firsts[~empty], lasts[~empty]
    begins = np.searchsorted(lasts, ranges[:, 0], "left")
    counts = np.searchsorted(firsts, ranges[:, 1], "right") - begins
    which = np.repeat(np.arange(len(ranges)), counts)       # the n-th piece is of this range, and of this gap:
    gap = np.arange(len(which)) + np.repeat(begins - np.cumsum(counts) + counts, counts)
    return np.column_stack((np.maximum(firsts[gap], ranges[which, 0]), np.minimum(lasts[gap], ranges[which, 1])))


def known_up_to(uids: NDArray[np.uint32], match: SequenceMatch) -> int:
    """The largest UID that has the same number here as for the client: up to it nothing is missing there."""
    numbers = _first(match.numbers, len(uids))
    numbers = numbers[numbers <= len(uids)]
    theirs = _first(match.uids, len(numbers))
    same = np.flatnonzero(uids[numbers - 1] == theirs)
    return int(theirs[same[-1]]) if len(same) else 0


def _first(numbers: NumberSet, most: int) -> NDArray[np.int64]:
    """The first so many of a set in ascending order."""
    pieces, left = [np.empty(0, np.int64)], most
    for first, last in numbers.ranges:
        if left <= 0:
            break
        pieces.append(np.arange(first, min(last, first + left - 1) + 1, dtype=np.int64))
        left -= len(pieces[-1])
    return np.concatenate(pieces)


def _inside(uids: NDArray[np.uint32], ranges: Ranges) -> NDArray[np.bool_]:
    """Which of these UIDs are in one of the ranges."""
    if not len(ranges):
        return np.zeros(len(uids), np.bool_)
    at = np.searchsorted(ranges[:, 0], uids, "right") - 1
    return np.asarray((at >= 0) & (uids <= ranges[at, 1]))
