"""onecopy quota report"""

import argparse
from pathlib import Path

from store import values
from store.settings import QUOTA_CHARGES
from tools.cli.invocation import Parsers, typed
from tools.cli.later import Later
from tools.commands import spark

ENGINES = ("spark", "local")
LEVELS = ("users", "mailboxes", "domains", "partitions", "stores", "roots", "classes", "ages", "kinds", "sizes",
          "messages", "senders", "purge")
ROWS = 25
IDLE = 180                  # days
REPORT = Later("tools.spark.report.reportcommand:report", spark.REQUIRE)


def add(parser: Parsers) -> None:
    """Make the parser."""
    made = parser("quota report", REPORT, "what users, mailboxes, domains, partitions and back ends hold, by Spark; "
                  "exit status 1 if the sums are not the octets of the message files")
    form = made.add_mutually_exclusive_group()
    made.add_argument("--bytes", action="store_true")
    form.add_argument("--json", action="store_true")
    form.add_argument("--csv", action="store_true", help="print comma-separated values, for spreadsheets")
    made.add_argument("--by", choices=LEVELS, default="users", help="what a line of the table or of --csv is (users)")
    made.add_argument("--html", type=Path, metavar="FILE", help="a page with charts, which needs no other file")
    made.add_argument("--parquet", type=Path, metavar="DIR", help="the lists as Parquet files, beside earlier ones")
    made.add_argument("--since", type=Path, metavar="REPORT", help="growth since this report: a file that --json "
                      "wrote, or a folder that --parquet wrote (the newest one in the DIR of --parquet)")
    made.add_argument("--idle", type=_days, default=IDLE, metavar="DAYS", help=f"users are idle after so long ({IDLE})")
    made.add_argument("--offline", action="store_true", help="open no store: read the files alone")
    made.add_argument("--fix", action="store_true", help="correct quota counters that are not what the records say")
    made.add_argument("--notify", action="store_true", help="send the notices that are due to users who have reached "
                      "the warning threshold")
    group = made.add_argument_group("what if")
    group.add_argument("--default-quota", type=typed(values.size), metavar="SIZE",
                      help="... this were the default limit; 0: none")
    group.add_argument("--charging", choices=QUOTA_CHARGES, help="... this were charged")
    group.add_argument("--expire", action="append", default=[], metavar="RULE", help="... messages were removed by "
                       "this rule, as files of rules have it: 'folderpattern: user/*/Lists/*; messagedays: 365'")
    group.add_argument("--expire-rules", type=Path, action="append", default=[], metavar="FILE", help="... by the "
                       "rules of this file")
    made.add_argument("--engine", choices=ENGINES, help="what reads the store: Spark, or this process, which is sooner "
                      "for a small store and holds all of its records in memory (by the size of the store)")
    made.add_argument("--fleet", nargs="+", default=[], metavar="FACTS", help="of many back ends: the places to which "
                      "each has exported its facts; with what they have in common, what could be freed, and who reads "
                      "nothing")
    made.add_argument("--rows", type=_days, default=ROWS, metavar="N", help="rows of the largest messages "
                      f"and senders, and of each list of a fleet ({ROWS})")
    spark.add_options(made)


def _days(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of days")
    return int(text)
