"""onecopy init, serve, drain"""

import os
import select
import signal
import time

from store.partition import processes
from tools import storeowner
from tools.cli.invocation import Invocation, Parsers
from tools.cli.later import Later
from tools.cli.progressbar import bar
from tools.cli.storeaccess import init
from tools.exits import Failure, no_server
from tools.serversettings import Workers

LONGER = 60             # seconds that a server may take to end after the last session


def add(parser: Parsers) -> None:
    """Make the parsers."""
    parser("init", make_store, "make an empty store, and a self-signed certificate")
    made = parser("serve", Later("tools.server.start:command"), "serve IMAP, POP3 and LMTP until SIGTERM",
                  settings=True)
    made.add_argument("--create", action="store_true", help="make the store first if there is none")
    made = parser("drain", drain, "let nobody new log in, and stop the server when all have left or after "
                  "workers.drain_time")
    made.add_argument("--no-wait", action="store_true", help="do not wait until the server has stopped")


def make_store(invocation: Invocation) -> int:
    """onecopy init"""
    config = invocation.config
    workers = config.settings("workers", Workers)
    storeowner.give_new_folder(config.root, workers.user, workers.group)
    invocation.act_as_owner()
    init(config.root)
    return 0


def drain(invocation: Invocation) -> int:
    """onecopy drain"""
    config = invocation.config
    found = processes.open_server(config.root / "run" / "server.pid")
    if found is None:
        raise no_server(config.root)
    pid, handle = found
    try:
        signal.pidfd_send_signal(handle, signal.SIGUSR1)
        if invocation.arguments.no_wait:
            return 0
        workers = config.settings("workers", Workers)
        limit = workers.drain_time + workers.stop_time + LONGER
        if not _ended(handle, limit):
            raise Failure(f"the server, pid {pid}, has not stopped; its clients: onecopy connections", 1)
    except PermissionError:
        raise Failure(f"the server, pid {pid}, is not yours to drain", 1) from None
    except ProcessLookupError:
        pass
    finally:
        os.close(handle)
    return 0


def _ended(handle: int, limit: float) -> bool:
    """Wait for the end of a process, so many seconds at most; whether it has come."""
    began = time.monotonic()
    with bar("seconds until it stops", lambda: int(limit)) as tell:
        while (waited := time.monotonic() - began) < limit:
            if select.select([handle], [], [], min(1.0, limit - waited))[0]:
                return True
            tell(int(waited))
    return False
