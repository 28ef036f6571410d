"""Where the mail is: partitions, who shares how much, and quotas."""

from typing import Any

from tools.http.apitokens import ADMINISTRATOR, AUDITOR
from tools.http.console.forms import filled
from tools.http.console.paging import PER_PAGE, part_of
from tools.http.console.visit import Section, View, Visit
from tools.http.webpages import Answer, Refused

_READING = (ADMINISTRATOR, AUDITOR)
_ONLY = (ADMINISTRATOR,)
_BY = ("user", "mailbox", "domain", "partition")
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
    return await visit.show("quotas.html", "Quotas", root=root, part=part, fullest=_FULLEST)


async def _set(visit: Visit) -> Answer:
    root = visit.form["root"].strip()
    given = {name: visit.form.get(name).strip() for name in ("octets", "messages")}
    if "seen_limits" in visit.form:
        now: dict[str, Any] = next(iter(await visit.ask("quota show", root=root)), {})
        visit.require_unchanged(f"The limits of {root}", visit.form["seen_limits"], _limits(now))
    return await visit.act("quota set", {"root": root, **filled(**given)},
                           done="changed", back=visit.url("quotas", root=root))


def _limits(row: dict[str, Any]) -> str:
    return f"{row.get('octet_limit')} {row.get('message_limit')}"


async def _remove(visit: Visit) -> Answer:
    return await visit.act("quota remove", {"root": visit.form["root"]}, done="removed", back=visit.url("quotas"))


PARTITIONS = Section("partitions", "Partitions", _READING, (
    View("partitions", _partitions), View("partitions/sharing", _sharing),
    View("partitions/add", _add, post=True, roles=_ONLY), View("partitions/drain", _drain, post=True, roles=_ONLY)))
QUOTAS = Section("quotas", "Quotas", _READING, (
    View("quotas", _quotas), View("quotas/set", _set, post=True, roles=_ONLY),
    View("quotas/remove", _remove, post=True, roles=_ONLY)))
