"""The report of a fleet as one page of HTML, in the style of that of a store."""

from collections.abc import Mapping
from typing import Any

from tools.spark.report.fleetjob import OCTETS, TITLES, back_ends
from tools.spark.report.page import Chart, Table, bars_of, charts_of_lists, number, octets, plain_page

Row = Mapping[str, Any]


def page(made: Mapping[str, Any]) -> str:
    """The page of a report."""
    totals = made["totals"]
    notes = [f"{made['created'][:10]} · {back_ends(made)} · {number(totals['users'])} users · "
             f"{number(totals['messages'] or 0)} messages in {number(totals['files'])} files · "
             f"{octets(totals['file_octets'])}, of which {octets(totals['waiting'])} wait for the purge",
             f"{number(totals['idle'])} users had nothing for {made['idle_days']} days, "
             f"{number(totals['reads_nothing'])} have read nothing of that time. "
             f"{octets(totals['doubled_octets'])} are on several back ends."]
    return plain_page(f"Mail of {back_ends(made)}", charts(made), tables(made), notes)


def charts(made: Mapping[str, Any]) -> list[Chart]:
    """The charts that have something to show."""
    found = [
        bars_of("Back ends", made["stores"], "store", "fair_share", "logical"),
        bars_of("Largest users", made["users"], "user", "fair_share", "logical"),
        bars_of("Domains", made["domains"], "domain", "fair_share", "logical"),
        *charts_of_lists(made)]
    return [chart for chart in found if chart is not None]


def tables(made: Mapping[str, Any]) -> list[Table]:
    """The lists that have rows."""
    several = len(made["back_ends"]) > 1
    found = []
    for key, title in TITLES.items():
        if rows := made[key]:
            names = [name for name in rows[0] if name != "store" or several]
            found.append(Table(title, [name.replace("_", " ") for name in names], [
                [_cell(name, row[name]) for name in names] for row in rows], len(rows)))
    return found


def _cell(name: str, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int):
        return "–" if value is None else str(value)
    return octets(value) if name in OCTETS else number(value)
