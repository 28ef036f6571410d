"""SETACL, DELETEACL, GETACL, LISTRIGHTS, MYRIGHTS: RFC 4314 §3.

A mailbox that the user may not look up is answered like one that is not there (§6); `Session.entry` does that. And any
identifier can be in a list, so that nobody finds out by trying names who has an account here.
"""

from imap.session import Session
from imap.states import Reply
from imap.verbs import snapshots
from imap.wire.accesscontrol import (
    DeleteAcl,
    GetAcl,
    ListRights,
    MyRights,
    SetAcl,
    format_acl,
    format_listrights,
    format_myrights,
)
from mboxlist import acl
from mboxlist.entry import MailboxEntry
from store import offload
from store.errors import Problem, StoreError
from store.mailboxes import authorization

ONLY_READING = "lr"         # the rights of a client that may change nothing


async def set_acl(session: Session, command: SetAcl) -> Reply:
    """Change what an identifier may do with a mailbox. The rights that its owner always has stay (see LISTRIGHTS)."""
    entry = session.entry(command.mailbox, "a")
    modification = command.modification
    if not modification and _is_owner(session, entry, command.identifier):
        modification = acl.ALWAYS_OWNER         # to the store, no rights mean that the owner is not in the list
    await _change(session, entry, command.identifier, modification)
    return session.done("SETACL completed")


async def delete_acl(session: Session, command: DeleteAcl) -> Reply:
    """Take an identifier off the list. A user may still have rights by another entry; the owner then has all rights."""
    await _change(session, session.entry(command.mailbox, "a"), command.identifier, "")
    return session.done("DELETEACL completed")


async def _change(session: Session, entry: MailboxEntry, identifier: str, modification: str) -> None:
    await offload.run(session.store, "names",
                      lambda: authorization.set_acl(session.store, entry.name, identifier, modification, any_name=True))


async def get_acl(session: Session, command: GetAcl) -> Reply:
    """The list. An owner whom it does not name has all rights, and comes first."""
    entry = session.entry(command.mailbox, "a")
    entries = [(identifier, held) for identifier, held in entry.acl.items() if identifier != entry.name.owner]
    if entry.name.owner:
        held = entry.acl.get(entry.name.owner, acl.RIGHTS)
        entries.insert(0, (entry.name.owner, held))
    session.stream.write(format_acl(entry.name.to_client(session.user), entries, utf8=session.utf8))
    return Reply("GETACL completed")


async def list_rights(session: Session, command: ListRights) -> Reply:
    """Which rights an identifier can be given. The answer has the identifier as it was written (§3.4)."""
    entry = session.entry(command.mailbox, "a")
    always, optional = acl.grantable(command.identifier, owner=_is_owner(session, entry, command.identifier))
    session.stream.write(format_listrights(entry.name.to_client(session.user), command.identifier, always, optional,
                                           utf8=session.utf8))
    return Reply("LISTRIGHTS completed")


async def my_rights(session: Session, command: MyRights) -> Reply:
    """The user's own rights on a mailbox, for a user who has any right by which the mailbox may be known."""
    if session.snapshots.concerns(command.mailbox):
        return await snapshots.my_rights(session, command)
    entry = session.store.entry(session.name(command.mailbox))
    if not authorization.knows(session.store, session.user, entry):
        raise StoreError(Problem.NO_MAILBOX)
    session.stream.write(format_myrights(entry.name.to_client(session.user), own_rights(session, entry),
                                         utf8=session.utf8))
    return Reply("MYRIGHTS completed")


def own_rights(session: Session, entry: MailboxEntry) -> str:
    """What this client may do: those of the user's rights that its login leaves to it."""
    held = authorization.rights(session.store, session.user, entry)
    return "".join(right for right in held if right in ONLY_READING) if session.only_reads else held


def _is_owner(session: Session, entry: MailboxEntry, identifier: str) -> bool:
    """Whether the identifier is the owner of the mailbox, in any case of letters. Aliases are identifiers like any
    others: nobody may find out here that an address is somebody's."""
    return acl.is_user(identifier) and session.store.directory.user_id(identifier) == entry.name.owner
