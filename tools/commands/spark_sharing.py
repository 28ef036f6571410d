"""onecopy spark sharing"""

import argparse

from tools.cli.invocation import Parsers
from tools.cli.later import Later
from tools.commands import spark

SHARING = Later("tools.spark.sparkcommands:show_sharing", spark.REQUIRE)


def add(parser: Parsers) -> None:
    """Make the parser."""
    made = parser("spark sharing", SHARING, "what lies on several partitions and back ends, what it costs, and "
                  "whose move would save most")
    made.add_argument("--moves", type=_number, default=20, metavar="N", help="moves that are shown (20)")
    made.add_argument("--near", action="store_true",
                      help="read all messages, and find those that only differ in fields at their heads")
    made.add_argument("--json", action="store_true")
    spark.add_options(made)


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number")
    return int(text)
