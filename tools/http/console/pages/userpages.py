"""Users, for administrators, helpdesks and auditors: found; one with all that concerns it, and what can be done."""

from typing import Any

from tools.http.apitokens import ADMINISTRATOR, AUDITOR, HELPDESK
from tools.http.console import rendering
from tools.http.console.visit import Section, View, Visit
from tools.http.webpages import Answer, Refused

_ROWS = 50                  # users of a page
_ROLES = (ADMINISTRATOR, HELPDESK, AUDITOR)
_CHANGING = (ADMINISTRATOR, HELPDESK)
STATUSES = {"active": "active", "inactive": "inactive: no login, mail is refused for now",
            "hold": "on hold: no login, mail is refused for now",
            "overquota": "over quota: login, mail is refused for now",
            "disabled": "disabled: no login, mail is refused for good",
            "deleted": "deleted: as if there were no such user; all that is kept"}


async def _list(visit: Visit) -> Answer:
    """GET users?q=..&after=..: a page of those who are found."""
    wanted, after, domain = visit.query.get("q"), visit.query.get("after"), visit.query.get("domain")
    given: dict[str, Any] = {"match": wanted, "after": after, "most": _ROWS + 1,
             "domain": visit.token.scope if visit.role == HELPDESK else domain}
    rows, removed = await visit.together(
        visit.ask("user list", own=False, **{name: value for name, value in given.items() if value != ""}),
        _known(visit, "user list", removed=True))
    return await visit.show("users.html", "Users", rows=rows[:_ROWS], more=len(rows) > _ROWS, wanted=wanted,
                            after=after, domain=domain, removed=removed or [])


async def _one(visit: Visit) -> Answer:
    """GET users/one?user=..: everything about one."""
    user = visit.query["user"]
    account = await visit.ask("user show", user=user)
    user = account["user"]
    sessions, roots, logins, partitions = await visit.together(
        connections(visit, user), _known(visit, "quota show", root=user), _known(visit, "explain login", user=user),
        _known(visit, "partition list") if visit.may("user move") else _nothing())
    return await visit.show("user.html", account["user"], account=account, roots=roots or [], sessions=sessions,
                            logins=logins, partitions=[row["partition"] for row in partitions or ()],
                            statuses=STATUSES)


async def _known(visit: Visit, name: str, **given: Any) -> Any:
    """What an operation tells; None where the role may not ask."""
    return (await visit.attempt(name, **given)).result if visit.may(name, **given) else None


async def _nothing() -> None:
    return None


async def connections(visit: Visit, user: str, *, own: bool = False) -> list[dict[str, Any]]:
    """Those of a user; none where the server tells of none."""
    found = await visit.attempt("connections", own=own, user=user)
    return [row for row in found.result if row["protocol"] != "http"] if isinstance(found.result, list) else []


async def _status(visit: Visit) -> Answer:
    """POST: the status that somebody may have; another one, who did so before, is told."""
    user = visit.query["user"]
    now = (await visit.ask("user show", user=user))["status"]
    visit.require_unchanged(f"The status of {user}", visit.form["seen"], now)
    return await visit.act("user set", {"user": user, "status": visit.form["status"]}, back=_back(visit),
                           done="changed")


async def _password(visit: Visit) -> Answer:
    return await visit.act("user set", {"user": visit.query["user"], "password_stdin": True}, new_password(visit),
                           back=_back(visit), done="password")


def new_password(visit: Visit) -> str:
    """What the form has twice. Raises Refused."""
    new = visit.form["new"]
    if new != visit.form["again"]:
        raise Refused(400, "The two new passwords are not the same. Nothing has been changed.")
    if not new or "\n" in new or "\r" in new:
        raise Refused(400, "A password has at least one character, and no line end. Nothing has been changed.")
    return new + "\n"


async def _quota(visit: Visit) -> Answer:
    """POST: limits; "" is the default. A helpdesk sets that of mail alone."""
    user = visit.query["user"]
    now = await visit.ask("user show", user=user)
    octets, messages = now["octet_limit"], now["message_limit"]
    visit.require_unchanged(f"A limit of {user}", visit.form["seen"], f"{octets}/{messages}",
                            rendering.limits(octets, messages))
    given = {name: visit.form[name].strip() or "default" for name in ("octets", "messages") if name in visit.form}
    return await visit.act("quota set", {"root": user, **given}, back=_back(visit), done="changed")


async def _rename(visit: Visit) -> Answer:
    new = visit.form["name"].strip()
    return await visit.act("user rename", {"old": visit.query["user"], "new": new},
                           back=visit.url("users/one", user=new), done="changed")


async def _move(visit: Visit) -> Answer:
    user = visit.query["user"]
    now = (await visit.ask("user show", user=user))["partition"]
    visit.require_unchanged(f"The partition of {user}", visit.form["seen"], now)
    return await visit.act("user move", {"users": [user], "to": visit.form["to"]}, back=_back(visit), done="moved")


async def _remove(visit: Visit) -> Answer:
    """POST: whoever has not typed the name has not meant it."""
    user = visit.query["user"]
    if visit.form["name"].strip() != user:
        raise Refused(400, f"To remove {user}, type that name. Nothing has been changed.")
    return await visit.act("user remove", {"users": [user]}, back=visit.url("users"), done="removed")


async def _undelete(visit: Visit) -> Answer:
    return await visit.act("user undelete", {"users": [visit.query["user"]]}, back=_back(visit), done="restored")


async def _end(visit: Visit) -> Answer:
    """POST: one of the user's sessions, or all."""
    ids = {"ids": [visit.form["session"]]} if visit.form.get("session") else {}
    return await visit.act("connections", {"user": visit.query["user"], "end": True, **ids}, back=_back(visit),
                           done="ended")


def _back(visit: Visit) -> str:
    return visit.url("users/one", user=visit.query["user"])


SECTION = Section("users", "Users", _ROLES, (
    View("users", _list), View("users/one", _one),
    View("users/status", _status, post=True, roles=_CHANGING),
    View("users/password", _password, post=True, roles=_CHANGING),
    View("users/end", _end, post=True, roles=_CHANGING),
    View("users/quota", _quota, post=True, roles=_CHANGING),
    View("users/rename", _rename, post=True, roles=(ADMINISTRATOR,)),
    View("users/move", _move, post=True, roles=(ADMINISTRATOR,)),
    View("users/remove", _remove, post=True, roles=(ADMINISTRATOR,)),
    View("users/undelete", _undelete, post=True, roles=(ADMINISTRATOR,))))
