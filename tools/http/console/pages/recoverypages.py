"""What there is to go back to, and what is under way: snapshots, backups, commands, housekeeping, the last check."""

from typing import Any

from tools.http.apitokens import ADMINISTRATOR, AUDITOR
from tools.http.console.paging import part_of
from tools.http.console.visit import Section, View, Visit
from tools.http.webpages import Answer, Refused

_READING = (ADMINISTRATOR, AUDITOR)
_ONLY = (ADMINISTRATOR,)
_NOW = "now"


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
    tasks = [{**task, "process": each["process"]} for each in stats["processes"] for task in each["tasks"]]
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


RECOVERY = Section("recovery", "Recovery", _READING, (
    View("recovery", _show), View("recovery/diff", _diff), View("recovery/create", _create, post=True, roles=_ONLY),
    View("recovery/verify", _verify, post=True, roles=_ONLY), View("recovery/remove", _remove, post=True, roles=_ONLY),
    View("recovery/backup", _back_up, post=True, roles=_ONLY),
    View("recovery/archive", _verify_backup, post=True, roles=_ONLY)))
HOUSEKEEPING = Section("housekeeping", "Housekeeping", _READING, (
    View("housekeeping", _housekeeping), View("housekeeping/check", _check, post=True, roles=_ONLY),
    View("housekeeping/purge", _purge, post=True, roles=_ONLY),
    View("housekeeping/expire", _expire, post=True, roles=_ONLY)))
