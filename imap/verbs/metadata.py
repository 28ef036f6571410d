"""GETMETADATA and SETMETADATA: RFC 5464 §3, §4.

The annotations of the server say which script runs on events of IMAP (RFC 6785 §2.3.1). Administrators choose that
(`sieve.imap_script`). Who may administer a mailbox chooses which script of its owner's runs in it. Annotations that
onecopy itself uses (rules of expiry) are for the site's administrators.

Annotations are in the databases of the list, which quota does not count. So clients may set only few, and short ones.
"""

from collections.abc import Iterable

from imap.session import Session
from imap.states import Refused, Reply
from imap.wire.metadata import GetMetadata, SetMetadata, format_metadata
from mboxlist.annotations import EVENT_SCRIPT, OURS, PRIVATE, SHARED, is_legal
from mboxlist.entry import MailboxEntry
from store import offload
from store.errors import Problem, StoreError
from store.mailboxes import authorization

LONGEST = 4096                          # octets of a value that a client sets
MOST = 32                               # entries of a mailbox for all and of the client's own, when it adds one
READERS = frozenset("rswip")            # one of these is needed, beside `l` (RFC 5464 §3.3)


async def get_metadata(session: Session, command: GetMetadata) -> Reply:
    """Tell the values of entries, and with DEPTH of those below them. An entry that is asked for by name and has no
    value is NIL."""
    if command.mailbox:
        entry = _entry(session, command.mailbox)
        shown = entry.name.to_client(session.user)
        there = authorization.annotations(session.store, entry, session.user)
    else:
        shown, script = "", session.store.event_script
        there = {EVENT_SCRIPT: script.encode()} if script else {}
    found: dict[str, bytes | None] = {}
    for name in command.names:
        below = [each for each in sorted(there) if each == name or each.startswith(f"{name}/")
                 and each[len(name):].count("/") <= command.depth]
        found |= {each: there[each] for each in below}
        if not command.depth:
            found.setdefault(name, None)
    longest = max((len(value) for value in found.values() if value is not None), default=0)
    if command.most is not None:
        found = {name: value for name, value in found.items() if value is None or len(value) <= command.most}
    if found:
        session.stream.write(format_metadata(shown, found.items(), utf8=session.utf8))
    too_long = command.most is not None and longest > command.most
    return Reply("GETMETADATA completed", b"METADATA LONGENTRIES %d" % longest if too_long else b"")


async def set_metadata(session: Session, command: SetMetadata) -> Reply:
    """Set or remove entries of a mailbox: all or none."""
    values = command.values
    if any(not is_legal(name, private=name.startswith(PRIVATE)) for name in values):
        raise Refused(f"Names of entries begin with {PRIVATE} or {SHARED}", b"CANNOT")
    if not command.mailbox:
        if any(name.startswith(PRIVATE) for name in values):
            raise Refused("The server has no private annotations", b"METADATA NOPRIVATE")
        raise Refused("What is said of the server is set by its administrators", b"NOPERM")
    entry = _entry(session, command.mailbox)
    _require_rights(session, entry, values)
    if any(value is not None and len(value) > LONGEST for value in values.values()):
        raise Refused("That value is too long", b"METADATA MAXSIZE %d" % LONGEST)
    there = authorization.annotations(session.store, entry, session.user)
    added = {name for name, value in values.items() if value is not None} - there.keys()
    if added and len(there) + len(added) > MOST:
        raise Refused("The mailbox has too many annotations", b"METADATA TOOMANY")
    owned = {(name, session.user if name.startswith(PRIVATE) else ""): value for name, value in values.items()}
    try:
        await offload.run(session.store, "names", authorization.annotate_all, session.store, entry, owned)
    except StoreError as error:
        if error.problem is Problem.LIMIT:
            raise Refused("The mailbox has too many annotations", b"METADATA TOOMANY") from error
        raise
    return session.done("SETMETADATA completed")


def _entry(session: Session, mailbox: str) -> MailboxEntry:
    """Raises StoreError NO_MAILBOX, NO_PERMISSION."""
    entry = session.entry(mailbox, "l")
    if READERS.isdisjoint(authorization.rights(session.store, session.user, entry)):
        raise StoreError(Problem.NO_PERMISSION)
    return entry


def _require_rights(session: Session, entry: MailboxEntry, names: Iterable[str]) -> None:
    """Entries that all can see need a right to write there. Raises StoreError NO_PERMISSION."""
    for name in names:
        if name.startswith(OURS):
            raise StoreError(Problem.NO_PERMISSION)
        if not name.startswith(PRIVATE):
            session.granted(entry, "a" if name == EVENT_SCRIPT else "w")
