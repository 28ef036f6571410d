"""The quota report as one page of HTML that needs nothing else: no script, no view, no style sheet but its own."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from attrs import frozen
from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from mboxlist import privatefiles
from mboxlist.names import PUBLIC
from store.values import readable
from tools.spark.report.charts import Bar, bars, columns

Row = Mapping[str, Any]

TOP = 10                    # bars of a chart
ROWS = 25                   # rows of a table
FULL = ((25, "under 25"), (50, "25–49"), (75, "50–74"), (90, "75–89"), (100, "90–99"))
AGES = ((7, "a week"), (30, "a month"), (180, "6 months"), (365, "a year"))


@frozen
class Chart:
    """A chart, what it is called, what it says in a sentence, and its figures as a table."""

    name: str
    sentence: str
    drawing: Markup
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    legend: Sequence[tuple[str, str]] = ()


def page(made: Mapping[str, Any]) -> str:
    """The page of a report."""
    return _rendered("report.html", title=f"Mail storage, {day(made['created'])}", report=made, totals=made["totals"],
                     charts=charts(made), tables=tables(made), spared=spared(made["totals"]),
                     several=len(made["stores"]) > 1)


def plain_page(title: str, charts: Sequence[Chart], tables: Sequence["Table"], notes: Sequence[str]) -> str:
    """A page of these charts and tables, in the same style."""
    return _rendered("fleet.html", title=title, charts=charts, tables=tables, notes=notes)


def _rendered(name: str, **names: Any) -> str:
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
                              loader=FunctionLoader(_template))
    environment.filters |= {"octets": octets, "number": number, "day": day}
    return environment.get_template(name).render(style=Markup(_template("report.css")), **names)


def _template(name: str) -> str:
    return privatefiles.read_named(Path(__file__).with_name(name)).decode()


# How figures look

def octets(value: int | None) -> str:
    """An amount of octets for a person, also one that is less than nothing."""
    if value is None:
        return "–"
    return f"−{readable(-value)}" if value < 0 else readable(value)


def number(value: int | None) -> str:
    """A number with its thousands apart."""
    return "–" if value is None else f"{value:,}".replace("-", "−")


def day(text: str | None) -> str:
    """The day of a time."""
    return "never" if text is None else text[:10]


def more(value: int) -> str:
    """How much has come, or (with a minus) gone."""
    return f"+{readable(value)}" if value > 0 else octets(value)


def spared(totals: Row) -> int:
    """How many per cent of what users see need not be stored, since it is stored once; rounded down."""
    return max(0, 100 * totals["spared"] // totals["logical"]) if totals["logical"] else 0


# Charts

def charts(made: Mapping[str, Any]) -> list[Chart]:
    """The charts that have something to show."""
    found = [_sharing(made["totals"]), _fullness(made["users"]),
             _by_name("Largest users", "user", [user for user in made["users"] if user["user"] != PUBLIC]),
             _by_name("Domains", "domain", made["domains"]),
             _partitions(made["partitions"]), _activity(made), *charts_of_lists(made)]
    if made["since"] is not None:
        found.insert(3, _growing(made))
    return [chart for chart in found if chart is not None]


_BOTH = (("fair", "fair share of what is stored"), ("light", "as users see it"))


def _sharing(totals: Row) -> Chart:
    figures = (("What users see", "light", totals["logical"]),
               ("What is stored for them", "fair", totals["fair_share"]),
               ("Waits to be removed", "waits", totals["waiting"]))
    sentence = (f"Users see {octets(totals['logical'])} of mail; {octets(totals['fair_share'])} are stored for it, "
            f"and {octets(totals['waiting'])} wait to be removed.")
    return Chart("What sharing saves", sentence, bars("What sharing saves", sentence, [
        Bar(label, octets(value), ((kind, value),)) for label, kind, value in figures]),
        ("", "octets"), [(label, number(value)) for label, _, value in figures])


def _fullness(users: Sequence[Row]) -> Chart | None:
    limited = [user["per_cent"] for user in users if user["per_cent"] is not None]
    if not limited:
        return None
    rows, below = [], 0
    for bound, label in FULL:
        rows.append((label, sum(below <= part < bound for part in limited), "warn" if bound == 100 else "fair"))
        below = bound
    rows.append(("full", sum(part >= 100 for part in limited), "bad"))
    sentence = f"Of {number(len(limited))} users with a limit, {number(rows[-1][1])} have used all of it or more."
    return Chart("How full quotas are, in per cent", sentence, columns("How full quotas are", sentence, rows),
                 ("per cent", "users"), [(label, number(count)) for label, count, _ in rows])


def _by_name(name: str, key: str, rows: Sequence[Row]) -> Chart | None:
    """The largest, each with the fair share before what users see."""
    summed: dict[str, list[int]] = {}
    for row in rows:
        sums = summed.setdefault("public mailboxes" if row[key] == PUBLIC else row[key], [0, 0, 0])
        for at, figure in enumerate(("fair_share", "logical", "messages")):
            sums[at] += row[figure]
    top = sorted(summed.items(), key=lambda item: (-item[1][0], item[0]))[:TOP]
    if not top or not top[0][1][1]:
        return None
    sentence = f"{top[0][0]} has the largest fair share, {octets(top[0][1][0])}."
    return Chart(name, sentence, bars(name, sentence, [
        Bar(label, octets(fair), (("fair", fair), ("light", logical)), f" of {octets(logical)}")
        for label, (fair, logical, _) in top], over=True),
        (key, "fair share", "as users see it", "messages"),
        [(label, number(fair), number(logical), number(messages)) for label, (fair, logical, messages) in top], _BOTH)


def _growing(made: Mapping[str, Any]) -> Chart | None:
    top = sorted((user for user in made["users"] if (user["growth"] or 0) > 0),
                 key=lambda user: (-user["growth"], user["user"]))[:TOP]
    if not top:
        return None
    sentence = f"{top[0]['user']} has grown most since {day(made['since'])}, by {octets(top[0]['growth'])}."
    name = f"Fastest growing since {day(made['since'])}"
    return Chart(name, sentence, bars(name, sentence, [
        Bar(user["user"], more(user["growth"]), (("grow", user["growth"]),)) for user in top]),
        ("user", "octets"), [(user["user"], number(user["growth"])) for user in top])


def _partitions(rows: Sequence[Row]) -> Chart | None:
    if not rows:
        return None
    several = len({row["store"] for row in rows}) > 1
    named = [(f"{row['store']}: {row['partition']}" if several else row["partition"], row["fair_share"], row["waiting"])
             for row in rows][:2 * TOP]
    sentence = f"{named[0][0]} has {octets(named[0][1] + named[0][2])} of message files."
    return Chart("Back ends and partitions", sentence, bars("Back ends and partitions", sentence, [
        Bar(label, octets(held + waiting), (("fair", held), ("waits", waiting))) for label, held, waiting in named]),
        ("partition", "held", "waits to be removed"),
        [(label, number(held), number(waiting)) for label, held, waiting in named],
        (("fair", "held by users"), ("waits", "waits to be removed")))


def _activity(made: Mapping[str, Any]) -> Chart | None:
    people = [user for user in made["users"] if user["user"] != PUBLIC]
    if not people:
        return None
    now = datetime.fromisoformat(made["created"].replace("Z", "+00:00"))
    bounds = [((now - timedelta(days=days)).isoformat()[:19], label) for days, label in AGES]
    counts = dict.fromkeys([*(label for _, label in bounds), "longer", "never"], 0)
    for user in people:
        label = "never" if user["newest"] is None else next(
            (label for bound, label in bounds if user["newest"][:19] >= bound), "longer")
        counts[label] += 1
    idle = counts["longer"] + counts["never"]
    sentence = f"{number(idle)} of {number(len(people))} users have had nothing for a year."
    return Chart("When users last got mail: within", sentence, columns("When users last got mail", sentence, [
        (label, count, "waits" if label in ("longer", "never") else "fair") for label, count in counts.items()]),
        ("within", "users"), [(label, number(count)) for label, count in counts.items()])


def charts_of_lists(made: Mapping[str, Any]) -> list[Chart | None]:
    """Those of the lists that are of all records and message files, as far as these are known."""
    return [
        bars_of("Kinds of folder", made["kinds"], "kind", "logical", None),
        bars_of("Senders", made["senders"] or (), "sender", "file_octets", None),
        _columns("Age of messages", _by_age(made["ages"])),
        _columns("Size of message files", [(row["size_class"], row["files"]) for row in made["sizes"]]),
        bars_of("What a purge delay of so many days would free", made["purge"] or (), "days", "freed", None)]


def bars_of(name: str, rows: Sequence[Row], key: str, figure: str, behind: str | None) -> Chart | None:
    """The first rows of a list by a figure, and another one behind it."""
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


# Tables

@frozen
class Table:
    """A table: its name, heads, rows (the first column is text), and how many rows it would have."""

    name: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    count: int


def tables(made: Mapping[str, Any]) -> list[Table]:
    """The tables that have rows."""
    users = [user for user in made["users"] if user["user"] != PUBLIC]
    limited = sorted((root for root in made["roots"] if root["warned"] or root["over"] or root["in_grace"]),
                     key=lambda root: (-(root["per_cent"] or 0), root["root"]))
    found = [
        _table("Over quota, or nearly", ("quota root", "used", "limit", "per cent", "messages", "limit", "refused"),
               limited, lambda root: (root["root"], octets(root["charged"]), octets(root["limit"]),
                                      number(root["per_cent"]), number(root["messages"]),
                                      number(root["message_limit"]), _grace(root))),
        _table("Idle users, largest first", ("user", "last mail", "last login", "messages", "as the user sees it",
                                             "fair share", "freed without"),
               sorted((user for user in users if user["idle"]), key=lambda user: -user["fair_share"]),
               lambda user: (user["user"], day(user["newest"]), day(user["last_login"]), number(user["messages"]),
                             octets(user["logical"]), octets(user["fair_share"]), octets(user["freed"]))),
        _table("Who has mail and reads none, by what would be freed", (
            "user", "last read", "newest that is \\Seen", "last login", "messages", "fair share", "freed without"),
               sorted((user for user in users if user["reads_nothing"] and user["messages"]),
                      key=lambda user: (-user["freed"], user["user"])),
               lambda user: (user["user"], day(user["last_read"]), day(user["newest_read"]), day(user["last_login"]),
                             number(user["messages"]), octets(user["fair_share"]), octets(user["freed"]))),
        _table("Classes of service (groups)", (
            "class", "users", "messages", "as users see it", "fair share", "freed without", "idle", "over"),
               made["classes"] or (),
               lambda row: (row["class"], number(row["users"]), number(row["messages"]), octets(row["logical"]),
                            octets(row["fair_share"]), octets(row["freed"]), number(row["idle"]), number(row["over"]))),
        _table("Largest mailboxes", ("mailbox", "messages", "as the user sees it", "of that, shared", "fair share"),
               sorted((box for box in made["mailboxes"] if box["messages"]),
                      key=lambda box: (-box["fair_share"], box["mailbox"])),
               lambda box: (box["mailbox"], number(box["messages"]), octets(box["logical"]), octets(box["shared"]),
                            octets(box["fair_share"]))),
        _table("Counters that are not what the records say", ("quota root", "octets too many", "messages too many"),
               [root for root in made["roots"] if root["drift_octets"] or root["drift_messages"]],
               lambda root: (root["root"], number(root["drift_octets"]), number(root["drift_messages"]))),
    ]
    return [table for table in found if table.count]


def _grace(root: Row) -> str:
    if root["refused_since"] is None:
        return "–" if root["in_grace"] is None else "no"
    return f"since {day(root['refused_since'])}" + ("" if root["in_grace"] else ", for good")


def _table(name: str, heads: Sequence[str], rows: Sequence[Row], shown: Callable[[Row],
                                                                                           Sequence[str]]) -> Table:
    return Table(name, heads, [shown(row) for row in rows[:ROWS]], len(rows))
