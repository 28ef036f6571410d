"""Which role may carry out which operation, on whom. Whatever is not named here, only an administrator may."""

from collections.abc import Collection, Mapping
from typing import Any

from store.errors import StoreError
from store.store import Store
from tools.cli.lookup import account
from tools.http.api.operationlist import Operation
from tools.http.apitokens import ADMINISTRATOR, AUDITOR, HELPDESK, Token
from tools.http.webpages import Refused

_ALL: frozenset[str] | None = None      # every argument

# What changes nothing, and with which arguments.
READING: dict[str, frozenset[str] | None] = {
    **dict.fromkeys((
        "user list", "user show", "directory status", "mailbox list", "mailbox info", "path", "hashdir", "uidl list",
        "partition list", "quota show", "quota check", "quota sharing", "expire rules", "expire last", "snapshot list",
        "snapshot verify", "snapshot diff", "config show", "config diff", "config check", "status", "stats",
        "explain message", "explain access", "explain quota", "explain login", "token list", "access list",
        "audit show", "audit verify", "audit head"), _ALL),
    "connections": frozenset({"user", "address", "protocol", "mailbox", "idle"}),
    "logins": frozenset({"user", "address"})}
# A token of a user reads no mail; so it makes no app password, which would.
_OWN: dict[str, frozenset[str] | None] = dict.fromkeys((
    "user show", "mailbox list", "mailbox info", "undelete", "mailbox undelete", "explain quota", "access list",
    "access revoke"), _ALL)
_OF_A_DOMAIN: dict[str, frozenset[str] | None] = {
    **_OWN, "user set": frozenset({"user", "status", "password_stdin"}), "explain login": _ALL,
    "access reset": _ALL, **dict.fromkeys(("mailbox create", "mailbox rename", "mailbox delete"), _ALL)}
_MAILBOXES = ("mailbox", "mailboxes", "name", "as")
_OTHERS = ("user", "public")            # with which the names of other users' mailboxes begin


def allowed(token: Token, operation: Operation, given: Mapping[str, Any]) -> None:
    """Raises Refused where the role may not do that, whoever it is about."""
    if token.role == ADMINISTRATOR:
        return
    table = {AUDITOR: READING, HELPDESK: _OF_A_DOMAIN}.get(token.role, _OWN)
    if operation.name not in table:
        raise Refused(403, f"the role {token.role} may not do that")
    arguments = table[operation.name]
    if arguments is not None and (more := sorted(given.keys() - arguments)):
        raise Refused(403, f"the role {token.role} may not give {more[0][:100]}")


def within_scope(store: Store, token: Token, given: Mapping[str, Any], superiors: Collection[str] = ()
                 ) -> dict[str, Any]:
    """The arguments, with the user id of whom they are about; the directory may be asked: for a thread. `superiors`:
    users who may act as others, or set quotas: a helpdesk that could set their passwords would have these rights.

    Raises Refused for users that are none of the token's: nobody learns whether there are such.
    """
    if token.role in (ADMINISTRATOR, AUDITOR):
        return dict(given)
    asked = given.get("user", token.scope if token.role != HELPDESK else None)
    if not isinstance(asked, str):
        raise Refused(400, "user must be a string")
    for name in _MAILBOXES:
        values = given.get(name, [])
        for each in values if isinstance(values, list) else [values]:
            if str(each).partition("/")[0].strip().lower() in _OTHERS:
                raise Refused(403, f"the role {token.role} may not do that in mailboxes of others")
    try:
        user = account(store, asked).user
    except (StoreError, ValueError):
        user = ""
    if not user or token.scope.lower() != (_domain(store, user) if token.role == HELPDESK else user).lower():
        raise Refused(403, "that is none of the users of this token")
    if token.role == HELPDESK and user in superiors:
        raise Refused(403, "that user has rights over others: only an administrator may do that")
    return {**given, "user": user}


def _domain(store: Store, user: str) -> str:
    return user.rpartition("@")[2] if "@" in user else store.settings.default_domain
