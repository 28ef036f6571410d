"""The commands of a client that may change nothing, since it has logged in by an app password for reading. Only this
module says what it may do: a command that is not named here is refused, so a new command is, too.

Each SELECT is an EXAMINE (RFC 3501 §6.3.2). So CLOSE expunges nothing, and FETCH sets no \\Seen.
"""

from collections.abc import Mapping
from typing import Any

from attrs import evolve

from imap.session import Session, Verb
from imap.states import Refused, Reply
from imap.wire.accesscontrol import GetAcl, ListRights, MyRights
from imap.wire.connection import Capability, Enable, Id, Idle, Logout, Noop, StartTls, Unauthenticate
from imap.wire.fetch import Fetch
from imap.wire.listing import List, Lsub, Status
from imap.wire.login import Authenticate, Login
from imap.wire.mailboxes import Namespace
from imap.wire.metadata import GetMetadata
from imap.wire.quotaroots import GetQuota, GetQuotaRoot
from imap.wire.search import Search
from imap.wire.selecting import Check, Close, Select, Unselect
from imap.wire.sorting import Sort, Thread

_ALLOWED = frozenset({
    Capability, Noop, Logout, StartTls, Id, Enable, Idle, Unauthenticate, Login, Authenticate, Namespace, List, Lsub,
    Status, GetAcl, ListRights, MyRights, GetMetadata, GetQuota, GetQuotaRoot, Check, Close, Unselect, Search, Sort,
    Thread, Fetch})


def refusal() -> Refused:
    """The answer to a command that would change something (RFC 5530 NOPERM)."""
    return Refused("This app password is only for reading", b"NOPERM")


def reading(verbs: Mapping[type[Any], Verb]) -> dict[type[Any], Verb]:
    """The commands for such a client."""
    async def refused(session: Session, command: Any) -> Reply:
        raise refusal()

    async def examine(session: Session, command: Select) -> Reply:
        return await verbs[Select](session, evolve(command, read_only=True))

    return {**{kind: verb if kind in _ALLOWED else refused for kind, verb in verbs.items()}, Select: examine}
