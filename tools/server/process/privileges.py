"""From root to a user who may do less: once the ports are bound, and before anything else is opened."""

import contextlib
import os
import pwd
import resource
from pathlib import Path

from tools.exits import Failure
from tools.server.process.sockets import Listening
from tools.serversettings import Workers
from tools.storeowner import ROOT, Owner

FILES = 65536           # that a process may have open; each connection is one


def wanted(workers: Workers, root: Path) -> Owner | None:
    """As whom the processes are to run, if not as now: the user that is set, else the owner of the store.
    Raises Failure for settings that cannot be obeyed."""
    if not workers.user:
        if workers.group:
            raise Failure("[workers] group is given without user")
        owner = Owner.of(root)
        return owner if os.geteuid() == ROOT and owner is not None and owner.user != ROOT else None
    if os.geteuid() != ROOT and workers.user != pwd.getpwuid(os.geteuid()).pw_name:
        raise Failure(f"[workers] user: only root can become {workers.user}")
    return Owner.named(workers.user, workers.group) if os.geteuid() == ROOT else None


def give_up(owner: Owner, sockets: list[Listening]) -> None:
    """Be that user for good, and for all processes to come. Raises Failure."""
    for listening in sockets:
        listening.give((owner.user, owner.group))
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= most < FILES:
        with contextlib.suppress(ValueError):   # in a container even root may not
            resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES))
    owner.become()
