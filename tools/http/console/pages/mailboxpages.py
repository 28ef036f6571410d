"""Mailboxes: those of a user, what is in each, who may do what with it, and why."""

from typing import Any

from tools.http.apitokens import ADMINISTRATOR, AUDITOR, HELPDESK
from tools.http.console.forms import filled
from tools.http.console.paging import PER_PAGE, first_of, part_of
from tools.http.console.visit import Section, View, Visit
from tools.http.webpages import Answer

_ACTING = (ADMINISTRATOR, HELPDESK)


async def _show(visit: Visit) -> Answer:
    """The mailboxes of a user behind one of a name; without a user a form that asks for one."""
    user, after = visit.query.get("user").strip(), visit.query.get("after")
    if not user:
        return await visit.show("mailboxes.html", "Mailboxes", owner="", part=None, after="", last="", deleted=None)
    found = await visit.ask("mailbox list", user=user, most=PER_PAGE + 1, **filled(after=after))
    deleted = await visit.ask("mailbox list", user=user, deleted=True)
    part = first_of([{**row, "href": visit.url("mailboxes/one", user=user, mailbox=row["mailbox"])} for row in found])
    return await visit.show("mailboxes.html", "Mailboxes", owner=user, part=part, after=after,
                            last=part.rows[-1]["mailbox"] if part.rows else "",
                            deleted=part_of(deleted, visit.query.get("page")))


async def _one(visit: Visit) -> Answer:
    """One mailbox; with `who`, why that user has which right on it."""
    user, name, who = visit.query["user"], visit.query["mailbox"], visit.query.get("who").strip()
    found = await visit.ask("mailbox info", user=user, mailbox=name)
    acl = await _acl(visit, user, name) if visit.may("mailbox acl", user=user, mailbox=name) else None
    why = await visit.ask("explain access", user=who, owner=user, mailbox=name) if who and visit.may(
        "explain access") else None
    return await visit.show("mailbox.html", f"Mailbox {name}", owner=user, mailbox=found, acl=acl, who=who, why=why)


async def _acl(visit: Visit, user: str, name: str) -> list[dict[str, str]]:
    rows: list[dict[str, str]] = await visit.ask("mailbox acl", user=user, mailbox=name)
    return rows


async def _create(visit: Visit) -> Answer:
    user, name = visit.form["user"], visit.form["name"]
    return await visit.act("mailbox create", {"user": user, "mailboxes": [name]}, done="made",
                           back=visit.url("mailboxes/one", user=user, mailbox=name))


async def _rename(visit: Visit) -> Answer:
    user, old, new = visit.form["user"], visit.form["mailbox"], visit.form["name"]
    await _require_same(visit, user, old)
    return await visit.act("mailbox rename", {"user": user, "mailbox": old, "name": new}, done="changed",
                           back=visit.url("mailboxes/one", user=user, mailbox=new))


async def _delete(visit: Visit) -> Answer:
    user, name = visit.form["user"], visit.form["mailbox"]
    await _require_same(visit, user, name)
    return await visit.act("mailbox delete", {"user": user, "mailboxes": [name]}, done="removed",
                           back=visit.url("mailboxes", user=user))


async def _require_same(visit: Visit, user: str, name: str) -> None:
    """Raises Changed where another mailbox has that name now."""
    found: dict[str, Any] = await visit.ask("mailbox info", user=user, mailbox=name)
    visit.require_unchanged(f"The mailbox {name}", visit.form["seen_id"], found["id"],
                            "another mailbox of that name")


async def _undelete(visit: Visit) -> Answer:
    user, name = visit.form["user"], visit.form["mailbox"]
    return await visit.act("mailbox undelete", {"user": user, "mailbox": name}, done="restored",
                           back=visit.url("mailboxes", user=user))


async def _messages(visit: Visit) -> Answer:
    """Bring back messages that were expunged."""
    user, name, since = visit.form["user"], visit.form["mailbox"], visit.form.get("since").strip()
    return await visit.act("undelete", {"user": user, "mailbox": name, **filled(since=since)},
                           done="restored", back=visit.url("mailboxes/one", user=user, mailbox=name))


async def _share(visit: Visit) -> Answer:
    """Set the rights of an identifier, in place of those that it has; none: take its entry out."""
    user, name = visit.form["user"], visit.form["mailbox"]
    identifier, rights = visit.form["identifier"].strip(), visit.form.get("rights").strip()
    now = {row["identifier"]: row["rights"] for row in await _acl(visit, user, name)}
    if "seen_rights" in visit.form:
        visit.require_unchanged(f"What {identifier} may do", visit.form["seen_rights"], now.get(identifier, ""))
    change = {"entries": [identifier, rights]} if rights else {"remove": identifier}
    return await visit.act("mailbox acl", {"user": user, "mailbox": name, **change}, done="changed",
                           back=visit.url("mailboxes/one", user=user, mailbox=name))


SECTION = Section("mailboxes", "Mailboxes", (ADMINISTRATOR, AUDITOR, HELPDESK), (
    View("mailboxes", _show), View("mailboxes/one", _one),
    View("mailboxes/create", _create, post=True, roles=_ACTING),
    View("mailboxes/rename", _rename, post=True, roles=_ACTING),
    View("mailboxes/delete", _delete, post=True, roles=_ACTING),
    View("mailboxes/undelete", _undelete, post=True, roles=_ACTING),
    View("mailboxes/messages", _messages, post=True, roles=_ACTING),
    View("mailboxes/share", _share, post=True, roles=(ADMINISTRATOR,))))
