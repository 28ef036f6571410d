"""onecopy standby follow

While it follows, it answers others where `exchange.port` is set. The machine that it follows may ask whether it has
been promoted, and does so before it serves (`tools.server.control.fencing`). And a further standby may follow this one
(`store/standby/cascade`).
"""

import contextlib
import signal
import threading
from collections.abc import Iterator

from store import values
from store.errors import Problem, StoreError
from store.standby import seeding, standbyprocess, standbystate
from store.standby.cascade.cascade import Cascade
from store.standby.cascade.cascadesource import CascadeSource
from store.standby.longfollowing import LongFollowing
from tools.cli.invocation import Invocation, Parsers, typed
from tools.commands.standby.sourceconnection import (
    connect,
    disk_here,
    log_to_standard_error,
    own_place,
    read_address,
    written,
)
from tools.server.control.backendlink import Address, Listener
from tools.server.process import sockets
from tools.server.process.accepting import Spares


def add(parser: Parsers) -> None:
    """Make the parser."""
    made = parser("standby follow", follow, "have a standby follow the back end that it was made from, until SIGTERM",
                  settings=True)
    made.add_argument("--from", dest="source", metavar="HOST:PORT", type=typed(read_address),
                      help="from now on another back end, which has this store, too: databases are copied only where "
                           "its logs do not go on from what is here; HOST=ADDRESS:PORT where the name leads elsewhere")
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
    with disk_here(root), standbyprocess.alone(root):
        if (other := invocation.arguments.source) is not None:
            with contextlib.closing(connect(invocation, other)) as source:
                state = seeding.go_over(root, source, written(other))
        address = read_address(state.address)
        with _asked(invocation, address) as cascade:
            LongFollowing(root, lambda: connect(invocation, address, invocation.arguments.rate), stop,
                          cascade=cascade).run()
    return 0


@contextlib.contextmanager
def _asked(invocation: Invocation, address: Address) -> Iterator[Cascade | None]:
    bound = sockets.bind_exchange(invocation.config)
    try:
        if not bound:
            yield None
            return
        place, spares = own_place(invocation, address), Spares()
        spares.fill()
        cascade = Cascade(invocation.config.root, lambda: contextlib.closing(connect(invocation, address)),
                          place.standbys)
        cascade.begin()
        listener = Listener(place, spares, lambda wire, host, now: CascadeSource(
            cascade, host, may_follow=now.allows(host)[1]).run(wire))
        listener.start(bound)
        try:
            yield cascade
        finally:
            listener.stop()
    finally:
        sockets.close(bound)
