"""One process of the server: serves what its supervisor has given it.

It reads its orders from standard input, and says on standard output that it serves, or why it cannot.
"""

import ctypes
import logging
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.defer import ensureDeferred

import lmtp.settings
from store.net import offload
from store.net.notify import NewsSocket
from store.net.threads import ReactorThreads
from store.store import Store
from tools import logs
from tools.errors import Failure
from tools.housekeeping import Housekeeping, tasks
from tools.opening import open_store, tls_folder
from tools.orders import NAME, READY, Orders
from tools.server import Server
from tools.settings import Log, Tls, Workers
from tools.sockets import Listening, Purpose
from tools.tls import Certificates

log = logging.getLogger("tools.worker")         # also when this is the program itself
reactor: Any = _reactor

BROKEN = 3                  # the exit status of a process that found a database damaged
_PR_SET_PDEATHSIG = 1


def run(orders: Orders) -> None:
    """Open the store and serve until a signal says stop. Raises Failure."""
    config = orders.config
    os.umask(0o077)
    _allow_many_files()
    listening = [Listening(server, socket.socket(fileno=handle), tls, purpose=Purpose(purpose))
                 for server, tls, purpose, handle in orders.sockets]
    opened = open_store(config, f"{NAME}, {orders.name}", _end_broken)
    try:
        own = config.settings("tls", Tls), tls_folder(config.root)
        certificates = Certificates.from_settings(*own)
        relays = Certificates.from_settings(*own, config.settings("lmtp", lmtp.settings.Settings).client_ca)
        _serve(orders, opened, certificates, relays, listening)
    finally:
        opened.close()


def _allow_many_files() -> None:
    """A connection is an open file, and the soft limit is 1,024 nearly everywhere."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _end_broken() -> None:
    """A database needs recovery. The supervisor starts all processes again, and every start recovers."""
    log.critical("a database is damaged: this process ends, so that the next start recovers it")
    os._exit(BROKEN)


def _serve(orders: Orders, opened: Store, certificates: Certificates, relays: Certificates,
           listening: Sequence[Listening]) -> None:
    threads = ReactorThreads(reactor.callFromThread)
    offload.attach(opened, threads)
    news = NewsSocket(opened.root, opened.news)
    server = Server(reactor, opened, orders.config, certificates, relays)
    housekeeping = Housekeeping(reactor, opened, threads, tasks(opened, keeper=orders.keeper))

    failed: list[Exception] = []

    def begin() -> None:
        try:
            news.start(reactor)
            server.listen(listening)
            housekeeping.start()
            os.write(1, READY)
        except Exception as error:              # Twisted would log it and go on without
            failed.append(error)
            reactor.stop()

    async def end() -> None:
        log.debug("stopping")
        housekeeping.stop()
        try:
            await server.stop(orders.config.settings("workers", Workers).stop_time)
        finally:
            reactor.stop()

    _on_signals(end, (certificates, relays))
    reactor.callWhenRunning(begin)
    reactor.run(installSignalHandlers=False)
    threads.stop()
    news.stop()
    if failed:
        raise failed[0]


def _on_signals(end: Callable[[], Any], certificates: Sequence[Certificates]) -> None:
    stopping = False

    def stop() -> None:
        nonlocal stopping
        if not stopping:
            stopping = True
            ensureDeferred(end()).addErrback(lambda failure: log.error("%s", failure.getTraceback()))

    def reload() -> None:
        try:
            for each in certificates:
                each.reload()
            log.info("certificates read again")
        except Failure as error:
            log.error("%s", error)

    for number, action in ((signal.SIGTERM, stop), (signal.SIGINT, stop), (signal.SIGHUP, reload)):
        signal.signal(number, lambda *_, action=action: reactor.callFromThread(action))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGHUP])     # blocked by the supervisor until there is an action


def _die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its supervisor is gone: nobody may be left in the store."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def main() -> int:
    """Serve as ordered."""
    orders = Orders.from_json(sys.stdin.read())
    logs.configure(orders.config.settings("log", Log))
    try:
        run(orders)
    except Failure as failure:
        os.write(1, str(failure).encode(errors="replace"))
        return failure.status
    return 0


if __name__ == "__main__":
    _die_with_parent(int(sys.argv[1]))
    sys.exit(main())
