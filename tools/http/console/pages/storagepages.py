"""Where the mail is: partitions, who shares how much, and quotas."""

from typing import Any

from store import offload
from tools.http.api.running import Run
from tools.http.apitokens import ADMINISTRATOR, AUDITOR
from tools.http.console import rendering
from tools.http.console.forms import filled
from tools.http.console.paging import PER_PAGE, part_of
from tools.http.console.visit import LOOK_TIME, PROGRESS_AFTER, Section, View, Visit
from tools.http.webpages import Answer, Refused

_READING = (ADMINISTRATOR, AUDITOR)
_ONLY = (ADMINISTRATOR,)
_BY = ("user", "mailbox", "domain", "partition")
REPORTS = ("users", "domains", "partitions", "roots", "classes", "ages", "kinds", "sizes", "messages", "senders",
           "purge")
_LINES = 1000               # of a report
_FULLEST = 1000             # quota roots that are looked at, page by page


# Partitions

async def _partitions(visit: Visit) -> Answer:
    rows, status = await visit.ask_all("partition list", "status")
    states = {each["partition"]: each["state"] for each in status["partitions"]}
    return await visit.show("partitions.html", "Partitions", part=part_of(
        [{**row, "state": states.get(row["partition"], "")} for row in rows], visit.query.get("page")))


async def _add(visit: Visit) -> Answer:
    path = visit.form.get("folder").strip()
    return await visit.act("partition add", {"name": visit.form["name"], **filled(path=path)},
                           done="made", back=visit.url("partitions"))


async def _drain(visit: Visit) -> Answer:
    to = visit.form.get("to").strip()
    return await visit.act("partition drain", {"name": visit.form["name"], **filled(to=to)},
                           done="moved", back=visit.url("partitions"))


async def _sharing(visit: Visit) -> Answer:
    """Who holds how much: the ones who hold most. It reads all records of the store, so it is asked for by itself."""
    by = visit.query.get("by")
    if by and by not in _BY:
        raise Refused(400, "There is no such list.")
    rows = await visit.ask("quota sharing", by=by, most=PER_PAGE) if by else None
    return await visit.show("sharing.html", "Sharing", by=by, kinds=_BY, rows=rows, most=PER_PAGE)


# Quotas

async def _quotas(visit: Visit) -> Answer:
    """The fullest, or one root and those below it."""
    root = visit.query.get("root").strip()
    rows = await visit.ask("quota show", root=root) if root else await visit.ask("quota show", most=_FULLEST)
    part = part_of([{**row, "href": visit.url("quotas", root=row["root"])} for row in rows], visit.query.get("page"))
    return await visit.show("quotas.html", "Quotas", root=root, part=part, fullest=_FULLEST, reports=REPORTS)


async def _set(visit: Visit) -> Answer:
    root = visit.form["root"].strip()
    given = {name: visit.form.get(name).strip() for name in ("octets", "messages")}
    if "seen_limits" in visit.form:
        now: dict[str, Any] = next(iter(await visit.ask("quota show", root=root)), {})
        visit.require_unchanged(f"The limits of {root}", visit.form["seen_limits"], _limits(now),
                                rendering.limits(now.get("octet_limit"), now.get("message_limit")))
    return await visit.act("quota set", {"root": root, **filled(**given)},
                           done="changed", back=visit.url("quotas", root=root))


def _limits(row: dict[str, Any]) -> str:
    return f"{row.get('octet_limit')} {row.get('message_limit')}"


async def _remove(visit: Visit) -> Answer:
    return await visit.act("quota remove", {"root": visit.form["root"]}, done="removed", back=visit.url("quotas"))


# The report

async def _report(visit: Visit) -> Answer:
    """POST: made on the store itself; what takes longer shows its progress first."""
    by = visit.form["by"]
    if by not in REPORTS:
        raise Refused(400, "There is no such report.")
    run = await visit.console.calls.carry_out_as(visit.token, "quota report", {"by": by}, as_json=False,
                                                 wait=PROGRESS_AFTER, patience=LOOK_TIME)
    return await _reported(visit, run)


async def _outcome(visit: Visit) -> Answer:
    """GET quotas/report?id=..: what it came to."""
    run = await visit.console.calls.find(visit.query["id"], visit.token)
    if run is None or run.operation != "quota report":
        raise Refused(404, "There is no such report, or not any more.")
    return await _reported(visit, run)


async def _reported(visit: Visit, run: Run) -> Answer:
    if run.exit is None:
        return visit.redirect(visit.url("progress", id=run.id, back=visit.url("quotas/report", id=run.id)))
    text = await offload.run(visit.console.store, "pages", run.value)
    lines = str(text).splitlines()
    return await visit.show("report.html", "Quota report", run=run, lines=lines[:_LINES],
                            more=max(0, len(lines) - _LINES))


PARTITIONS = Section("partitions", "Partitions", _READING, (
    View("partitions", _partitions), View("partitions/sharing", _sharing),
    View("partitions/add", _add, post=True, roles=_ONLY), View("partitions/drain", _drain, post=True, roles=_ONLY)))
QUOTAS = Section("quotas", "Quotas", _READING, (
    View("quotas", _quotas), View("quotas/report", _report, post=True, roles=_ONLY),
    View("quotas/report", _outcome, roles=_ONLY), View("quotas/set", _set, post=True, roles=_ONLY),
    View("quotas/remove", _remove, post=True, roles=_ONLY)))
