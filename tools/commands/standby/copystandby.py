"""onecopy standby copy"""

import shlex
from pathlib import Path

from store.standby.reading import readingstate
from tools.cli.invocation import Invocation, Parsers
from tools.cli.output import print_json, when
from tools.cli.progressbar import changing_bar


def add(parser: Parsers) -> None:
    """Make the parser."""
    made = parser("standby copy", copy, "make a store for reading of what a standby has now, beside the process that "
                                        "follows: serve, backup, check and spark work with it, with --root FOLDER")
    made.add_argument("--to", type=Path, required=True, metavar="FOLDER", help="an empty folder, or that of an earlier "
                      "one, which is replaced; it takes as much room as the databases")
    made.add_argument("--indexes", action="store_true", help="with the store.idx of all mailboxes, which Spark reads")
    made.add_argument("--json", action="store_true")


def copy(invocation: Invocation) -> int:
    """onecopy standby copy"""
    root, place = invocation.config.root, invocation.arguments.to.absolute()
    with changing_bar() as progress:
        state = readingstate.make(root, place, progress, indexes=invocation.arguments.indexes)
    if invocation.arguments.json:
        print_json({"host": state.host, "moment": state.moment, "root": str(place)})
    else:
        print(f"{place} has the store of {state.host} as it was at {when(state.moment)}, for reading; onecopy serve "
              f"--root {shlex.quote(str(place))} serves it")
    return 0
