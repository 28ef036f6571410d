"""Free TCP ports on loopback, for servers that must come back on the same port after they were killed.

A port is this process's for as long as it lives, whoever else runs tests on the machine: an octet of one file is locked
for each (fcntl(2)), which a killed process cannot leave behind.
"""

import fcntl
import os
import socket
from functools import cache
from random import Random

_SHARE = 2_750              # ports of each of up to eight processes that run tests side by side
_FIRST = 10_000 + _SHARE * int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])
_LAST = _FIRST + _SHARE     # 32,000 at most: below the ports that the system gives to outgoing connections
_LOCKS = "/tmp/onecopy-test-ports"      # whatever TMPDIR is: that of two runs differs
_random = Random(os.getpid())
_NOT_IN_BROWSERS = 10_080   # the one of them that browsers refuse to open (amanda): Fetch standard, "bad port"
_given = {_NOT_IN_BROWSERS}


def free_port(first: int = _FIRST, last: int = _LAST) -> int:
    """A port that nobody listens on now, that a browser opens, and that no process that runs tests has been given."""
    for _ in range(1000):
        port = _random.randrange(first, last)
        if port in _given or not _lock(port):
            continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        _given.add(port)
        return port
    raise OSError(f"no free port between {first} and {last}")


def _lock(port: int) -> bool:
    """Whether no other process has it. One that is not given then stays locked, which harms nobody."""
    try:
        fcntl.lockf(_file(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except BlockingIOError:
        return False
    return True


@cache
def _file() -> int:
    """A descriptor of the file, which is everybody's. It stays open: the locks of a process end when it closes any."""
    try:
        return os.open(_LOCKS, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        handle = os.open(_LOCKS, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW)
        os.fchmod(handle, 0o666)
        return handle
