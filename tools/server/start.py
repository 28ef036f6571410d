"""`onecopy serve`: binds the ports, gives up what only root may do, makes the store where that is asked for, and runs
the supervisor."""

import gc
from collections.abc import Callable

from tools import storeowner
from tools.cli.invocation import Invocation
from tools.cli.options import Config
from tools.cli.storeaccess import init, is_store
from tools.server.process import logs, privileges, sockets
from tools.server.process.sockets import Listening
from tools.server.supervisor import Supervisor
from tools.serversettings import Log, Workers

USUAL = 700, 10, 10     # as Python has them: how often cycles are looked for, which `cli` has changed for commands


def serve(config: Config, *, create: bool, ready: Callable[[], None] = lambda: None) -> None:
    """Serve until a signal says stop. `ready` is called when all processes serve. Raises Failure."""
    gc.set_threshold(*USUAL)
    bound: list[Listening] = []
    workers = config.settings("workers", Workers)
    if create:
        storeowner.give_new_folder(config.root, workers.user, workers.group)
    owner = privileges.wanted(workers, config.root)
    if owner is not None:
        bound = sockets.bind(config)
        privileges.give_up(owner, bound)
    logs.configure(config.settings("log", Log))
    if create and not is_store(config.root):
        init(config.root)
    Supervisor(config, ready, bound).run()


def command(invocation: Invocation) -> int:
    """onecopy serve"""
    serve(invocation.config, create=invocation.arguments.create)
    return 0
