"""`onecopy serve`: makes the store where that is asked for, and runs the supervisor."""

from collections.abc import Callable

from tools import logs
from tools.config import Config
from tools.opening import init, is_store
from tools.settings import Log
from tools.supervisor import Supervisor


def serve(config: Config, *, create: bool, ready: Callable[[], None] = lambda: None) -> None:
    """Serve until a signal says stop. `ready` is called when all processes serve. Raises Failure."""
    logs.configure(config.settings("log", Log))
    if create and not is_store(config.root):
        init(config.root)
    Supervisor(config, ready).run()
