"""onecopy quota report --fleet"""

import json
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyarrow import parquet

from mboxlist import privatefiles
from store.settings import Settings
from tools.cli.invocation import Invocation
from tools.cli.output import print_facts, print_json, print_table, size
from tools.exits import Failure
from tools.spark import engines
from tools.spark.engines import LOCAL, SPARK, Choice
from tools.spark.facts.factfolders import is_uri, opened
from tools.spark.report import fleetjob, fleetlocal
from tools.spark.report.fleetjob import back_ends
from tools.spark.report.fleetviews import OLD_DAYS
from tools.spark.sparkcommands import print_csv, session
from tools.spark.sparksession import plain, progress


def report(invocation: Invocation) -> int:
    """Make the report of a fleet, of exports of facts."""
    arguments = invocation.arguments
    if wrong := not_for_facts(arguments):
        raise Failure(f"--{wrong} is about a store, and --fleet reads facts")
    settings = invocation.config.settings("store", Settings)
    before = None if arguments.since is None else earlier(arguments.since)
    terms = fleetjob.Terms(settings, datetime.now(UTC), arguments.idle, arguments.rows)
    if _engine(arguments) == LOCAL:
        facts = opened(arguments.fleet)
        made = fleetlocal.fleet(facts, terms, _written_here(arguments.parquet, terms))
    else:
        with session(invocation, "quota report") as spark, progress(spark, "quota report"), plain():
            facts = opened(arguments.fleet, spark)
            made = fleetjob.fleet(spark, facts, terms, _written(arguments.parquet, terms))
    fleetjob.full_on(made, before)
    made["problems"] = [*fleetjob.unread(facts), *fleetjob.differences(made)]
    _print(arguments, made)
    for line in made["problems"]:
        print(f"onecopy: {line}", file=sys.stderr)
    return 1 if made["problems"] else 0


def not_for_facts(arguments: Any) -> str:
    """The option that was given and is about a store alone; "" for none."""
    words = ("fix", "notify", "expire", "expire_rules", "charging", "stores", "default_quota")
    given = [word for word in words if getattr(arguments, word) or word == "default_quota" and getattr(
        arguments, word) is not None]               # 0 is none
    return given[0].replace("_", "-") if given else ""


def _engine(arguments: Any) -> str:
    """The engine that is asked for; otherwise one by size, with a line that says which: the first one, on standard
    error where the rest is for programs."""
    if arguments.engine is not None:
        if arguments.engine == LOCAL and any(map(is_uri, arguments.fleet)):
            raise Failure("--engine local reads folders, and Spark reads URIs")
        return str(arguments.engine)
    choice = Choice(SPARK, "engine: Spark, which reads URIs") if any(map(is_uri, arguments.fleet)) else (
        engines.of_fleet(sum(one.rows["references"] for one in opened(arguments.fleet)), arguments.master))
    print(choice.why, file=sys.stderr if arguments.json or arguments.csv else sys.stdout)
    return choice.engine


def _written(folder: Path | None, terms: fleetjob.Terms) -> Callable[[str, Any], None] | None:
    """Has the executors write a list, in a folder of its own beside those of earlier reports."""
    def write(name: str, frame: Any) -> None:
        assert folder is not None
        privatefiles.make_folder(folder / name, parents=True, exist_ok=True)
        frame.write.parquet((folder / name / f"{terms.now:%Y%m%dT%H%M%SZ}").absolute().as_uri())

    return None if folder is None else write


def _written_here(folder: Path | None, terms: fleetjob.Terms) -> Callable[[str, Any], None] | None:
    """Writes a list, where Spark's executors would."""
    def write(name: str, table: Any) -> None:
        assert folder is not None
        place = folder / name / f"{terms.now:%Y%m%dT%H%M%SZ}"
        privatefiles.make_folder(place, parents=True, exist_ok=True)
        with privatefiles.replacing(place / "part-00000.parquet", sync=False) as file:
            parquet.write_table(table, file, compression="zstd")

    return None if folder is None else write


def earlier(path: Path) -> dict[str, Any]:
    """An earlier report that --json printed. Raises Failure."""
    try:
        found: dict[str, Any] = json.loads(privatefiles.read_text(path))
        if not found["fleet"] or not isinstance(found["partitions"], list):
            raise KeyError("fleet")
        return found
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Failure(f"{path} is no report of a fleet: {getattr(error, 'strerror', None) or error}") from None


def _print(arguments: Any, made: Mapping[str, Any]) -> None:
    if arguments.html is not None:
        from tools.spark.report.fleetpage import page  # here: only this needs Jinja2, which need not be there
        with privatefiles.replacing(arguments.html, sync=False) as file:
            file.write(page(made).encode())
    if arguments.json:
        print_json(made)
    elif arguments.csv:
        rows = made[arguments.by if arguments.by != "roots" else "over_quota"]
        if rows:
            print_csv(rows, rows[0].keys())
        if len(rows) == arguments.rows:
            print(f"onecopy: these are the first {len(rows):,} rows (see --rows); --parquet DIR has all users and "
                  "mailboxes", file=sys.stderr)
    else:
        _print_tables(made)


def _print_tables(made: Mapping[str, Any]) -> None:
    totals = made["totals"]
    print(f"Facts of {back_ends(made)}")
    print_facts({
        "users": totals["users"], "mailboxes": totals["mailboxes"],
        "messages": f"{totals['messages'] or 0} in {totals['files']} files",
        "as users see it": size(totals["logical"] or 0), "message files": size(totals["file_octets"]),
        "waits for the purge": f"{size(totals['waiting'])} in {totals['waiting_files']} files",
        f"in Junk and Trash alone, older than {OLD_DAYS} days": size(totals["rubbish"]),
        "over quota": totals["over"], "idle": totals["idle"], "read nothing": totals["reads_nothing"],
        "on several back ends": f"{size(totals['doubled_octets'])} too many, of {totals['doubled']} contents"})
    for name, title in fleetjob.TITLES.items():
        if rows := made[name]:
            print(f"\n{title}:")
            shown = tuple(column for column in rows[0] if column != "store" or len(made["back_ends"]) > 1)
            print_table(rows, shown, sizes=tuple(column for column in shown if column in fleetjob.OCTETS))
