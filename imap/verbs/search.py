"""SEARCH: RFC 3501 §6.4.4, RFC 4731, RFC 5032, RFC 5182, RFC 7162 §3.1.5; and what SORT and THREAD share with it."""

from collections.abc import Callable, Iterable
from operator import ge, le
from typing import TypeVar

import numpy as np
from attrs import define

from imap.lines import Positions
from imap.session import Session
from imap.states import Refused, Reply
from imap.view import View
from imap.wire import responses
from imap.wire.numbers import SAVED, set_pieces
from imap.wire.responses import BAD, NO
from imap.wire.search import CHARSETS, Result, Results, Search
from imap.wire.sorting import Sort, Thread
from store import offload
from store.progress import Progress
from store.search import searchkeys
from store.search.mailboxsearch import places as find
from store.search.searchkeys import Among, Key, ModSeq, Numbers, ReceivedAt
from store.tables.state import Mailbox

# Keys that look into messages.
_READS = (searchkeys.Body, searchkeys.Envelope, searchkeys.Header, searchkeys.Sent, searchkeys.Text)

_OF_SESSION = (searchkeys.Saved, searchkeys.Within, searchkeys.Recent)

# Keys of which the answer changes with the view of the mailbox alone.
_OF_VIEW = frozenset((searchkeys.All, searchkeys.HasFlag))

KEPT = 8 << 10              # octets of an answer that is kept for the next time
LOOKS = 4_000_000           # keys times messages that are done without a thread, some 10 ms

T = TypeVar("T")


async def search(session: Session, command: Search) -> Reply:
    """The numbers, or UIDs, of the messages that the key finds. When a client repeats a search, and nothing has changed
    in the mailbox, it gets the same octets again."""
    if not session.rev2 and (answered := session.selected().answered) is not None and answered[0] is command:
        session.stream.write(answered[1])
        return Reply("UID SEARCH completed" if command.by_uid else "SEARCH completed")
    if command.charset is not None and b"UTF8=ACCEPT" in session.enabled:
        raise Refused("After ENABLE UTF8=ACCEPT there is no CHARSET", status=BAD)       # RFC 6855 §3
    found = await matching(session, command, lambda _, found, progress: found,
                           thread=not command.kinds.isdisjoint(_READS))
    results = command.results
    if results is None and session.rev2:
        results = frozenset({Result.ALL})               # RFC 9051 §6.4.4
    if results is None:
        view = session.selected()
        pieces = responses.search_pieces(b"SEARCH", numbers_of(view, command, found),
                                         highest_modseq(view, command, found))
        if command.kinds <= _OF_VIEW and isinstance(pieces, tuple) and len(pieces[0]) <= KEPT:
            view.answered = command, pieces[0]
        await write_pieces(session, pieces)
    else:
        session.stream.write(await extended(session, command, found, results))
    return Reply("UID SEARCH completed" if command.by_uid else "SEARCH completed")


async def matching(session: Session, command: Search | Sort | Thread,
                   then: Callable[[Mailbox, Positions, Progress], T], *, thread: bool) -> T:
    """What `then` makes of the messages that the key finds; both run in a thread where that is asked for.

    A search that should save its result, and ends with NO, saves an empty one (RFC 5182 §2.1).
    """
    view = session.selected()
    try:
        if not command.charset_known:
            raise Refused("That charset is not known here", CHARSETS)
        kinds = command.kinds
        if ModSeq in kinds:
            session.enable_condstore()
        if Numbers in kinds:
            session.keep_numbers()
        now = int(getattr(session.clock, "today", session.clock.seconds)())     # what internal dates go by
        newest = view.mailbox           # with what this session still numbers
        mailbox = Mailbox(newest.entry, newest.state, view.rows, newest.reader, view.uids)
        progress = session.progress()

        def work() -> T:
            key = command.key
            if not kinds.isdisjoint(_OF_SESSION):
                key = searchkeys.mapped(key, _ForSession(view, now).of)
            found = find(session.source, mailbox, key, progress=progress)
            return then(mailbox, view.still_there(found), progress)

        if thread or len(searchkeys.leaves(command.key)) * len(view.rows) > LOOKS:
            return await session.patiently(offload.run(session.store, "search", work, user=session.user), progress)
        return work()
    except Refused as refused:
        if refused.status == NO:
            _forget_saved(view, command)
        raise
    except Exception:               # any: it becomes a NO
        _forget_saved(view, command)
        raise


def _forget_saved(view: View, command: Search | Sort | Thread) -> None:
    if not isinstance(command, Thread) and Result.SAVE in (command.results or ()):
        view.saved = view.uids[:0]


def numbers_of(view: View, command: Search | Sort | Thread, found: Positions) -> Positions:
    """The numbers, or UIDs, by which the client wants to hear of these messages."""
    return view.uids[found].astype(np.intp) if command.by_uid else found + 1


def highest_modseq(view: View, command: Search | Sort, found: Positions) -> int:
    """The highest MODSEQ of these messages if the client has asked for any (RFC 7162 §3.1.5), else 0."""
    if not len(found) or ModSeq not in command.kinds:
        return 0
    return int(view.mailbox.modseqs(view.rows[found]).max())


async def write_pieces(session: Session, pieces: Iterable[bytes]) -> None:
    """Write the pieces of one response. Others have turns in between, and nothing else is written."""
    for piece in pieces:
        session.stream.write(piece)
        await session.stream.breathe()


async def _number_set(session: Session, numbers: Positions) -> bytes:
    pieces = []
    for piece in set_pieces(numbers):
        pieces.append(piece)
        await session.stream.breathe()
    return b",".join(pieces)


async def extended(session: Session, command: Search | Sort, found: Positions, results: Results) -> bytes:
    """ESEARCH (RFC 4731 §3.1); MIN and MAX are the first and the last of `found`. "$" is set if the client wants it."""
    view, chosen = session.selected(), found
    if not results & {Result.ALL, Result.COUNT} and results & {Result.MIN, Result.MAX}:
        # The messages that are told are also saved, and their MODSEQ counts (RFC 5182 §2.4, RFC 4731 §3.2).
        ends = ([0] if Result.MIN in results else []) + ([-1] if Result.MAX in results else [])
        chosen = found[ends] if len(found) else found
    if Result.SAVE in results:
        view.saved = np.unique(view.uids[chosen])
    if results == {Result.SAVE}:
        return b""
    numbers = numbers_of(view, command, found)
    items: list[tuple[bytes, bytes]] = []
    if len(found):
        if Result.MIN in results:
            items.append((b"MIN", b"%d" % numbers[0]))
        if Result.MAX in results:
            items.append((b"MAX", b"%d" % numbers[-1]))
        if Result.ALL in results:
            items.append((b"ALL", await _number_set(session, numbers)))
    if Result.COUNT in results:
        items.append((b"COUNT", b"%d" % len(found)))
    modseq = highest_modseq(view, command, chosen)
    if modseq:
        items.append((b"MODSEQ", b"%d" % modseq))
    return responses.esearch(session.tag, items, by_uid=command.by_uid)


@define
class _ForSession:
    r"""Keys with what only this session knows put in: "$", the time, and \Recent. Of each there is one, however often
    a client names it: it has an octet for each message.

    A sequence number that is not there finds nothing, as Dovecot has it: RFC 3501 §9 would have a BAD.
    """

    view: View
    now: int
    _saved: Among | None = None
    _recent: Among | None = None

    def of(self, key: Key) -> Key:
        """The key that takes the place of this one."""
        match key:
            case searchkeys.Saved():
                if self._saved is None:
                    mask = np.zeros(self.view.exists, np.bool_)
                    mask[self.view.positions(SAVED, by_uid=False)] = True
                    self._saved = Among(mask)
                return self._saved
            case searchkeys.Within(seconds, older):
                return ReceivedAt(le if older else ge, self.now - seconds)
            case searchkeys.Recent():
                if self._recent is None:
                    self._recent = Among(self.view.recent_of(self.view.rows))
                return self._recent
        return key
