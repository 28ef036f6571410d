"""COPY and MOVE: RFC 3501 §6.4.7, RFC 6851 §3; COPYUID is RFC 4315 §3."""

from imap import noting
from imap.session import QUICK_UNITS, Session
from imap.states import Refused, Reply
from imap.wire import responses
from imap.wire.copying import Copy
from mboxlist.entry import MailboxEntry
from store.errors import Problem, StoreError
from store.mailboxes import authorization, crosspartition
from store.mailboxes.copymessages import PartlyMoved
from store.tables.slices import COPY_UNITS, MOVE_UNITS, units


async def copy(session: Session, command: Copy) -> Reply:
    """Copy or move all of the messages, or none.

    When they are named by UID, vanished messages are left out; when they are named by number, these make the command
    fail. The end of the command tells what was moved away.
    """
    view = session.writable("te") if command.remove else session.selected()
    name = ("UID " if command.by_uid else "") + ("MOVE" if command.remove else "COPY")
    source = view.mailbox.entry
    positions = view.positions(command.messages, by_uid=command.by_uid)
    target = session.target(command.target)
    if command.by_uid:
        await session.tell(expunges=False, by_uid=True)
        positions = view.still_there(positions)
    uids = view.uids[positions]
    if not len(uids):
        return Reply(f"{name} completed, there was nothing to do")

    progress, snapshot = session.progress(), session.snapshots.snapshot is not None
    try:
        if snapshot:
            copying = session.snapshots.copy(view.mailbox, target, uids, progress)
        else:
            copying = crosspartition.copy_durably(
                session.store, source, target, uids, remove=command.remove, reader=session.user,
                at_once=units(uids, MOVE_UNITS if command.remove else COPY_UNITS) <= QUICK_UNITS, progress=progress,
                event_of=session.event_of(target))
        new = await session.patiently(copying, progress)
    except StoreError as error:
        _tell_moved(session, target, error)
        if error.problem is Problem.NO_MAILBOX:
            if not snapshot:
                session.store.status(source)        # raises this, too, if the source is gone
            raise Refused("There is no such mailbox", responses.TRYCREATE) from error
        noting.refused(session.store.delivery_log, name, session.stream, session.user, target, error)
        raise
    session.done(f"{name} completed")
    code = await session.of_many(len(uids), lambda: responses.copyuid(target.uidvalidity, uids, new))
    if not authorization.may(session.store, session.user, target, "r"):
        code = b""                              # RFC 4315 §3
    if not command.remove:
        return Reply(f"{name} completed", code)
    session.stream.acts["expunged"] += len(uids)
    # Before the numbers of what was moved go: RFC 6851 §4.3.
    if code:
        session.stream.write(responses.ok(None, "Moved", code))
    if b"CONDSTORE" in session.enabled:
        return Reply(f"{name} completed")       # HIGHESTMODSEQ comes with what is told
    await session.tell(expunges=True, by_uid=command.by_uid)
    return Reply(f"{name} completed", responses.highestmodseq(view.modseq))       # §4.4


def _tell_moved(session: Session, target: MailboxEntry, error: StoreError) -> None:
    """Tell what has been moved before the rest was refused."""
    if isinstance(error, PartlyMoved) and authorization.may(session.store, session.user, target, "r"):
        session.stream.write(responses.ok(None, "Moved", responses.copyuid(target.uidvalidity, error.uids, error.new)))
