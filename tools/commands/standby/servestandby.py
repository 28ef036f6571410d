"""onecopy standby serve"""

import signal
import threading

from store.errors import Problem, StoreError
from store.standby import standbyprocess, standbystate
from tools.cli.invocation import Invocation, Parsers
from tools.server.process import logs, privileges, sockets
from tools.server.readingserver import SERVED, ReadingServer
from tools.serversettings import Log, Workers


def add(parser: Parsers) -> None:
    """Make the parser."""
    parser("standby serve", serve, "serve IMAP and POP3 for reading from what a standby has, until SIGTERM: a "
                                   "copy that is made again when it is older than exchange.reading_age; backup, export "
                                   "and spark read it, too", settings=True)


def serve(invocation: Invocation) -> int:
    """onecopy standby serve"""
    config, stop, again = invocation.config, threading.Event(), threading.Event()
    if standbystate.read(config.root) is None:
        raise StoreError(Problem.NO_STORE, f"There is no standby in {config.root}; onecopy standby create makes one")
    bound = sockets.bind(config, SERVED)
    owner = privileges.wanted(config.settings("workers", Workers), config.root)
    if owner is not None:
        privileges.give_up(owner, bound)
    logs.configure(config.settings("log", Log))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    signal.signal(signal.SIGHUP, lambda *_: again.set())
    try:
        with standbyprocess.alone(config.root, standbyprocess.READING):
            ReadingServer(config, bound, stop, again).run()
    finally:
        sockets.close(bound)
    return 0
