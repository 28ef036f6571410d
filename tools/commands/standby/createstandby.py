"""onecopy standby create"""

import contextlib

from store import values
from store.standby import seeding, standbyprocess, standbystate
from tools.cli.invocation import Invocation, Parsers, typed
from tools.cli.output import print_json
from tools.cli.progressbar import changing_bar
from tools.commands.standby.sourceconnection import connect, disk_here, read_address, written


def add(parser: Parsers) -> None:
    """Make the parser."""
    made = parser("standby create", create, "make a standby in the empty folder of the store: a copy of all that "
                                            "another back end has, beside its running server; what was cut off goes "
                                            "on")
    made.add_argument("--from", dest="source", metavar="HOST:PORT", required=True, type=typed(read_address),
                      help="the back end that is followed, and its exchange.port; HOST=ADDRESS:PORT where the name "
                           "leads elsewhere")
    made.add_argument("--rate", type=typed(values.size), default=0, metavar="SIZE",
                      help="octets a second that come, at most; default: as fast as they can")
    made.add_argument("--partition", action="append", default=[], metavar="NAME", dest="only",
                      help="protect this partition, and others that are named so; default: all. What is on the others "
                           "is only on the back end that is followed, also after a promotion")
    made.add_argument("--json", action="store_true")


def create(invocation: Invocation) -> int:
    """onecopy standby create"""
    arguments, root = invocation.arguments, invocation.config.root
    seeding.require_empty(root)
    with (disk_here(root), contextlib.closing(connect(invocation, arguments.source, arguments.rate)) as source,
          standbyprocess.alone(root)):
        state = seeding.begin(root, source, written(arguments.source), arguments.only)
        with changing_bar(octets=True) as progress:
            state = seeding.seed(root, state, source, progress)
    if arguments.json:
        print_json({"host": state.host, "moment": state.moment, "partitions": sorted(state.ends),
                    "unprotected": sorted(state.others)})
    else:
        for each in sorted(state.others):
            print(standbystate.unprotected(each, state.others[each]))
        print(f"{root} is a standby of {state.host}; onecopy standby follow has it follow")
    return 0
