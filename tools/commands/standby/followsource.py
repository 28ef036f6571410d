"""onecopy standby follow

While it follows, the machine that it follows may ask whether it has been promoted, where `exchange.port` is set. It
does so before it serves (`tools.server.control.fencing`).
"""

import contextlib
import signal
import threading
from collections.abc import Iterator

from store import values
from store.errors import Problem, StoreError
from store.standby import standbyprocess, standbystate
from store.standby.longfollowing import LongFollowing
from store.standby.succession import Lineage
from store.usermove.messageformat import BadMessage, Wire, encode, receive
from tools.cli.invocation import Invocation, Parsers, typed
from tools.commands.standby.sourceconnection import connect, log_to_standard_error, own_place, read_address
from tools.server.control.backendlink import Address, Listener
from tools.server.process import sockets
from tools.server.process.accepting import Spares


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
    with standbyprocess.alone(root), _asked(invocation, address):
        LongFollowing(root, lambda: connect(invocation, address, invocation.arguments.rate), stop).run()
    return 0


@contextlib.contextmanager
def _asked(invocation: Invocation, address: Address) -> Iterator[None]:
    bound = sockets.bind_exchange(invocation.config)
    try:
        if not bound:
            yield
            return
        spares = Spares()
        spares.fill()
        listener = Listener(own_place(invocation, address), spares, lambda wire, *_: _answer(invocation, wire))
        listener.start(bound)
        try:
            yield
        finally:
            listener.stop()
    finally:
        sockets.close(bound)


def _answer(invocation: Invocation, wire: Wire) -> None:
    """Until the caller has had enough. Raises BadMessage, Ended, OSError."""
    while True:
        if receive(wire.read).text("op") != "copy succession":
            raise BadMessage("a standby answers nothing else")
        state = standbystate.read(invocation.config.root)
        known = ("", Lineage()) if state is None else (state.identity, state.lineage)
        wire.write(encode({"identity": known[0], "skipped": 0, **known[1].fields()}))
