"""The first page: how each part of the server is, what it has done since its start, and what is getting full."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from attrs import frozen

from tools.http.apitokens import ADMINISTRATOR, AUDITOR
from tools.http.console.historycharts import fullness, over_time
from tools.http.console.visit import Section, View, Visit
from tools.http.webpages import Answer, Refused
from tools.server.metrics.history import grouped
from tools.spark.report.charts import Bar, bars

_SERVERS = ("imap", "pop3", "lmtp", "managesieve", "front", "http")
_NEARLY, _FULL = 85, 95     # per cent
_MOST = 10                  # users of the chart of those who are fullest


@frozen
class _Span:
    """A time that charts show: what it is called, how long it is, and in how many parts."""

    name: str
    part: str
    seconds: int
    parts: int


_SPANS = {"day": _Span("24 hours", "10 minutes", 86400, 144), "month": _Span("31 days", "6 hours", 31 * 86400, 124)}


async def _show(visit: Visit) -> Answer:
    span = visit.query.get("span") or "day"
    if span not in _SPANS:
        raise Refused(400, "There is no such span of time.")
    stats, status, fullest, health, past = await visit.together(
        visit.ask("stats"), visit.ask("status"), visit.ask("quota show", most=str(_MOST)), visit.console.health(),
        visit.ask("stats", history=span))
    servers = [_server(stats["processes"], name) for name in _SERVERS]
    limited = [row for row in fullest if row["per_cent"] is not None]
    return await visit.show(
        "overview.html", "Overview", past=_past(past, span, time.time()) if past else (), span=span, spans=_SPANS,
        stats=stats, status=status, health=health,
        servers=[row for row in servers if row["connections"] or row["open"]],
        failed=sum(each["failed_logins"] for each in stats["processes"]), mail=sorted(stats["mail"].items()),
        deliveries=_counts("Deliveries since the start", stats["mail"]),
        logins=_counts("Logins since the start", {row["server"]: row["logins"] for row in servers if row["logins"]}),
        since=min((each["started"] for each in stats["processes"]), default=None),
        volumes=_parts("Volumes of partitions", {name: each["per_cent"] for name, each in sorted(
            stats["partitions"].items())}),
        users=_parts("The fullest quotas", {row["root"]: row["per_cent"] for row in limited}),
        limited=limited, full=sum(row["per_cent"] >= 100 for row in limited))


def _past(rows: Sequence[Mapping[str, Any]], span: str, now: float) -> list[Any]:
    """Charts of that time: names and drawings."""
    parts, seconds = _SPANS[span].parts, _SPANS[span].seconds
    found = grouped([{**row, "time": int(datetime.fromisoformat(row["time"]).timestamp())} for row in rows], span, now,
                    parts)
    of = now - seconds, now
    return [("Deliveries", over_time("Deliveries", found, "delivered", "refused", span=of)),
            ("Logins", over_time("Logins", found, "logins", "failed", span=of)),
            ("Open connections", over_time("Open connections", found, "open", summed=False, span=of)),
            ("Volumes", fullness("Volumes", found, span=of))]


def _server(processes: Sequence[Mapping[str, Any]], name: str) -> dict[str, Any]:
    """What a server counts, in all processes together."""
    found: Counter[str] = Counter()
    for process in processes:
        found.update(process["servers"].get(name, {}))
    return {"server": name, "open": found["open"], "connections": found["connections"], "logins": found["logins"],
            "turned_away": found["connections turned away"]}


def _counts(name: str, counts: Mapping[str, int]) -> Any:
    """A chart of what was counted; None where there is nothing."""
    rows = [Bar(label, f"{count:,}", (("bad" if "refused" in label else "fair", count),))
            for label, count in sorted(counts.items())]
    return bars(name, "; ".join(f"{row.label}: {row.text}" for row in rows), rows) if rows else None


def _parts(name: str, parts: Mapping[str, float | None]) -> Any:
    """A chart of how full things are, in per cent; None where there is nothing."""
    rows = [Bar(label, f"{part or 0} %", ((_kind(part or 0), min(1000, int(10 * (part or 0)))),))
            for label, part in parts.items()]
    return bars(name, "; ".join(f"{row.label}: {row.text}" for row in rows), rows, whole=1000) if rows else None


def _kind(part: float) -> str:
    return "bad" if part >= _FULL else "warn" if part >= _NEARLY else "fair"


SECTION = Section("", "Overview", (ADMINISTRATOR, AUDITOR), (View("", _show),))
