"""STORE: RFC 3501 §6.4.6, RFC 7162 §3.1.3."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from imap.lines import Positions
from imap.refusals import CODES
from imap.session import Session
from imap.states import Reply
from imap.view import Belief, View
from imap.wire import responses
from imap.wire.flags import StoreFlags
from imap.wire.responses import NO
from mboxlist.engine.transact import Unflushed
from store.delivery import durable
from store.errors import Problem
from store.mailboxes.flagchanges import Known, Update, update_flags, update_one
from store.tables.index import take
from store.tables.slices import FLAG_UNITS, PartlyDone, units
from store.tables.state import DELETED, SEEN, MailboxState, keyword_bits
from store.values import FlagAction

_NONE: Positions = np.empty(0, np.intp)
FEW = 100                   # for so few messages the answer is made before the change is on disk


async def store_flags(session: Session, command: StoreFlags) -> Reply:
    r"""Change flags, and tell the new ones unless .SILENT; the MODSEQs, and the flags of messages that fail the test of
    UNCHANGEDSINCE, always.

    When some messages have vanished meanwhile, the others are changed. A client that waits to hear of the flags of
    vanished ones gets a NO (RFC 2180 §4.2). For few messages the answer is made while the disk has the log, and goes
    out after that.
    """
    view = session.writable()
    if command.unchanged_since is not None:
        session.enable_condstore()
    entry, stream, by_uid = view.mailbox.entry, session.stream, command.by_uid
    name = "UID STORE" if by_uid else "STORE"
    update = step = None                        # of one message `update` stays so when nothing stood in the way
    at = view.place(command.messages, by_uid=by_uid) if command.unchanged_since is None else None
    positions = _NONE
    if at is not None:
        uid: int = view.uids.item(at)
        there, step = await session.change(0.0, lambda: update_one(
            session.store, entry, uid, command.action, command.flags, session.user, event_of=session.event_of(entry)))
        if not there:
            update = Update.of_gone(view.uids[at:at + 1])
    else:
        positions = view.positions(command.messages, by_uid=by_uid)
        if not len(positions):
            return Reply(f"{name} completed")
        update = await _updated(session, view, command, positions)
    if command.action is not FlagAction.REMOVE:
        system = int(command.flags.system)
        if system & DELETED:
            stream.acts["deleted"] += 1 if update is None else len(update.uids)
        if system & SEEN and session.login is not None:
            session.login.has_read = True
    unsent = stream.unsent
    on_disk = durable.syncing(session.store, entry)     # last: from here on it is waited for, whatever fails
    if on_disk is not None and len(positions) > FEW:
        await on_disk
        on_disk = None
    other = trouble = None
    try:
        if at is None or step is None or not session.tell_own(step, at, by_uid=by_uid, silent=command.silent):
            if at is not None:
                positions = np.array([at], np.intp)
            if command.silent and update is not None and update.figures is not None and session.follow_own(
                    *update.figures, by_uid=by_uid):
                pass
            elif update is None and not command.silent:
                await session.tell(expunges=by_uid, by_uid=by_uid, always=positions)
            else:
                other = await _tell(session, view, command, positions, update)
    except Exception as error:                  # keeps nobody from the reply that it is done: see `Session.done`
        trouble = error
    if on_disk is not None:
        try:
            await on_disk
        except Unflushed:
            stream.take_back(unsent)
            raise
    reply = session.done(f"{name} completed")
    if trouble is not None:
        raise trouble
    return other or reply


async def _updated(session: Session, view: View, command: StoreFlags, positions: Positions) -> Update:
    """Change the messages at these places."""
    uids, rows, store, entry = view.uids[positions], view.rows, session.store, view.mailbox.entry

    def work() -> Update:
        since = command.unchanged_since
        known = None if since is None else Known(since, take(rows, positions))
        return update_flags(store, entry, uids, command.action, command.flags, session.user, known,
                            event_of=session.event_of(entry))

    try:
        return await session.change(units(uids, FLAG_UNITS), work)
    except PartlyDone:                          # the client is told of the new flags before the NO
        await durable.flushed(store, entry)
        raise


async def _tell(session: Session, view: View, command: StoreFlags, positions: Positions, update: Update | None
                ) -> Reply | None:
    """Tell what has become of the messages at these places; the reply, if it is not that all is done."""
    by_uid, count = command.by_uid, len(positions)
    code, failed, gone = b"", positions[:0], update is not None and len(update.gone) > 0
    if update is not None and (gone or len(update.modified)):
        found, places, uids = update, positions, view.uids[positions]
        code, failed, positions = await session.of_many(count, lambda: _failing(command, found, uids, places))
    if command.silent:
        state = await session.change(0, lambda: session.store.status(view.mailbox.entry))
        belief = await session.of_many(count, lambda: _believed(session, view, positions, command, state))
        if _names_unknown_keyword(command, state):
            failed = np.union1d(positions, failed)
        await session.tell(expunges=by_uid, by_uid=by_uid, belief=belief, always=failed)
    else:
        always = np.union1d(positions, failed) if len(failed) else positions
        await session.tell(expunges=by_uid, by_uid=by_uid, always=always)
    if gone and not by_uid and not command.silent:
        return Reply("Some of the messages have been expunged", code or CODES[Problem.GONE], NO)
    name = "UID STORE" if by_uid else "STORE"
    return Reply(f"{name}: some messages were changed meanwhile", code) if code else None


def _failing(command: StoreFlags, update: Update, uids: NDArray[np.uint32], positions: Positions
          ) -> tuple[bytes, Positions, Positions]:
    """The response code, the places of messages that fail the test of UNCHANGEDSINCE, and of those that were changed.
    """
    failed = positions[np.isin(uids, update.modified)] if len(update.modified) else positions[:0]
    code = responses.modified(update.modified if command.by_uid else failed + 1) if len(failed) else b""
    if len(update.gone) or len(failed):
        positions = positions[np.isin(uids, update.uids)]
    return code, failed, positions


def _believed(session: Session, view: View, positions: Positions, command: StoreFlags, state: MailboxState) -> Belief:
    """The flags that a client that asked for silence now takes for the present ones; another session may have changed
    them."""
    rows, which = view.rows, positions if len(positions) < len(view.rows) else slice(None)      # many times as fast
    bits, _ = keyword_bits(state, command.flags.keywords, add=False)
    return Belief(positions, _applied(rows["flags"][which], int(command.flags.system), command.action),
                  _applied(rows["keywords"][which], bits, command.action),
                  np.zeros(len(positions), np.uint64) if b"CONDSTORE" in session.enabled else None)


def _names_unknown_keyword(command: StoreFlags, state: MailboxState) -> bool:
    """Whether the client takes a keyword for set that the mailbox does not have, since the user may set none: no bit of
    a `Belief` says so."""
    if command.action is FlagAction.REMOVE or not command.flags.keywords:
        return False
    there = {keyword.lower() for keyword in state.keywords}
    return any([name.lower() not in there for name in command.flags.keywords])


def _applied(old: NDArray[Any], bits: int, action: FlagAction) -> NDArray[Any]:
    mask = old.dtype.type(bits)
    if action is FlagAction.REPLACE:
        return np.full_like(old, mask)
    return np.asarray(old | mask if action is FlagAction.ADD else old & ~mask)
