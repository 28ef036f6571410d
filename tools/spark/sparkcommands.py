"""onecopy spark sharing; and what every command on Spark begins with."""

import csv
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import attrs

from tools.cli.invocation import Invocation
from tools.cli.output import print_facts, print_json, print_table
from tools.exits import Failure
from tools.spark import sharing, sparksession
from tools.spark.source.reading import roots
from tools.spark.sparksession import plain, progress, tables

FORMULAS = ("=", "+", "-", "@", "\t", "\r")       # begin what a spreadsheet calculates


@contextmanager
def session(invocation: Invocation, what: str) -> Iterator[Any]:
    """A session as the options say. Raises Failure."""
    settings = sparksession.options(invocation.arguments.spark)
    with sparksession.session(f"onecopy {what}", invocation.arguments.master, settings) as spark:
        yield spark


def stores(invocation: Invocation) -> list[str]:
    """The folders of the stores that are meant. Raises Failure."""
    try:
        given = invocation.arguments.stores
        return roots(given if given is not None else [str(invocation.config.root)])
    except ValueError as error:
        raise Failure(str(error)) from None


def print_csv(rows: Iterable[Mapping[str, object]], columns: Collection[str]) -> None:
    """A line of names, and one for each row. No cell is a formula to a spreadsheet, which it would calculate: a text
    that begins like one has an apostrophe before it."""
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow([_cell(column) for column in columns])
    out.writerows([_cell(row[column]) for column in columns] for row in rows)


def _cell(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULAS) else value


def show_sharing(invocation: Invocation) -> int:
    """onecopy spark sharing"""
    arguments, where = invocation.arguments, stores(invocation)
    with session(invocation, "sharing") as spark, progress(spark, "sharing"), plain():
        tables(spark, where, ["messages", "references"])
        found = sharing.analyse(spark, where, moves=arguments.moves, near=arguments.near)
    if arguments.json:
        print_json(attrs.asdict(found))
    else:
        _print_sharing(found)
    return 0


def _print_sharing(found: Any) -> None:
    print_facts({"message files": found.totals["files"], "octets": found.totals["octets"],
                 "contents that lie on several partitions": found.totals["contents"],
                 "files too many": found.totals["copies"], "octets too many": found.totals["cost"]})
    for title, rows, columns in (
            ("Partitions that have the same contents", found.pairs, (
                "store", "partition", "other_store", "other_partition", "contents", "octets")),
            ("What costs most", found.largest, ("digest", "copies", "octets", "cost")),
            ("Moves that would save octets, the best first", found.moves, (
                "user", "store", "partition", "to_store", "to_partition", "octets", "freed", "added", "saved"))):
        if rows:
            print(f"\n{title}:")
            print_table(rows, columns, sizes=("added",))
    if found.near is not None:
        print()
        print_facts({"messages that differ only in fields at their heads": found.near["messages"],
                     "files": found.near["files"], "octets too many": found.near["cost"]})
        if found.near["largest"]:
            print_table(found.near["largest"], ("store", "partition", "files", "octets", "cost", "digests"))
