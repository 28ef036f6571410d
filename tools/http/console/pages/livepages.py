"""The running server: who is connected, whose logins fail, and the newest lines of the log."""

import math
from typing import Any

from tools.http.apitokens import ADMINISTRATOR, AUDITOR
from tools.http.console.forms import filled
from tools.http.console.paging import part_of
from tools.http.console.visit import Section, View, Visit
from tools.http.webpages import Answer, Refused

_READING = (ADMINISTRATOR, AUDITOR)
_ONLY = (ADMINISTRATOR,)
_FILTERS = ("user", "address", "protocol", "mailbox")
_MOST = 2000                # connections that are looked at
_LINES = 200                # of the log


async def _choices(visit: Visit, operation: str, argument: str) -> tuple[str, ...]:
    """What an argument of an operation can be."""
    return (await visit.console.calls.known()).by_path[operation].arguments[argument].choices


def _given(visit: Visit, *names: str) -> dict[str, Any]:
    return filled(**{name: visit.query.get(name).strip() for name in names})


async def _connections(visit: Visit) -> Answer:
    given = _given(visit, *_FILTERS)
    rows = await visit.ask("connections", most=_MOST, **given)
    return await visit.show("connections.html", "Connections", part=part_of(rows, visit.query.get("page")),
                            most=_MOST, protocols=await _choices(visit, "connections", "protocol"),
                            given={name: given.get(name, "") for name in _FILTERS})


async def _end(visit: Visit) -> Answer:
    return await visit.act("connections", {"ids": [visit.form["id"]], "end": True}, done="ended",
                           back=visit.url("connections"))


async def _failed(visit: Visit) -> Answer:
    found = await visit.ask("logins", **_given(visit, "user", "address"))
    rows: list[dict[str, Any]] = [{**row, "wait": _span(row["wait"]), "last": f"{_span(row['last'])} ago"}
                                  for row in found["rows"]]
    return await visit.show("failedlogins.html", "Failed logins", part=part_of(rows, visit.query.get("page")),
                            count=found["count"],
                            given={name: visit.query.get(name) for name in ("user", "address")})


def _span(seconds: float) -> str:
    whole = math.ceil(seconds)
    return f"{whole} s" if whole < 120 else f"{whole // 60} min" if whole < 7200 else f"{whole // 3600} h"


async def _clear(visit: Visit) -> Answer:
    given = filled(user=visit.form.get("user"), address=visit.form.get("address"))
    if not given:
        raise Refused(400, "Which ones are to be forgotten?")
    return await visit.act("logins", {**given, "clear": True}, done="done", back=visit.url("logins"))


async def _log(visit: Visit) -> Answer:
    given, levels = _given(visit, "level", "match", "process"), await _choices(visit, "log/show", "level")
    if given.get("level", levels[0]) not in levels:
        raise Refused(400, "There is no such level.")
    lines = await visit.ask("log show", most=_LINES, **given)
    return await visit.show("log.html", "Log", lines=list(reversed(lines)), levels=levels, most=_LINES,
                            follow=bool(visit.query.get("follow")),
                            given={name: given.get(name, "") for name in ("level", "match", "process")})


CONNECTIONS = Section("connections", "Connections", _READING, (
    View("connections", _connections), View("connections/end", _end, post=True, roles=_ONLY)))
LOGINS = Section("logins", "Failed logins", _READING, (
    View("logins", _failed), View("logins/clear", _clear, post=True, roles=_ONLY)))
LOG = Section("log", "Log", _ONLY, (View("log", _log),))
