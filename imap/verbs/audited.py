"""What commands note in the audit trail (`store/audit`), after they are done and before the client hears of it.

For everybody: changed ACLs and limits, deleted mailboxes, and messages that are removed in mailboxes of others. For an
administrator who acts as a user also what is removed, opened and searched. What users do in their own mailboxes is not
noted. There is one line for a command; it does not say what was searched for.
"""

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

from imap.session import Session, Verb
from imap.states import Refused, Reply
from imap.wire.accesscontrol import DeleteAcl, SetAcl
from imap.wire.copying import Copy
from imap.wire.grammar import SyntaxProblem
from imap.wire.mailboxes import Delete
from imap.wire.quotaroots import SetQuota
from imap.wire.search import Search
from imap.wire.selecting import Close, Expunge, Select
from imap.wire.sorting import Sort, Thread
from store.audit.sessionaudit import Pace, note
from store.errors import StoreError
from store.tables.slices import PartlyDone

REFUSALS = (StoreError, Refused, SyntaxProblem)     # after which nothing has been done, but for PartlyDone

Facts = Callable[[Session, Any], Mapping[str, Any] | None]      # None: it is not noted; called before the command


def _noting(kind: str, what: str, verb: Verb, facts: Facts, *, counts: bool = False) -> Verb:
    """The command, made to be noted. `counts`: only if it has removed messages."""
    @wraps(verb)
    async def carried_out(session: Session, command: Any) -> Reply:
        noted = facts(session, command)
        if noted is None:
            return await verb(session, command)
        before, acts = session.stream.acts["expunged"], session.stream.acts
        try:
            reply = await verb(session, command)
        except Exception as error:
            if isinstance(error, PartlyDone) or not isinstance(error, REFUSALS):
                await _note(session, kind, what, noted,
                            result="in part" if isinstance(error, PartlyDone) else "unknown")
            raise
        removed = acts["expunged"] - before
        if removed or not counts:
            await _note(session, kind, what, noted, messages=removed or None)
        return reply

    return carried_out


async def _note(session: Session, kind: str, what: str, noted: Mapping[str, Any], **more: Any) -> None:
    actor = session.login.admitted.authenticated if session.login is not None else session.user
    await note(session.store, kind, what, actor=actor, user=session.user if session.user != actor else None,
               address=session.stream.peer, service="imap", session=session.stream.id,
               app_password=session.app_password or None, **noted, **more)
    if kind != "quota":         # which only administrators have
        late = Pace.of(session.store).wait(actor, noted, session.clock.seconds())
        if late:
            await session.stream.pause(late)


def _of_mailbox(session: Session, command: Any) -> Mapping[str, Any]:
    return {"mailbox": command.mailbox, "owner": _owner(session, command.mailbox)}


def _owner(session: Session, name: str) -> str | None:
    """The owner of that mailbox, if it is not the user."""
    try:
        owner = session.name(name).owner
    except StoreError:
        return None
    return owner if owner != session.user else None


def _of_acl(session: Session, command: SetAcl | DeleteAcl) -> Mapping[str, Any]:
    return {**_of_mailbox(session, command), "identifier": command.identifier,
            "rights": getattr(command, "modification", None)}


def _of_limits(session: Session, command: SetQuota) -> Mapping[str, Any]:
    limits = [f"{name.decode('ascii', 'replace')} {most}" for name, most in command.limits]
    return {"root": command.root, "limits": limits}


def _of_others(session: Session, command: Close | Expunge | Copy) -> Mapping[str, Any] | None:
    """Facts of a command that removes messages: in mailboxes of others, and by an administrator who acts as a user."""
    if session.view is None or isinstance(command, Copy) and not command.remove:
        return None
    name = session.view.mailbox.entry.name
    if name.owner == session.user and not session.acts:
        return None
    target = {"target": command.target} if isinstance(command, Copy) else {}
    return {"mailbox": str(name), "owner": name.owner if name.owner != session.user else None, **target}


def _of_selected(session: Session, command: Search | Sort | Thread) -> Mapping[str, Any]:
    return {"mailbox": str(session.view.mailbox.entry.name) if session.view is not None else None}


def audited(verbs: Mapping[type[Any], Verb]) -> dict[type[Any], Verb]:
    """The commands for everybody; those that change what others have note what they do."""
    return {**verbs,
            SetAcl: _noting("share", "SETACL", verbs[SetAcl], _of_acl),
            DeleteAcl: _noting("share", "DELETEACL", verbs[DeleteAcl], _of_acl),
            SetQuota: _noting("quota", "SETQUOTA", verbs[SetQuota], _of_limits),
            Delete: _noting("delete", "DELETE", verbs[Delete], _of_mailbox),
            Expunge: _noting("delete", "EXPUNGE", verbs[Expunge], _of_others, counts=True),
            Close: _noting("delete", "CLOSE", verbs[Close], _of_others, counts=True),
            Copy: _noting("delete", "MOVE", verbs[Copy], _of_others, counts=True)}


def watched(verbs: Mapping[type[Any], Verb]) -> dict[type[Any], Verb]:
    """The commands for an administrator who acts as a user: those that read note it, too."""
    return {**verbs,
            Select: _noting("read", "SELECT", verbs[Select], _of_mailbox),
            **{kind: _noting("search", kind.__name__.upper(), verbs[kind], _of_selected)
               for kind in (Search, Sort, Thread)}}
