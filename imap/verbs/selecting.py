"""SELECT, EXAMINE, CHECK, CLOSE, UNSELECT, EXPUNGE: RFC 3501 §6.3.1, §6.3.2, §6.4.1 to §6.4.3; RFC 3691, RFC 4315,
RFC 7162."""

import numpy as np
from numpy.typing import NDArray

from imap.session import Session
from imap.snapshotnames import ROOT as SNAPSHOTS
from imap.states import Refused, Reply
from imap.verbs.resync import resync
from imap.view import View
from imap.wire import responses
from imap.wire.commands import status_response
from imap.wire.selecting import Check, Close, Expunge, Select, Unselect
from mboxlist.entry import MailboxEntry
from store.delivery import durable
from store.mailboxes.expunge import expunge as expunge_messages
from store.quota import roots
from store.tables.slices import CHUNK_UNITS, EXPUNGE_UNITS, PartlyDone
from store.tables.state import SEEN


async def select(session: Session, command: Select) -> Reply:
    """Open a mailbox. The one that was selected before is left, also when this fails."""
    if command.resync is not None and b"QRESYNC" not in session.enabled:
        raise Refused("ENABLE QRESYNC must come first", status=responses.BAD)
    session.close()
    if command.condstore:
        session.enable_condstore()
    if command.mailbox.startswith(SNAPSHOTS) and session.snapshots.concerns(command.mailbox):
        view = await session.select_past(command.mailbox)
        session.stream.write(_figures(session, view, command.mailbox))
    else:
        entry = session.entry(command.mailbox, "r")
        view = await session.select(entry, read_only=command.read_only)
        session.stream.write(_figures(session, view, command.mailbox) + _quota_alert(session, view))
    if command.resync is None:
        session.needs_no_look()
    else:
        await resync(session, view, command.resync)
    name = "EXAMINE" if command.read_only else "SELECT"
    return Reply(f"{name} completed", responses.READ_WRITE if _is_read_write(session, view) else responses.READ_ONLY)


def _is_read_write(session: Session, view: View) -> bool:
    r"""Whether the user may change what others see (RFC 4314 §5.2). Flags of the user's own change all the same."""
    entry = view.mailbox.entry
    if view.read_only or not entry.acl and entry.name.owner == session.user:
        return not view.read_only
    own = session.store.private_bits(entry, session.user)
    return not set(session.rights()).isdisjoint("iewt" if own & SEEN else "iewts")


def _quota_alert(session: Session, view: View) -> bytes:
    """An alert (RFC 3501 §7.1) when the user's own quota root is nearly full: once in a session, and again after it has
    been below the threshold. What others use does not concern the user."""
    entry = view.mailbox.entry
    if entry.name.owner != session.user:
        return b""
    root = view.mailbox.state.quota_root
    warning = roots.warning(session.store, entry, root)
    if warning is None:
        session.warned.discard(root)
    if warning is None or root in session.warned:
        return b""
    session.warned.add(root)
    return status_response(None, responses.NO, warning.text, b"ALERT")


def _figures(session: Session, view: View, supplied: str) -> bytes:
    """The figures of a mailbox that a client must know first (RFC 3501 §6.3.1; RFC 9051 §6.3.2, which has others)."""
    state, described, recent, unseen = view.mailbox.state, view.flags_line(), None, None
    if session.rev2:
        described += _list_line(session, view.mailbox.entry, supplied)
    else:
        recent, unseen = view.recent_count(), view.first_unseen()
    return responses.selected(len(view.rows), described, recent, unseen, state.uidvalidity, state.uidnext,
                              state.highestmodseq)


def _list_line(session: Session, entry: MailboxEntry, supplied: str) -> bytes:
    """The LIST line with the mailbox's real name, whatever the client called it, and its special use."""
    shown, own = entry.name.to_client(session.user), entry.name.owner == session.user
    attributes = [entry.special_use.encode("ascii")] if own and entry.special_use else []
    return responses.listed(attributes, shown, oldname=None if shown == supplied else supplied, utf8=True)


async def check(session: Session, command: Check) -> Reply:
    """Do nothing: a checkpoint is not needed, since everything is on disk before every OK."""
    return Reply("CHECK completed")


async def close(session: Session, command: Close) -> Reply:
    r"""Remove the messages with \Deleted without telling, unless opened read-only, and leave the mailbox."""
    view = session.selected()
    if not view.read_only and "e" in session.rights():
        await _expunge(session, view.mailbox.entry)
    reply = session.done("CLOSE completed")
    session.leave()
    return reply


async def unselect(session: Session, command: Unselect) -> Reply:
    """Leave the mailbox as it is."""
    session.leave()
    return Reply("UNSELECT completed")


async def expunge(session: Session, command: Expunge) -> Reply:
    r"""Remove the messages with \Deleted, all or those named by UID; the end of the command tells which."""
    view = session.writable("e")
    uids = None if command.uids is None else view.uids[view.positions(command.uids, by_uid=True)]
    await _expunge(session, view.mailbox.entry, uids)
    return session.done("EXPUNGE completed" if command.uids is None else "UID EXPUNGE completed")


async def _expunge(session: Session, entry: MailboxEntry, uids: NDArray[np.uint32] | None = None) -> None:
    deleted = (await session.change(0, lambda: session.store.status(entry))).deleted
    if not deleted:
        return
    try:
        gone = await session.change(deleted * (EXPUNGE_UNITS + CHUNK_UNITS), lambda: expunge_messages(
            session.store, entry, uids))
    except PartlyDone:                      # the client is told which before the NO
        await durable.flushed(session.store, entry)
        raise
    if gone:
        await durable.flushed(session.store, entry)
    session.stream.acts["expunged"] += len(gone)
