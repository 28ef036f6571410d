"""Receivers of events: what waits for each, and what it has refused."""

import json
from typing import Any

from tools.http.apitokens import ADMINISTRATOR, AUDITOR
from tools.http.console.forms import filled
from tools.http.console.paging import PER_PAGE, part_of
from tools.http.console.visit import Section, View, Visit
from tools.http.webpages import Answer

_ONLY = (ADMINISTRATOR,)
_LONGEST = 500              # characters of an event that are shown


async def _show(visit: Visit) -> Answer:
    rows = await visit.ask("outbox list")
    if visit.may("outbox show", receiver="x"):
        rows = [{**row, "href": visit.url("outbox/one", receiver=row["receiver"])} for row in rows]
    return await visit.show("outbox.html", "Outbox", part=part_of(rows, visit.query.get("page")))


async def _one(visit: Visit) -> Answer:
    receiver, dead = visit.query["receiver"], visit.query.get("dead") != ""
    rows = await visit.ask("outbox show", receiver=receiver, most=PER_PAGE, **filled(dead=dead))
    return await visit.show("receiver.html", f"Receiver {receiver}", receiver=receiver, dead=dead, most=PER_PAGE,
                            rows=[_row(each) for each in rows])


def _row(each: dict[str, Any]) -> dict[str, Any]:
    text = json.dumps(each["body"], ensure_ascii=False)
    return {**each, "body": text[:_LONGEST] + ("..." if len(text) > _LONGEST else "")}


async def _retry(visit: Visit) -> Answer:
    return await _change(visit, "outbox retry", "done")


async def _discard(visit: Visit) -> Answer:
    return await _change(visit, "outbox discard", "removed")


async def _change(visit: Visit, operation: str, done: str) -> Answer:
    """One dead letter, by its id, or all of them."""
    receiver, id = visit.form["receiver"], visit.form.get("id")
    return await visit.act(operation, {"receiver": receiver, **filled(id=id)}, done=done,
                           back=visit.url("outbox/one", receiver=receiver, dead="yes"))


SECTION = Section("outbox", "Outbox", (ADMINISTRATOR, AUDITOR), (
    View("outbox", _show), View("outbox/one", _one, roles=_ONLY),
    View("outbox/retry", _retry, post=True, roles=_ONLY), View("outbox/discard", _discard, post=True, roles=_ONLY)))
