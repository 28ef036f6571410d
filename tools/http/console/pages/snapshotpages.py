"""Mail out of snapshots: what a user had then, and what of it is brought back. A user sees the own mail, if
`imap.time_travel` lets that one look into snapshots; an administrator that of anybody."""

from collections.abc import Callable
from typing import Any

from tools.http.apitokens import ADMINISTRATOR, ROLES
from tools.http.console.visit import Section, View, Visit
from tools.http.webpages import Answer, Refused

_ROWS = 100                 # messages of a page


def _base(visit: Visit, *, own: bool) -> dict[str, Any]:
    """The query of the page's own links: whose mail it is."""
    return {} if own else {"user": visit.query["user"].strip()}


def _page(path: str, *, own: bool) -> Callable[[Visit], Any]:
    async def show(visit: Visit) -> Answer:
        """GET: the snapshots; with snapshot=.. the mailboxes; with name=.. messages, before=.. those further on."""
        query, whose = visit.query, _base(visit, own=own)
        user, snapshot, name, before = (visit.user if own else whose["user"], query.get("snapshot"), query.get("name"),
                                        query.get("before"))
        if before and not (before.isascii() and before.isdecimal() and len(before) < 11):
            raise Refused(400, "The address of this page is not complete.")
        given: dict[str, Any] = {"snapshot": snapshot, **({"mailbox": name} if name else {})} if snapshot else {}
        if name:
            given |= {"most": str(_ROWS + 1), **({"gone": True} if query.get("gone") else {}),
                      **({"before": before} if before else {})}
        rows = await visit.ask("snapshot browse", own=own, user=user, **given)
        return await visit.show("snapshotmail.html", "Mail in snapshots", rows=rows[:_ROWS], more=len(rows) > _ROWS,
                                path=path, whose=whose, snapshot=snapshot, name=name, before=before,
                                gone=bool(query.get("gone")))
    return show


def _copy(path: str, *, own: bool) -> Callable[[Visit], Any]:
    async def bring(visit: Visit) -> Answer:
        """POST: the messages that were ticked, or (all=1) all that the mailbox has no more."""
        whose, snapshot, name = _base(visit, own=own), visit.query["snapshot"], visit.query["name"]
        uids, into = visit.form.many("uid"), visit.form.get("into").strip()
        if not uids and not visit.form.get("all"):
            raise Refused(400, "No message was chosen.")
        return await visit.act(
            "snapshot copy", {"user": visit.user if own else whose["user"], "snapshot": snapshot, "mailbox": name,
                              **({"uid": uids} if uids and not visit.form.get("all") else {}),
                              **({"into": into} if into else {})},
            back=visit.url(path, **whose, snapshot=snapshot, name=name), done="restored", own=own)
    return bring


OWN = Section("own/snapshots", "", ROLES, (
    View("own/snapshots", _page("own/snapshots", own=True)),
    View("own/snapshots/copy", _copy("own/snapshots", own=True), post=True)))
OF_USERS = Section("recovery/mail", "", (ADMINISTRATOR,), (
    View("recovery/mail", _page("recovery/mail", own=False)),
    View("recovery/mail/copy", _copy("recovery/mail", own=False), post=True)))
