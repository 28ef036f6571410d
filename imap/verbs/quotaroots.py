"""GETQUOTA, GETQUOTAROOT, SETQUOTA: RFC 9208 §4.1.

A user sees its own quota roots, and those of public mailboxes that it may read. Others' roots are answered like roots
that are not there (§8). Administrators (`imap.admins`) set limits; they see all roots, and only they are told of
QUOTASET. The right `a` on a mailbox (§6) does not suffice: its owner has it, and could give itself room by it.
"""

from collections.abc import Iterator

from imap.session import Session
from imap.states import Refused, Reply
from imap.verbs import snapshots
from imap.wire.grammar import MAX_NUMBER64
from imap.wire.quotaroots import GetQuota, GetQuotaRoot, SetQuota, format_quota, format_quotaroot
from mboxlist.names import PUBLIC, MailboxName
from store import offload
from store.errors import Problem, StoreError
from store.mailboxes import authorization
from store.quota import roots as quotaroots
from store.quota.roots import root_of
from store.tables.quotatable import DOMAIN, UNLIMITED

UNIT = 1024         # octets in a unit of STORAGE (§5.1)
RESOURCES = (b"STORAGE", b"MESSAGE")


async def get_quota(session: Session, command: GetQuota) -> Reply:
    """Use and limits of a quota root."""
    root = command.root
    seen = (await offload.run(session.store, "names", _may_see, session, root) if root.startswith(PUBLIC)    # of many
            else _may_see(session, root))
    if not seen:
        raise Refused("There is no such quota root", b"NONEXISTENT")
    session.stream.write(_quota(session, command.root))
    return Reply("GETQUOTA completed")


async def get_quota_root(session: Session, command: GetQuotaRoot) -> Reply:
    """The quota root of a mailbox, with its use and limits. The mailbox need not exist if it would be the user's own.
    """
    if session.snapshots.concerns(command.mailbox):
        return await snapshots.get_quota_root(session, command)
    name = session.name(command.mailbox)
    root = _root(session, name, command.mailbox)
    roots = [root] if _is_own(session, root) or root.startswith(PUBLIC) else []
    session.stream.write(format_quotaroot(name.to_client(session.user), roots, utf8=session.utf8))
    for each in roots:
        session.stream.write(_quota(session, each))
    return Reply("GETQUOTAROOT completed")


async def set_quota(session: Session, command: SetQuota) -> Reply:
    """Change the limits of a quota root. A resource that the command does not name has no limit afterwards (§4.1.3)."""
    if not session.administrator:
        raise Refused("Quotas are set by administrators", b"NOPERM")
    limits = dict(command.limits)
    if not limits.keys() <= set(RESOURCES):
        raise Refused("That resource is not limited here", b"CANNOT")
    octets, messages = limits.get(b"STORAGE"), limits.get(b"MESSAGE")
    if octets is not None and octets > MAX_NUMBER64 // UNIT:
        raise Refused("That is more than a limit can be", b"LIMIT")
    await offload.run(session.store, "names", lambda: quotaroots.set_quota(session.store,
        command.root, UNLIMITED if octets is None else octets * UNIT, UNLIMITED if messages is None else messages))
    reply = session.done("SETQUOTA completed")
    session.stream.write(_quota(session, command.root))
    return reply


def _quota(session: Session, root: str) -> bytes:
    """The QUOTA response, without resources that have no limit (§4.2.1)."""
    settings = session.store.settings
    use = quotaroots.quota(session.store, root)
    octets, messages = use.limits(settings)
    resources = []
    if octets is not None:
        resources.append((b"STORAGE", _units(use.octets), _units(octets)))
    if messages is not None:
        resources.append((b"MESSAGE", use.messages, messages))
    return format_quota(root, resources)


def _units(octets: int) -> int:
    """Use and limit, both rounded up: so what is full looks full, and what is in use is never 0."""
    return -(-octets // UNIT)


def _root(session: Session, name: MailboxName, text: str) -> str:
    """The quota root that the mailbox is charged to, or would be. Raises StoreError NO_MAILBOX, NO_PERMISSION (the
    right is `r`)."""
    try:
        entry = session.entry(text, "r")
        return session.store.partition_of(entry).quota_root(entry.id)
    except StoreError as error:
        if name.owner != session.user or error.problem is not Problem.NO_MAILBOX:
            raise
    return root_of(name, set(_own_roots(session)))


def _own_roots(session: Session) -> Iterator[str]:
    """The user's own roots that its mailboxes have."""
    for partition in session.store.partitions.values():
        yield from partition.quotas.roots_below(session.user)


def _is_own(session: Session, root: str) -> bool:
    return root == session.user or root.startswith(session.user + "/")


def _may_see(session: Session, root: str) -> bool:
    if session.administrator and _exists(session, root):
        return True
    if root.startswith(PUBLIC):
        return any(authorization.may(session.store, session.user, entry, "r")
                   and session.store.partition_of(entry).quota_root(entry.id) == root
                   for entry in authorization.visible(session.store, session.user) if not entry.name.owner)
    return root == session.user or root in _own_roots(session)


def _exists(session: Session, root: str) -> bool:
    """Whether the root is a domain's or a user's, or a mailbox has it."""
    if root.startswith(DOMAIN) or session.store.directory.find(root) is not None:
        return True
    return any(partition.quotas.has(root) for partition in session.store.partitions.values())
