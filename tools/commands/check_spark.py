"""The options of `onecopy check --engine spark`."""

import argparse
from pathlib import Path

from tools.cli.invocation import Invocation
from tools.cli.later import Later
from tools.commands.spark import REQUIRE
from tools.exits import Failure

ENGINES = ("check", "auto", "local", "spark")
verify_store = Later("tools.spark.verify.verifycommand:verify_store", REQUIRE)


def add_options(made: argparse.ArgumentParser) -> None:
    """The options of a verification."""
    group = made.add_argument_group("verification", "that also reads every message and store.idx")
    group.add_argument("--engine", choices=ENGINES, default="check",
                       help="what reads all of the store: this process, or Spark; auto: whichever is quicker; "
                            "check: only databases and store.idx are read (the default)")
    group.add_argument("--plan", type=Path, metavar="DIR", help="keep what was found, and a plan of a rebuild, in DIR")
    group.add_argument("--apply", action="store_true", help="put right what was found")
    group.add_argument("--sweep", action="store_true", help="and remove the files that nobody knows")
    group.add_argument("--master", metavar="URL", default="local[*]",
                       help="local[N], spark://HOST:PORT, yarn or k8s://URL (local[*])")
    group.add_argument("--spark", metavar="KEY=VALUE", action="append", default=[], help="a setting of Spark's own")


def is_asked(invocation: Invocation) -> bool:
    """Whether a verification is asked for. Raises Failure for options that only one has."""
    arguments = invocation.arguments
    if arguments.engine == "check":
        if arguments.plan or arguments.apply or arguments.sweep:
            raise Failure("--plan, --apply and --sweep are for --engine auto, local or spark")
        return False
    if arguments.sweep and not arguments.apply:
        raise Failure("--sweep is for --apply")
    return True
