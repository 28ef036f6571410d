"""From root to a user who may do less: once the ports are bound, and before anything else is opened."""

import contextlib
import grp
import os
import pwd
import resource

from tools.exits import Failure
from tools.server.process.sockets import Listening
from tools.serversettings import Workers

FILES = 65536           # that a process may have open; each connection is one


def wanted(workers: Workers) -> bool:
    """Whether there is something to give up. Raises Failure for settings that cannot be obeyed."""
    if not workers.user:
        if workers.group:
            raise Failure("[workers] group is given without user")
        return False
    if os.geteuid() != 0 and workers.user != pwd.getpwuid(os.geteuid()).pw_name:
        raise Failure(f"[workers] user: only root can become {workers.user}")
    return os.geteuid() == 0


def give_up(workers: Workers, sockets: list[Listening]) -> None:
    """Be that user for good, and for all processes to come. Raises Failure."""
    try:
        user = pwd.getpwnam(workers.user)
        group = grp.getgrnam(workers.group).gr_gid if workers.group else user.pw_gid
    except KeyError as error:
        raise Failure(f"[workers] {error.args[0]}") from None
    for listening in sockets:
        listening.give((user.pw_uid, group))
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= most < FILES:
        with contextlib.suppress(ValueError):   # in a container even root may not
            resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES))
    os.initgroups(user.pw_name, group)
    os.setresgid(group, group, group)
    os.setresuid(user.pw_uid, user.pw_uid, user.pw_uid)
    if os.getresuid() != (user.pw_uid,) * 3 or os.getresgid() != (group,) * 3:
        raise Failure(f"[workers] user: cannot become {workers.user}", 1)
    for name in ("HOME", "USER", "LOGNAME"):
        os.environ.pop(name, None)
