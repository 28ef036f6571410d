"""`onecopy serve`: builds every object of the server and hands it in."""

import logging
from collections.abc import Callable

from tools import logs, sockets, worker
from tools.config import Config
from tools.opening import init, is_store
from tools.settings import Log, Workers
from tools.supervisor import Supervisor, roles

log = logging.getLogger(__name__)


def serve(config: Config, *, create: bool, ready: Callable[[], None] = lambda: None) -> None:
    """Serve until a signal says stop. `ready` is called when a single process has begun. Raises Failure."""
    logs.configure(config.settings("log", Log))
    if create and not is_store(config.root):
        init(config.root)
    wanted = roles(config.settings("workers", Workers))
    if wanted:
        Supervisor(config, wanted, ready).run()
        return
    made: list[sockets.Listening] = []

    def listen() -> list[sockets.Listening]:
        made.extend(sockets.bind(config))
        return made

    def begun() -> None:
        log.info("serving: %s", ", ".join(map(str, made)))
        ready()

    try:
        worker.run(config, server=True, keeper=True, listen=listen, ready=begun)
    finally:
        sockets.close(made)
