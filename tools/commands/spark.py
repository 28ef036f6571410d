"""onecopy spark shell, sql, export"""

import argparse
import code
import csv
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from tools.cli.exits import Failure
from tools.cli.invocation import Invocation, Parsers
from tools.cli.output import print_facts, print_json, print_table

if TYPE_CHECKING:
    pass

TABLES = ("messages", "mailboxes", "references", "quotas", "rights")
ROWS = 1000


def add(parser: Parsers) -> None:
    """Make the parsers."""
    made = parser("spark shell", shell, "a Python prompt with the store's tables in a Spark session")
    add_options(made)
    made = parser("spark sql", sql, "what a query in SQL over the store's tables gives")
    made.add_argument("query", metavar="QUERY", help=f"over the tables {', '.join(TABLES)}")
    made.add_argument("--limit", type=_number, default=ROWS, metavar="N", help=f"rows; 0: all of them ({ROWS})")
    form = made.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true")
    form.add_argument("--csv", action="store_true", help="print comma-separated values, for spreadsheets")
    add_options(made)
    made = parser("spark export", export, "write the store's tables as Parquet files")
    made.add_argument("folder", type=Path, metavar="DIR", help="where the files go, a folder for each table")
    made.add_argument("--table", choices=TABLES, action="append", help="this table alone; again for another one")
    made.add_argument("--since", action="store_true", help="write only what has changed since the last export to DIR")
    made.add_argument("--json", action="store_true")
    add_options(made)


def add_options(made: argparse.ArgumentParser) -> None:
    """What every command that runs on Spark has."""
    group = made.add_argument_group("Spark")
    group.add_argument("--stores", metavar="PATHS", help="stores, or partitions, in the place of --root: several with "
                       "commas between them, or a pattern such as '/srv/*/mail'")
    group.add_argument("--master", metavar="URL", default="local[*]",
                       help="local[N], spark://HOST:PORT, yarn or k8s://URL (local[*])")
    group.add_argument("--spark", metavar="KEY=VALUE", action="append", default=[], help="a setting of Spark's own")


@contextmanager
def session(invocation: Invocation, what: str) -> Iterator[Any]:
    """A session as the options say. Raises Failure."""
    begin = begun(invocation)
    with begin(f"onecopy {what}") as spark:
        yield spark


def begun(invocation: Invocation) -> Callable[[str], Any]:
    """What begins a session; everything that can be said without one is said here. Raises Failure."""
    from tools.spark import sparksession as made
    if made.missing():
        raise Failure(made.missing())
    settings = made.options(invocation.arguments.spark)
    return lambda name: made.session(name, invocation.arguments.master, settings)


def stores(invocation: Invocation) -> list[str]:
    """The folders of the stores that are meant. Raises Failure."""
    from tools.spark import sparksession as made
    if made.missing():
        raise Failure(made.missing())
    from tools.spark.source.reading import roots
    try:
        given = invocation.arguments.stores
        return roots(given if given is not None else [str(invocation.config.root)])
    except ValueError as error:
        raise Failure(str(error)) from None


def shell(invocation: Invocation) -> int:
    """onecopy spark shell"""
    from tools.spark.sparksession import tables
    where = stores(invocation)
    with session(invocation, "shell") as spark:
        tables(spark, where)
        names = {"spark": spark, "sql": spark.sql, **{name: spark.table(name) for name in TABLES}}
        banner = f"Spark {spark.version}. Tables: {', '.join(TABLES)}. Try sql(\"SELECT ...\").show(), quotas.show()"
        code.interact(banner=banner if sys.stdin.isatty() else "", local=names, exitmsg="")
    return 0


def sql(invocation: Invocation) -> int:
    """onecopy spark sql"""
    from tools.spark.sparksession import plain, progress, tables
    arguments, where = invocation.arguments, stores(invocation)
    with session(invocation, "sql") as spark:
        with plain():
            tables(spark, where, [table for table in TABLES if table in arguments.query.lower()])
            frame = spark.sql(arguments.query)
            with progress(spark, "sql"):
                rows, more = _collect(frame, arguments.limit)
        columns = list(frame.columns)
    if arguments.json:
        print_json(rows)
    elif arguments.csv:
        _print_csv(rows, columns)
    elif columns:
        print_table(rows, columns)
    if more:
        print(f"onecopy: there are more than these {arguments.limit} rows: see --limit", file=sys.stderr)
    return 0


def _collect(frame: Any, limit: int) -> tuple[list[dict[str, object]], bool]:
    rows = (frame.limit(limit + 1) if limit else frame).toArrow().to_pylist()
    return (rows[:limit], True) if limit and len(rows) > limit else (rows, False)


def _print_csv(rows: Iterable[dict[str, object]], columns: Sequence[str]) -> None:
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(columns)
    out.writerows([row[column] for column in columns] for row in rows)


def export(invocation: Invocation) -> int:
    """onecopy spark export"""
    arguments, where = invocation.arguments, stores(invocation)
    from tools.spark import parquet as exporting
    from tools.spark.sparksession import mapper, plain, progress
    folder = arguments.folder.absolute()
    exporting.read_manifest(folder)         # before Spark starts for nothing
    with session(invocation, "export") as spark, progress(spark, "export"):
        with plain():
            done = exporting.export(where, folder, arguments.table or TABLES, mapper(spark, 64), since=arguments.since)
    if arguments.json:
        print_json(attrs.asdict(done))
    else:
        print_facts({"files written": done.written, "unchanged": done.unchanged, "removed": done.removed,
                     "rows written": done.rows})
    return 0


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of rows")
    return int(text)
