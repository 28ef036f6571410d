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
from store.delivery import durable
from store.errors import Problem
from store.mailboxes.flagchanges import Known, Update, update_flags
from store.partition.transactions import FLAG_UNITS, PartlyDone, units
from store.tables.index import take
from store.tables.state import DELETED, SEEN, MailboxState, keyword_bits
from store.values import FlagAction


async def store_flags(session: Session, command: StoreFlags) -> Reply:
    r"""Change flags, and tell the new ones unless .SILENT; the MODSEQs, and the flags of messages that fail the test of
    UNCHANGEDSINCE, always.

    Messages that have vanished meanwhile keep the others from nothing; a client that waits to hear of their flags gets
    a NO (RFC 2180 §4.2).
    """
    view = session.writable()
    if command.unchanged_since is not None:
        session.enable_condstore()
    entry = view.mailbox.entry
    positions = view.positions(command.messages, by_uid=command.by_uid)
    name = "UID STORE" if command.by_uid else "STORE"
    if not len(positions):
        return Reply(f"{name} completed")
    uids, rows = view.uids[positions], view.rows

    def work() -> Update:
        since = command.unchanged_since
        known = None if since is None else Known(since, take(rows, positions))
        return update_flags(session.store, entry, uids, command.action, command.flags, session.user, known,
                            event_of=session.event_of(entry))

    try:
        update = await session.change(units(uids, FLAG_UNITS), work)
    except PartlyDone:                      # the client is told of the new flags before the NO
        await durable.flushed(session.store, entry)
        raise
    await durable.flushed(session.store, entry)
    reply = session.done(f"{name} completed")
    if command.action is not FlagAction.REMOVE:
        system = int(command.flags.system)
        if system & DELETED:
            session.stream.acts["deleted"] += len(update.uids)
        if system & SEEN and session.login is not None:
            session.login.has_read = True
    code, failed = b"", positions[:0]
    if len(update.modified) or len(update.gone):
        code, failed, positions = await session.of_many(len(uids), lambda: _failing(command, update, uids, positions))
    if command.silent:
        state = await session.change(0, lambda: session.store.status(entry))
        belief = await session.of_many(len(uids), lambda: _believed(session, view, positions, command, state))
        await session.tell(expunges=command.by_uid, by_uid=command.by_uid, belief=belief, always=failed)
    else:
        always = np.union1d(positions, failed) if len(failed) else positions
        await session.tell(expunges=command.by_uid, by_uid=command.by_uid, always=always)
    if len(update.gone) and not command.by_uid and not command.silent:
        return Reply("Some of the messages have been expunged", code or CODES[Problem.GONE], NO)
    return Reply(f"{name}: some messages were changed meanwhile", code) if code else reply


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
    """What a client that asked for silence takes the flags to be now; another session may have made them different."""
    rows = view.rows
    bits, _ = keyword_bits(state, command.flags.keywords, add=False)
    return Belief(positions, _applied(rows["flags"][positions], int(command.flags.system), command.action),
                  _applied(rows["keywords"][positions], bits, command.action),
                  np.zeros(len(positions), np.uint64) if b"CONDSTORE" in session.enabled else None)


def _applied(old: NDArray[Any], bits: int, action: FlagAction) -> NDArray[Any]:
    mask = old.dtype.type(bits)
    if action is FlagAction.REPLACE:
        return np.full_like(old, mask)
    return np.asarray(old | mask if action is FlagAction.ADD else old & ~mask)
