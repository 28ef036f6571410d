"""One process of the server: everything there is (the default), or what its supervisor has given it.

A worker that has a supervisor reads its orders from standard input, and says on standard output that it serves.
"""

import ctypes
import json
import logging
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from typing import Any

from attrs import frozen
from twisted.internet import reactor as _reactor
from twisted.internet.defer import ensureDeferred

from store.net import offload
from store.net.notify import NewsSocket
from store.net.threads import ReactorThreads
from store.store import Store
from tools import logs
from tools.config import Config
from tools.errors import Failure
from tools.housekeeping import Housekeeping, tasks
from tools.opening import open_store, tls_folder
from tools.server import Server
from tools.settings import Log, Tls, Workers
from tools.sockets import Listening
from tools.tls import Certificates

log = logging.getLogger("tools.worker")         # also when this is the program itself
reactor: Any = _reactor

READY = b"ready\n"
BROKEN = 3                  # the exit status of a process that found a database damaged
_PR_SET_PDEATHSIG = 1


@frozen
class Orders:
    """What a supervisor wants of a worker. `sockets`: (server, TLS, descriptor)."""

    name: str
    keeper: bool                                # the first one: recovers the store, keeps house for all
    sockets: Sequence[tuple[str, bool, int]]
    config: Config

    def to_json(self) -> str:
        """For the worker's standard input."""
        return json.dumps({"name": self.name, "keeper": self.keeper, "sockets": list(self.sockets),
                           "config": self.config.to_json()})

    @classmethod
    def from_json(cls, text: str) -> "Orders":
        """From the worker's standard input."""
        values = json.loads(text)
        return cls(values["name"], values["keeper"], [tuple(each) for each in values["sockets"]],
                   Config.from_json(values["config"]))


def run(config: Config, *, server: bool, keeper: bool, listen: Callable[[], list[Listening]],
        ready: Callable[[], None]) -> None:
    """Open the store, serve on the sockets that `listen` gives then, until a signal says stop. Raises Failure.

    `server`: claim the store; `keeper`: do the housekeeping for the whole store.
    """
    os.umask(0o077)
    _allow_many_files()
    opened = open_store(config, server=server, broken=_end_broken)
    try:
        certificates = Certificates.from_settings(config.settings("tls", Tls), tls_folder(config.root))
        _serve(config, opened, certificates, listen(), keeper, ready)
    finally:
        opened.close()
    log.info("stopped")


def _allow_many_files() -> None:
    """A connection is an open file, and the soft limit is 1,024 nearly everywhere."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _end_broken() -> None:
    """A database needs recovery. Whoever watches this process starts it again, and every start recovers."""
    log.critical("a database is damaged: this process ends, so that the next start recovers it")
    os._exit(BROKEN)


def _serve(config: Config, opened: Store, certificates: Certificates, listening: Sequence[Listening], keeper: bool,
           ready: Callable[[], None]) -> None:
    threads = ReactorThreads(reactor.callFromThread)
    offload.attach(opened, threads)
    news = NewsSocket(opened.root, opened.news)
    server = Server(reactor, opened, config, certificates)
    housekeeping = Housekeeping(reactor, opened, threads, tasks(opened, keeper=keeper))

    failed: list[Exception] = []

    def begin() -> None:
        try:
            news.start(reactor)
            server.listen(listening)
            housekeeping.start()
            ready()
        except Exception as error:              # Twisted would log it and go on without
            failed.append(error)
            reactor.stop()

    async def end() -> None:
        log.info("stopping")
        housekeeping.stop()
        try:
            await server.stop(config.settings("workers", Workers).stop_time)
        finally:
            reactor.stop()

    _on_signals(end, certificates)
    reactor.callWhenRunning(begin)
    reactor.run(installSignalHandlers=False)
    threads.stop()
    news.stop()
    if failed:
        raise failed[0]


def _on_signals(end: Callable[[], Any], certificates: Certificates) -> None:
    stopping = False

    def stop() -> None:
        nonlocal stopping
        if not stopping:
            stopping = True
            ensureDeferred(end()).addErrback(lambda failure: log.error("%s", failure.getTraceback()))

    def reload() -> None:
        try:
            certificates.reload()
            log.info("certificates read again")
        except Failure as error:
            log.error("%s", error)

    for number, action in ((signal.SIGTERM, stop), (signal.SIGINT, stop), (signal.SIGHUP, reload)):
        signal.signal(number, lambda *_, action=action: reactor.callFromThread(action))


def _die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its supervisor is gone: nobody may be left in the store."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def main() -> int:
    """Serve as ordered."""
    orders = Orders.from_json(sys.stdin.read())
    logs.configure(orders.config.settings("log", Log))
    inherited = [Listening(server, socket.socket(fileno=handle), tls) for server, tls, handle in orders.sockets]

    def ready() -> None:
        os.write(1, READY)

    try:
        run(orders.config, keeper=orders.keeper, server=False, listen=lambda: inherited, ready=ready)
    except Failure as failure:
        print(f"onecopy: {failure}", file=sys.stderr)
        return failure.status
    return 0


if __name__ == "__main__":
    _die_with_parent(int(sys.argv[1]))
    sys.exit(main())
