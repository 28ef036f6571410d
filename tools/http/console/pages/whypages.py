"""Why: did this mail not arrive, is that user full, can that one not log in."""

from typing import Any

from tools.http.apitokens import ADMINISTRATOR, AUDITOR, HELPDESK
from tools.http.console.forms import filled
from tools.http.console.paging import part_of
from tools.http.console.visit import Section, View, Visit
from tools.http.webpages import Answer

_NONE = ("Nothing is known of it: it has not come to this server, or longer ago than the journal goes back "
         "(store.journal_time), or within the last second.")


def _word(visit: Visit, name: str) -> str:
    return visit.query.get(name).strip()


async def _show(visit: Visit) -> Answer:
    return await _page(visit)


async def _page(visit: Visit, **found: Any) -> Answer:
    asked = {name: _word(visit, name) for name in ("message_id", "recipient", "sender", "user", "peer")}
    return await visit.show("why.html", "Why?", asked=asked, refused=bool(_word(visit, "refused")), **{
        "messages": None, "quota": None, "login": None, "none": _NONE, **found})


async def _message(visit: Visit) -> Answer:
    """Mail by its Message-ID, its recipient or its sender: the newest first."""
    given = filled(**{name: _word(visit, name) for name in ("message_id", "recipient", "sender")})
    if not given:
        return await _page(visit)
    found = await visit.ask("explain message", **given, **filled(refused=bool(_word(visit, "refused"))))
    return await _page(visit, messages=part_of(list(reversed(found)), visit.query.get("page"), 20))


async def _quota(visit: Visit) -> Answer:
    user = _word(visit, "user")
    return await _page(visit, quota=await visit.ask("explain quota", user=user) if user else None)


async def _login(visit: Visit) -> Answer:
    user, peer = _word(visit, "user"), _word(visit, "peer")
    return await _page(visit, login=await visit.ask("explain login", user=user, **filled(
        **{"from": peer})) if user else None)


SECTION = Section("why", "Why?", (ADMINISTRATOR, AUDITOR, HELPDESK), (
    View("why", _show), View("why/message", _message, roles=(ADMINISTRATOR, AUDITOR)),
    View("why/quota", _quota), View("why/login", _login)))
