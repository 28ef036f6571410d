"""onecopy standby follow"""

import signal
import threading

from store import values
from store.errors import Problem, StoreError
from store.standby import longfollowing, standbystate
from store.standby.longfollowing import LongFollowing
from tools.cli.invocation import Invocation, Parsers, typed
from tools.commands.standby.sourceconnection import connect, log_to_standard_error, read_address


def add(parser: Parsers) -> None:
    """Make the parser."""
    made = parser("standby follow", follow, "have a standby follow the back end that it was made from, until SIGTERM",
                  settings=True)
    made.add_argument("--rate", type=typed(values.size), default=0, metavar="SIZE",
                      help="octets a second that come, at most; default: as fast as they can")


def follow(invocation: Invocation) -> int:
    """onecopy standby follow"""
    root, stop = invocation.config.root, threading.Event()
    state = standbystate.read(root)
    if state is None:
        raise StoreError(Problem.NO_STORE, f"There is no standby in {root}; onecopy standby create makes one")
    log_to_standard_error()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    address = read_address(state.address)
    with longfollowing.alone(root):
        LongFollowing(root, lambda: connect(invocation, address, invocation.arguments.rate), stop).run()
    return 0
