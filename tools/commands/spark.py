"""onecopy spark sharing, shell, sql; facts export"""

import argparse

from tools.cli.invocation import Parsers
from tools.cli.later import Later
from tools.spark.tablenames import TABLES

REQUIRE = "tools.spark.sparksession:require"
ROWS = 1000

SHARING = Later("tools.spark.sparkcommands:show_sharing", REQUIRE)
SHELL = Later("tools.spark.facts.asking:shell", REQUIRE)
SQL = Later("tools.spark.facts.asking:sql", REQUIRE)
EXPORT = Later("tools.spark.facts.factscommand:export", REQUIRE)


def add(parser: Parsers) -> None:
    """Make the parsers."""
    made = parser("spark sharing", SHARING, "what lies on several "
                  "partitions and back ends, what it costs, and whose move would save most")
    made.add_argument("--moves", type=_number, default=20, metavar="N", help="moves that are shown (20)")
    made.add_argument("--near", action="store_true",
                      help="read all messages, and find those that only differ in fields at their heads")
    made.add_argument("--bytes", action="store_true")
    made.add_argument("--json", action="store_true")
    add_options(made)
    made = parser("spark shell", SHELL, "a Python prompt with the store's tables in a Spark session")
    _add_facts(made)
    add_options(made)
    made = parser("spark sql", SQL, "what a query in SQL over the store's tables gives")
    made.add_argument("query", metavar="QUERY", help=f"over the tables {', '.join(TABLES)}")
    made.add_argument("--limit", type=_number, default=ROWS, metavar="N", help=f"rows; 0: all of them ({ROWS})")
    _add_facts(made)
    form = made.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true")
    form.add_argument("--csv", action="store_true", help="print comma-separated values, for spreadsheets")
    add_options(made)
    made = parser("facts export", EXPORT, "write what the databases say of mailboxes, messages, quotas, users and "
                  "rights as Parquet files, from a snapshot, beside a running server; again: only what has changed")
    made.add_argument("destination", metavar="DEST", help="a folder, or a URI of what Hadoop writes, such as "
                      "s3a://BUCKET/FOLDER; each back end needs its own")
    made.add_argument("--name", metavar="NAME", help="what the back end is called among others (HOST:ROOT)")
    made.add_argument("--snapshot", metavar="SNAPSHOT", help="of this snapshot, by its name in the list; otherwise one "
                      "is made, and removed")
    made.add_argument("--processes", type=_number, default=0, metavar="N",
                      help="processes that read and write; they give way to all others (half the processors)")
    made.add_argument("--json", action="store_true")
    add_session_options(made.add_argument_group("Spark, which only a URI needs"))


def _add_facts(made: argparse.ArgumentParser) -> None:
    made.add_argument("--facts", metavar="FACTS", action="append", default=[], help="the tables of this export of "
                      "facts, in the place of a store's; again for those of another back end")


def add_options(made: argparse.ArgumentParser) -> None:
    """What every command that runs on Spark has."""
    group = made.add_argument_group("Spark")
    group.add_argument("--stores", metavar="PATHS", help="stores, or partitions, in the place of --root: several with "
                       "commas between them, or a pattern such as '/srv/*/mail'")
    add_session_options(group)


def add_session_options(group: argparse._ArgumentGroup) -> None:
    """What every command has that may start Spark."""
    group.add_argument("--master", metavar="URL", default="local[*]",
                       help="local[N], spark://HOST:PORT, yarn or k8s://URL (local[*])")
    group.add_argument("--spark", metavar="KEY=VALUE", action="append", default=[], help="a setting of Spark's own")


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number")
    return int(text)
