"""What users have of their own: how much of their quota is used, their mailboxes."""

from tools.http.apitokens import ROLES
from tools.http.console.visit import Section, View, Visit
from tools.http.webpages import Answer


async def _show(visit: Visit) -> Answer:
    found = await visit.ask("user show", own=True, user=visit.user)
    return await visit.show("own.html", "Your mail", account=found)


SECTION = Section("own", "Your mail", ROLES, (View("own", _show),))
