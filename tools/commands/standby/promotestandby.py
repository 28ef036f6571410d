"""onecopy standby promote"""

import signal
import socket
import time
from collections.abc import Mapping
from pathlib import Path

from store.errors import Problem, StoreError
from store.standby import promotion, standbyprocess, standbystate
from store.standby.reading import readingcopies
from store.standby.standbystate import StandbyState
from tools.cli.invocation import Invocation, Parsers
from tools.cli.output import print_json, when
from tools.cli.progressbar import bar
from tools.cli.storeaccess import open_configured
from tools.commands.standby.sourceconnection import read_address, written
from tools.server.control.backendlink import Address, standby_addresses

PATIENCE = 60.0             # seconds that the process which follows has to end;
GENTLE = 5.0                # after so many it is killed: it may wait for an answer of a machine that is lost
ANSWER = 10.0               # seconds in which the other machine takes a connection, if it runs
STEP = 0.1


def add(parser: Parsers) -> None:
    """Make the parser."""
    made = parser("standby promote", promote, "make a standby the store that serves: stop the other machine first, or "
                                              "see to it that nobody reaches it; then start the server here")
    made.add_argument("--force", action="store_true", help="also while the other machine answers")
    made.add_argument("--yes", action="store_true", help="do not ask")
    made.add_argument("--json", action="store_true")


def promote(invocation: Invocation) -> int:
    """onecopy standby promote"""
    arguments, root = invocation.arguments, invocation.config.root
    state = standbystate.read(root)
    if state is None:
        raise StoreError(Problem.NO_STORE, f"There is no standby in {root}; onecopy standby create makes one")
    promotion.require_whole(state)
    if not arguments.force:
        _require_silence(state, standby_addresses(invocation.config))
    invocation.confirm(f"Make this the store in the place of {state.host}, as it was at {when(state.moment)}? The "
                       f"other machine must not serve any more")
    with bar("promoting"):
        readingcopies.end(root)
        _end_follower(root)
        with standbyprocess.alone(root):
            state = promotion.promote(root)
        open_configured(invocation.config, invocation.arguments.program).close()
    if arguments.json:
        print_json({"host": state.host, "moment": state.moment})
    else:
        print(f"{root} has the store of {state.host} as it was at {when(state.moment)}; onecopy serve serves it")
    return 0


def _require_silence(state: StandbyState, own: Mapping[str, Address]) -> None:
    """Raises StoreError STORE_IN_USE when a machine answers that this one follows, or that one, be it that it refuses
    us: two would serve one store. A standby that answers has more than this one. `own`: where machines are, as this one
    knows it."""
    above = [own.get(each.host, each) for each in map(read_address, state.above)]
    for number, address in enumerate((read_address(state.address), *above)):
        try:
            socket.create_connection((address.address, address.port), ANSWER).close()
        except OSError:
            continue
        name = state.host if number == len(above) else address.host
        advice = "" if number == len(above) else ", or promote that one, which has no less than this one"
        raise StoreError(Problem.STORE_IN_USE, f"{name} answers at {written(address)}: stop it first{advice}; nothing "
                                               "was changed")


def _end_follower(root: Path) -> None:
    """Have the process that follows end. Raises StoreError STORE_IN_USE."""
    began, asked = time.monotonic(), 0
    while process := standbyprocess.process(root):
        late = time.monotonic() - began > GENTLE
        if process != asked or late:        # one that it has made may still put logs into tables
            asked = standbyprocess.send(root, signal.SIGKILL if late else signal.SIGTERM)
        if time.monotonic() - began > PATIENCE:
            raise StoreError(Problem.STORE_IN_USE, f"The process {process} follows, and does not end")
        time.sleep(STEP)
