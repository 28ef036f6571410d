"""CREATE, DELETE, RENAME, SUBSCRIBE, UNSUBSCRIBE (RFC 3501 §6.3.3 to §6.3.7), special use (RFC 6154), NAMESPACE."""

from collections.abc import Callable, Sequence
from contextlib import closing

from imap.session import Session
from imap.snapshotnames import PREFIX
from imap.states import Refused, Reply
from imap.wire import responses
from imap.wire.mailboxes import Create, Delete, Namespace, Rename, Subscribe, Unsubscribe
from mboxlist.names import OTHERS, PUBLIC, SEPARATOR, MailboxName
from store import offload
from store.errors import Problem, StoreError
from store.mailboxes import authorization, deletion, subscribing
from store.mailboxes import namespace as mailbox_namespace
from store.settings import SPECIAL_USES


async def create(session: Session, command: Create) -> Reply:
    """Make a mailbox. A separator at the end only announces that others will follow below it (RFC 3501 §6.3.3)."""
    name = session.name(_without_separator(command.mailbox))
    _may_create(session, name)
    use = await offload.run(session.store, "names", _special_use, session, name, command.special_uses) if (
        command.special_uses) else None
    await _named(session, name, lambda: mailbox_namespace.create_mailbox(session.store, name, special_use=use))
    reply = session.done("CREATE completed")
    _tell_name(session, name, _without_separator(command.mailbox))
    return reply


async def delete(session: Session, command: Delete) -> Reply:
    """Delete a mailbox; those below it stay."""
    name = session.name(command.mailbox)
    if name.is_inbox():
        raise Refused("INBOX cannot be deleted", b"CANNOT")
    try:
        entry = session.entry(command.mailbox, "x")
    except StoreError as error:
        if error.problem is Problem.NO_MAILBOX and await offload.run(session.store, "names", _has_below, session, name):
            raise Refused("The name only stands for the mailboxes below it", b"HASCHILDREN") from error
        raise
    if session.view is not None and session.view.mailbox.entry.id == entry.id:
        session.leave()
    await session.patiently(offload.run(session.store, "names", lambda: deletion.delete_mailbox(session.store,
                                                                                                entry.name)))
    reply = session.done("DELETE completed")
    session.stream.acts["removed"] += 1
    _tell_name(session, name, command.mailbox, [b"\\NonExistent"])
    return reply


async def rename(session: Session, command: Rename) -> Reply:
    """Rename a mailbox and all below it. INBOX itself stays, and its messages move (RFC 3501 §6.3.5)."""
    old, new = session.name(command.old), session.name(_without_separator(command.new))
    await offload.run(session.store, "names", _may_rename, session, old)       # it may look at all that is below it
    _may_create(session, new)
    if new.is_inbox():
        raise StoreError(Problem.MAILBOX_EXISTS)
    await _named(session, new, lambda: mailbox_namespace.rename_mailbox(session.store, old, new))
    reply = session.done("RENAME completed")
    if command.old != old.to_client(session.user) or _without_separator(command.new) != new.to_client(session.user):
        _tell_name(session, new, command.old)
    return reply


async def subscribe(session: Session, command: Subscribe) -> Reply:
    """Put a name on the user's list. It must exist when it is put there, or have mailboxes below it (§6.3.6)."""
    if session.snapshots.concerns(command.mailbox):        # it would be synchronized, and is gone after a few days
        raise Refused("Snapshots cannot be subscribed to", b"CANNOT")
    name = session.name(_without_separator(command.mailbox))
    await offload.run(session.store, "names", _subscribe, session, name)
    return session.done("SUBSCRIBE completed")


async def unsubscribe(session: Session, command: Unsubscribe) -> Reply:
    """Take a name off the user's list; the mailbox may not exist any more."""
    name = session.name(_without_separator(command.mailbox))
    await offload.run(session.store, "names", subscribing.unsubscribe, session.store, session.user,
                      name.to_client(session.user))
    return session.done("UNSUBSCRIBE completed")


async def namespace(session: Session, command: Namespace) -> Reply:
    """The name spaces: one's own mailboxes, other users', and public ones (RFC 2342)."""
    snapshots = [PREFIX] if session.snapshots.granted else []
    session.stream.write(responses.namespace([""], [OTHERS], [PUBLIC, *snapshots]))
    return Reply("NAMESPACE completed")


def _subscribe(session: Session, name: MailboxName) -> None:
    if not _is_known(session, name):        # it may look at all that is below it
        raise StoreError(Problem.NO_MAILBOX)
    subscribing.subscribe(session.store, session.user, name.to_client(session.user))


async def _named(session: Session, name: MailboxName, work: Callable[[], object]) -> None:
    """Give a mailbox that name. The answer does not say whether another one, which the user may not look up, has that
    name (RFC 4314 §6)."""
    try:
        await session.patiently(offload.run(session.store, "names", work))
    except StoreError as error:
        if error.problem is Problem.MAILBOX_EXISTS and name.owner != session.user:
            entry = session.store.mailboxes.find(name)
            if entry is None or not authorization.may(session.store, session.user, entry, "l"):
                raise StoreError(Problem.NO_PERMISSION) from error
        raise


def _tell_name(session: Session, name: MailboxName, supplied: str, attributes: Sequence[bytes] = ()) -> None:
    """Tell a client of IMAP4rev2 the real name of a mailbox, if that is not the name it supplied (RFC 9051 §6.3.4)."""
    shown = name.to_client(session.user)
    if session.rev2 and shown != supplied:
        session.stream.write(responses.listed(attributes, shown, oldname=supplied, utf8=session.utf8))


def _is_known(session: Session, name: MailboxName) -> bool:
    """Whether there is a mailbox of that name, or below it, that the user may know of."""
    if name.owner != session.user:
        return authorization.sees_any(session.store, session.user, name)
    return session.store.mailboxes.find(name) is not None or _has_below(session, name)


def _has_below(session: Session, name: MailboxName) -> bool:
    """Whether the user may know of mailboxes below that name."""
    if name.owner != session.user:
        return authorization.sees_any(session.store, session.user, name, itself=False)
    with closing(session.store.mailboxes.below(name.owner, name.path)) as below:       # type: ignore[type-var]
        return next(below, None) is not None


def _may_create(session: Session, name: MailboxName) -> None:
    """Raises StoreError NO_PERMISSION, BAD_NAME if the user may not make that mailbox.

    The user may not find out whether others' mailboxes, or their owners, exist: the refusal is always the same. And a
    user's own mailbox may not have the name of another name space: what is below it would look like others' mailboxes.
    """
    if not authorization.may_create(session.store, session.user, name):
        raise StoreError(Problem.NO_PERMISSION)
    if name.owner and name.path.partition(SEPARATOR)[0] + SEPARATOR in (OTHERS, PUBLIC, PREFIX):
        raise StoreError(Problem.BAD_NAME, "That is the name of a name space")


def _may_rename(session: Session, old: MailboxName) -> None:
    """Require the right to delete (RFC 4314 §4) on the mailbox. If the name only stands above others, on all of those,
    also on those that the user may not look up.

    Raises StoreError NO_MAILBOX, NO_PERMISSION.
    """
    known, top = _is_known(session, old), session.store.mailboxes.find(old)
    if top is None and not known:
        raise StoreError(Problem.NO_MAILBOX if old.owner == session.user else Problem.NO_PERMISSION)
    moved = [top] if top is not None else list(session.store.mailboxes.below(old.owner, old.path))
    if not all(authorization.may(session.store, session.user, entry, "x") for entry in moved):
        raise StoreError(Problem.NO_PERMISSION)


def _without_separator(name: str) -> str:
    return name[:-1] if name.endswith(SEPARATOR) else name


def _special_use(session: Session, name: MailboxName, wanted: tuple[str, ...]) -> str | None:
    """The special use of a new mailbox. It has one at most, which no other mailbox may have; and nobody gives one to
    somebody else's mailbox.

    Raises Refused with USEATTR (RFC 6154 §3).
    """
    known = {use.lower(): use for use in SPECIAL_USES}
    use = known.get(wanted[0].lower())
    if use is None or len(wanted) > 1 or name.owner != session.user:
        raise Refused("A mailbox cannot be made for that use", b"USEATTR")
    if any(entry.special_use == use for entry in session.store.names(session.user)):
        raise Refused("There is a mailbox for that use already", b"USEATTR")
    return use
