"""Which role may carry out which operation, on whom. Whatever is not named here, only an administrator may."""

from collections.abc import Collection, Mapping
from typing import Any

from attrs import frozen

from mboxlist import acl
from mboxlist.acl import identifiers
from store.errors import StoreError
from store.store import Store
from store.values import size
from tools.cli.lookup import account
from tools.http.apitokens import ADMINISTRATOR, AUDITOR, HELPDESK
from tools.http.webpages import Refused

_ALL: frozenset[str] | None = None      # every argument

OWNER = "owner"         # a user who has shown the password a moment ago, in the console: no token has this role

# What changes nothing, and with which arguments.
READING: dict[str, frozenset[str] | None] = {
    **dict.fromkeys((
        "user list", "user show", "directory status", "mailbox list", "mailbox info", "mailbox status", "path",
        "hashdir", "uidl list", "partition list", "quota show", "quota check", "quota sharing", "expire rules",
        "expire last", "sieve list", "sieve show", "sieve stats", "snapshot list", "snapshot verify", "snapshot diff",
        "config show", "config diff", "config check", "status", "stats", "explain message", "explain access",
        "explain quota", "explain login", "token list", "access list", "audit show", "audit verify",
        "audit head", "outbox list"), _ALL),
    "connections": frozenset({"user", "address", "protocol", "mailbox", "idle", "most"}),
    "mailbox acl": frozenset({"user", "mailbox"}),
    "logins": frozenset({"user", "address"})}
#: The own mail of earlier, with subjects: in the console a user may see that whom `imap.time_travel` lets look into
#: snapshots, as by IMAP.
OF_SNAPSHOTS = frozenset({"snapshot browse", "snapshot copy"})
# A token of a user reads no mail; so it makes no app password, and shares no mailbox: both would let somebody read.
_OWN: dict[str, frozenset[str] | None] = {
    **dict.fromkeys((
        "user show", "mailbox list", "mailbox info", "undelete", "mailbox undelete", "explain quota", "access list",
        "access revoke"), _ALL),
    "connections": frozenset({"user", "ids", "end"}),
    "mailbox acl": frozenset({"user", "mailbox"})}
_OF_A_DOMAIN: dict[str, frozenset[str] | None] = {
    **_OWN, "user list": frozenset({"domain", "removed", "match", "most", "after"}),
    "user set": frozenset({"user", "status", "password_stdin"}),
    "explain login": _ALL, "access reset": _ALL,
    **dict.fromkeys(("mailbox create", "mailbox rename", "mailbox delete"), _ALL),
    "quota set": frozenset({"root", "octets"})}
_OF_A_PERSON: dict[str, frozenset[str] | None] = {                  # in the console
    **_OWN, **dict.fromkeys((*OF_SNAPSHOTS, "sieve list", "sieve get"), _ALL),
    "mailbox acl": frozenset({"user", "mailbox", "entries", "remove"}),
    "sieve put": frozenset({"user", "name", "activate"}), "sieve activate": frozenset({"user", "name"})}
_OF_AN_OWNER: dict[str, frozenset[str] | None] = {**_OWN, "user set": frozenset({"user", "password_stdin"})}
_WHOM = {"quota set": "root"}           # the argument that says whom it is about: elsewhere "user"
_OF_ALL = "user list"                   # about nobody alone: it has the domain
_MAILBOXES = ("mailbox", "mailboxes", "name", "as", "into")
_OTHERS = ("user", "public")            # with which the names of other users' mailboxes begin


@frozen
class Asker:
    """Who has operations carried out: by the API (`service` "http") one with a token, whose id is the name; by the
    console ("console") an account. Role and scope are as tokens have them."""

    service: str
    name: str
    role: str
    scope: str = ""
    peer: str = "local"
    session: str = ""           # the id of the connection, in the log

    @property
    def id(self) -> str:
        """As the log names it."""
        return f"{'token' if self.service == 'http' else 'account'} {self.name}"

    def __str__(self) -> str:
        return f"{self.id} ({self.role} {self.scope})"


def allowed(asker: Asker, operation: str, given: Mapping[str, Any]) -> None:
    """Raises Refused where the role may not do that, whoever it is about."""
    if asker.role == ADMINISTRATOR:
        return
    table = {AUDITOR: READING, HELPDESK: _OF_A_DOMAIN, OWNER: _OF_AN_OWNER}.get(
        asker.role, _OWN if asker.service == "http" else _OF_A_PERSON)
    if operation not in table:
        raise Refused(403, f"the role {asker.role} may not do that")
    arguments = table[operation]
    if arguments is not None and (more := sorted(given.keys() - arguments)):
        raise Refused(403, f"the role {asker.role} may not give {more[0][:100]}")


def within_scope(store: Store, asker: Asker, operation: str, given: Mapping[str, Any], *,
                 superiors: Collection[str] = (), most_octets: int = 0, travellers: Collection[str] = ()
                 ) -> dict[str, Any]:
    """The arguments, with the user id of whom they are about; the directory may be asked: for a thread. `superiors`:
    users (and groups, as ACLs name them) who may act as others, or set quotas, or have a role in the console: a
    helpdesk that could set their passwords would have these rights. `most_octets`: the largest limit that a helpdesk
    may set; `travellers`: who may look into snapshots.

    Raises Refused for users that are none of the asker's: nobody learns whether there are such.
    """
    if asker.role in (ADMINISTRATOR, AUDITOR):
        return dict(given)
    if operation == _OF_ALL:
        if str(given.get("domain", asker.scope)).lower() != asker.scope.lower():
            raise Refused(403, "that is not the domain of this token")
        return {**given, "domain": asker.scope}
    whom = _WHOM.get(operation, "user")
    asked = given.get(whom, asker.scope if asker.role != HELPDESK else None)
    if not isinstance(asked, str):
        raise Refused(400, f"{whom} must be a string")
    for name in _MAILBOXES:
        values = given.get(name, [])
        for each in values if isinstance(values, list) else [values]:
            if str(each).partition("/")[0].strip().lower() in _OTHERS:
                raise Refused(403, f"the role {asker.role} may not do that in mailboxes of others")
    try:
        found = account(store, asked)
        user, names = found.user, identifiers(found.user, found.groups)
    except (StoreError, ValueError):
        user, names = "", []
    if not user or asker.scope.lower() != (_domain(store, user) if asker.role == HELPDESK else user).lower():
        raise Refused(403, "that is none of the users of this token")
    if asker.role == HELPDESK and any(name in superiors for name in names):
        raise Refused(403, "that user has rights over others: only an administrator may do that")
    if operation in OF_SNAPSHOTS and not acl.lets(travellers, names):
        raise Refused(403, "nobody has let you look into snapshots (imap.time_travel)")
    if "octets" in given and not _is_within(given["octets"], most_octets):
        raise Refused(403, "a helpdesk sets limits up to http.helpdesk_quota, or the one that is the default")
    return {**given, whom: user}


def _is_within(limit: object, most: int) -> bool:
    """Whether a limit is the default one, or a size up to so many octets."""
    try:
        return limit == "default" or isinstance(limit, str) and size(limit) <= most
    except ValueError:
        return False


def _domain(store: Store, user: str) -> str:
    return user.rpartition("@")[2] if "@" in user else store.settings.default_domain
