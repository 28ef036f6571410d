"""The configuration: which options there are, what differs from the defaults and from what the server goes by."""

from tools.http.apitokens import ADMINISTRATOR, AUDITOR
from tools.http.console.forms import filled
from tools.http.console.paging import part_of
from tools.http.console.visit import Section, View, Visit
from tools.http.webpages import Answer, Refused

_LISTS = {"changed": "what differs from the defaults", "all": "all options",
          "running": "what differs from what the server goes by"}


async def _show(visit: Visit) -> Answer:
    which, text = visit.query.get("list") or "changed", visit.query.get("match").strip().lower()
    if which not in _LISTS:
        raise Refused(400, "There is no such list.")
    if which == "all":
        found = await visit.ask("config show")
        rows = [{"option": name, **about} for name, about in found.items()]
    else:
        rows = await visit.ask("config diff", **filled(running=which == "running"))
    chosen = [row for row in rows if text in row["option"].lower() or text in str(row["value"]).lower()]
    return await visit.show("config.html", "Configuration", which=which, lists=_LISTS, match=text,
                            part=part_of(chosen, visit.query.get("page")))


async def _check(visit: Visit) -> Answer:
    found = await visit.ask("config check")
    return await visit.show("configcheck.html", "The configuration is read", found=found)


async def _reload(visit: Visit) -> Answer:
    return await visit.act("config reload", {}, done="done", back=visit.url("config", list="running"))


SECTION = Section("config", "Configuration", (ADMINISTRATOR, AUDITOR), (
    View("config", _show), View("config/check", _check),
    View("config/reload", _reload, post=True, roles=(ADMINISTRATOR,))))
