"""The report of a fleet as one page of HTML, in the style of that of a store."""

from collections.abc import Mapping, Sequence
from typing import Any

from tools.spark.report.charts import Bar, bars, columns
from tools.spark.report.fleetjob import OCTETS, TITLES, back_ends
from tools.spark.report.page import TOP, Chart, Table, number, octets, plain_page

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
        _bars("Back ends", made["stores"], "store", "fair_share", "logical"),
        _bars("Largest users", made["users"], "user", "fair_share", "logical"),
        _bars("Domains", made["domains"], "domain", "fair_share", "logical"),
        _bars("Kinds of folder", made["kinds"], "kind", "logical", None),
        _bars("Senders", made["senders"], "sender", "file_octets", None),
        _columns("Age of messages", _by_age(made["ages"])),
        _columns("Size of message files", [(row["size_class"], row["files"]) for row in made["sizes"]]),
        _bars("What a purge delay of so many days would free", made["purge"], "days", "freed", None)]
    return [chart for chart in found if chart is not None]


def _bars(name: str, rows: Sequence[Row], key: str, figure: str, behind: str | None) -> Chart | None:
    top = [row for row in rows if row[figure]][:TOP]
    if not top:
        return None
    sentence = f"{top[0][key]}: {octets(top[0][figure])}."
    drawing = bars(name, sentence, [Bar(str(row[key]), octets(row[figure]), (
        ("fair", row[figure]), *((("light", row[behind]),) if behind else ()))) for row in top], over=bool(behind))
    return Chart(name, sentence, drawing, (key, figure), [(str(row[key]), number(row[figure])) for row in top])


def _columns(name: str, rows: Sequence[tuple[str, int]]) -> Chart | None:
    if not rows:
        return None
    label, most = max(rows, key=lambda row: row[1])
    sentence = f"Most are of {label}: {number(most)}."
    return Chart(name, sentence, columns(name, sentence, [(label, count, "fair") for label, count in rows]),
                 ("class", "number"), [(label, number(count)) for label, count in rows])


def _by_age(rows: Sequence[Row]) -> list[tuple[str, int]]:
    found: dict[str, int] = {}
    for row in rows:
        found[row["age"]] = found.get(row["age"], 0) + row["messages"]
    return list(found.items())


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
