"""The audit trail: who did what, the newest first, and whether somebody has changed it."""

from typing import Any

from store.audit.auditline import CHOICES, OWN
from tools.http.apitokens import ADMINISTRATOR, AUDITOR
from tools.http.console.forms import filled
from tools.http.console.paging import PER_PAGE, first_of
from tools.http.console.visit import Section, View, Visit
from tools.http.webpages import Answer, Refused

_FACTS = ("kind", "time", "what", "actor", "account", "user", "before", "number")   # have a column, or are not shown


async def _show(visit: Visit) -> Answer:
    user, kind, before = visit.query.get("user").strip(), visit.query.get("kind"), visit.query.get("before")
    if kind and kind not in (*CHOICES, OWN):
        raise Refused(400, "There is no such kind.")
    found = await visit.ask("audit show", most=PER_PAGE + 1, **filled(user=user, kind=[kind], before=before))
    part = first_of([_row(facts) for facts in reversed(found)])
    return await visit.show("audit.html", "Audit trail", part=part, whom=user, kind=kind, kinds=(*CHOICES, OWN),
                            older=part.rows[-1]["number"] if part.more else "", before=before)


def _row(facts: dict[str, Any]) -> dict[str, Any]:
    more = "; ".join(f"{name} {_text(value)}" for name, value in facts.items() if name not in _FACTS)
    return {**{name: facts.get(name, "") for name in _FACTS}, "more": more,
            "actor": facts.get("account") or facts.get("actor", "")}       # in the console it is not the server's owner


def _text(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


async def _verify(visit: Visit) -> Answer:
    """It reads the whole trail."""
    found = await visit.ask("audit verify")
    return await visit.show("auditverified.html", "The audit trail is read", found=found, most=PER_PAGE)


SECTION = Section("audit", "Audit trail", (ADMINISTRATOR, AUDITOR), (
    View("audit", _show), View("audit/verify", _verify)))
