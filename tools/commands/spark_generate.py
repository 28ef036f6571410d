"""onecopy spark generate"""

import argparse
import os
from pathlib import Path

from tools.cli.invocation import Parsers
from tools.cli.later import Later

GENERATE = Later("tools.spark.generate.generatecommand:run")


def add(parser: Parsers) -> None:
    """Make the parser."""
    made = parser("spark generate", GENERATE, "make a store with invented mail, the same for the same seed")
    made.add_argument("folder", type=Path, metavar="ROOT", help="where the store is to be")
    made.add_argument("--messages", type=_number, required=True, metavar="N", help="message files")
    made.add_argument("--users", type=_number, required=True, metavar="N", help="users, each with mailboxes")
    made.add_argument("--references", type=_number, default=20, metavar="N",
                      help="records that refer to a message, on the average (20)")
    made.add_argument("--seed", type=_seed, default=1, metavar="N", help="another one makes another store (1)")
    made.add_argument("--small", action="store_true", help="messages of about 1 KiB instead of 8 to 16 KiB")
    made.add_argument("--processes", type=_number, default=os.cpu_count() or 1, metavar="N",
                      help="that make messages (one for each processor)")
    made.add_argument("--json", action="store_true")


def _number(text: str) -> int:
    number = _seed(text)
    if not number:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return number


def _seed(text: str) -> int:
    if not text.isascii() or not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number")
    return int(text)
