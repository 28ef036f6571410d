"""The first page: whether all is well, and how full the volumes are."""

from typing import Any

from tools.http.apitokens import ADMINISTRATOR, AUDITOR
from tools.http.console.visit import Section, View, Visit
from tools.http.webpages import Answer
from tools.spark.report.charts import Bar, bars

_SERVERS = ("imap", "pop3", "lmtp", "front", "http")


async def _show(visit: Visit) -> Answer:
    stats, status = await visit.ask_all("stats", "status")
    return await visit.show("overview.html", "Overview", stats=stats, status=status, open=_open(stats),
                            volumes=_volumes(stats["partitions"]))


def _open(stats: dict[str, Any]) -> dict[str, int]:
    """Connections of each server, of all processes together."""
    found = dict.fromkeys(_SERVERS, 0)
    for process in stats["processes"]:
        for server, counted in process["servers"].items():
            if server in found:
                found[server] += int(counted.get("open", 0))
    return found


def _volumes(partitions: dict[str, Any]) -> Any:
    """A chart of how full the volume of each partition is."""
    rows = [Bar(name, f"{volume['per_cent']} %", (
        ("bad" if (volume["per_cent"] or 0) >= 95 else "warn" if (volume["per_cent"] or 0) >= 85 else "fair",
         int(10 * (volume["per_cent"] or 0))),), " full") for name, volume in sorted(partitions.items())]
    fullest = max(partitions.items(), key=lambda item: item[1]["per_cent"] or 0, default=None)
    sentence = f"{fullest[0]} is the fullest, {fullest[1]['per_cent']} %." if fullest else "There is none."
    return bars("Volumes of partitions", sentence, rows, whole=1000)


SECTION = Section("", "Overview", (ADMINISTRATOR, AUDITOR), (View("", _show),))
