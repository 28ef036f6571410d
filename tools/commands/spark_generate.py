"""onecopy spark generate"""

import argparse
import os
import sys
from pathlib import Path

from tools.cli.exits import Failure
from tools.cli.invocation import Invocation, Parsers
from tools.cli.output import print_json


def add(parser: Parsers) -> None:
    """Make the parser."""
    made = parser("spark generate", generate, "make a store with invented mail, the same for the same seed")
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


def generate(invocation: Invocation) -> int:
    """onecopy spark generate"""
    from tools.spark.generate.generator import Shape
    from tools.spark.generate.generator import generate as make
    arguments = invocation.arguments
    shape = Shape(arguments.messages, arguments.users, arguments.references, arguments.seed, arguments.small)
    person = sys.stderr.isatty()

    def show(what: str, done: int, total: int) -> None:
        print(f"\r\x1b[K{what} {done} of {total}", end="", file=sys.stderr, flush=True)

    try:
        records = make(arguments.folder, shape, processes=arguments.processes,
                       progress=show if person else lambda what, done, total: None)
    except OSError as error:
        raise Failure(f"cannot make a store in {arguments.folder}: {error.strerror}") from error
    finally:
        if person:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    if arguments.json:
        print_json({"messages": shape.messages, "users": shape.users, "records": records})
    else:
        print(f"{shape.messages} messages, {records} records, {shape.users} users in {arguments.folder}")
    return 0


def _number(text: str) -> int:
    number = _seed(text)
    if not number:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return number


def _seed(text: str) -> int:
    if not text.isascii() or not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number")
    return int(text)
