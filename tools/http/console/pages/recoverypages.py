"""What there is to go back to, and what is under way: snapshots, mail in them, backups, commands, housekeeping, the
last check."""

from collections.abc import Callable
from typing import Any

from tools.http.apitokens import ADMINISTRATOR, AUDITOR, ROLES
from tools.http.console.paging import part_of
from tools.http.console.visit import Section, View, Visit
from tools.http.webpages import Answer, Refused

_READING = (ADMINISTRATOR, AUDITOR)
_ONLY = (ADMINISTRATOR,)
_NOW = "now"
_ROWS = 100                 # messages of a page


# Snapshots, backups, and commands under way

async def _show(visit: Visit) -> Answer:
    snapshots, status = await visit.ask_all("snapshot list", "status")
    return await visit.show("recovery.html", "Recovery", status=status,
                            part=part_of(snapshots, visit.query.get("page")))


async def _diff(visit: Visit) -> Answer:
    before, after = visit.query["before"], visit.query.get("after") or _NOW
    found = await visit.ask("snapshot diff", before=before, after=after)
    rows = [{"user": row["user"], "mailbox": row["after"] or row["before"], "what": row["what"],
             **{name: len(row[name]) for name in ("added", "gone", "flags")}} for row in found["mailboxes"]]
    return await visit.show("snapshotdiff.html", "Snapshots compared", before=before, after=after,
                            part=part_of(rows, visit.query.get("page")))


async def _create(visit: Visit) -> Answer:
    return await visit.act("snapshot create", {}, done="made", back=visit.url("recovery"))


async def _verify(visit: Visit) -> Answer:
    return await visit.act("snapshot verify", {"snapshots": [visit.form["snapshot"]]}, done="whole",
                           back=visit.url("recovery"))


async def _remove(visit: Visit) -> Answer:
    return await visit.act("snapshot remove", {"snapshots": [visit.form["snapshot"]]}, done="removed",
                           back=visit.url("recovery"))


async def _back_up(visit: Visit) -> Answer:
    to = visit.form["to"].strip()
    if not to.startswith("/"):
        raise Refused(400, "Where to? The name of a file or folder of the server begins with a slash.")
    return await visit.act("backup", {"to": to}, done="made", back=visit.url("recovery"))


async def _verify_backup(visit: Visit) -> Answer:
    archive = visit.form["archive"].strip()
    if not archive.startswith("/"):
        raise Refused(400, "Which one? The name of a file or folder of the server begins with a slash.")
    return await visit.act("backup", {"action": "verify", "archive": [archive]}, done="whole",
                           back=visit.url("recovery"))


# Housekeeping, and what the last check found

async def _housekeeping(visit: Visit) -> Answer:
    stats, status = await visit.ask_all("stats", "status")
    last = status["last_check"]
    tasks = [{**task, "process": each["process"], "completed": task["completed"] or None}     # 0: not yet
             for each in stats["processes"] for task in each["tasks"]]
    return await visit.show("housekeeping.html", "Housekeeping", last=last, advice=stats["advice"],
                            findings=part_of(last["first"], visit.query.get("page")), tasks=sorted(tasks, key=_order))


def _order(task: dict[str, Any]) -> tuple[int, str, str]:
    """Those that fail first."""
    return -task["bad"], task["name"], task["process"]


async def _check(visit: Visit) -> Answer:
    return await visit.act("check", {}, done="checked", back=visit.url("housekeeping"))


async def _purge(visit: Visit) -> Answer:
    return await visit.act("purge", {}, done="done", back=visit.url("housekeeping"))


async def _expire(visit: Visit) -> Answer:
    return await visit.act("expire run", {"all": True}, done="done", back=visit.url("housekeeping"))


# Mail out of snapshots: a user sees the own mail, if `imap.time_travel` lets that one look into snapshots; an
# administrator that of anybody.

def _base(visit: Visit, *, own: bool) -> dict[str, Any]:
    """The query of the page's own links: whose mail it is."""
    return {} if own else {"user": visit.query["user"].strip()}


def _mail(path: str, *, own: bool) -> Callable[[Visit], Any]:
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


def _bring_back(path: str, *, own: bool) -> Callable[[Visit], Any]:
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


RECOVERY = Section("recovery", "Recovery", _READING, (
    View("recovery", _show), View("recovery/diff", _diff), View("recovery/create", _create, post=True, roles=_ONLY),
    View("recovery/verify", _verify, post=True, roles=_ONLY), View("recovery/remove", _remove, post=True, roles=_ONLY),
    View("recovery/backup", _back_up, post=True, roles=_ONLY),
    View("recovery/archive", _verify_backup, post=True, roles=_ONLY)))
HOUSEKEEPING = Section("housekeeping", "Housekeeping", _READING, (
    View("housekeeping", _housekeeping), View("housekeeping/check", _check, post=True, roles=_ONLY),
    View("housekeeping/purge", _purge, post=True, roles=_ONLY),
    View("housekeeping/expire", _expire, post=True, roles=_ONLY)))
OWN_MAIL = Section("own/snapshots", "", ROLES, (
    View("own/snapshots", _mail("own/snapshots", own=True)),
    View("own/snapshots/copy", _bring_back("own/snapshots", own=True), post=True)))
MAIL = Section("recovery/mail", "", _ONLY, (
    View("recovery/mail", _mail("recovery/mail", own=False)),
    View("recovery/mail/copy", _bring_back("recovery/mail", own=False), post=True)))
