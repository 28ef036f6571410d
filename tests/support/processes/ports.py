"""Free TCP ports on loopback, for servers that must come back on the same port after they were killed."""

import os
import socket
from random import Random

_SHARE = 2_750              # ports of each of up to eight processes that run tests side by side
_FIRST = 10_000 + _SHARE * int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])
_LAST = _FIRST + _SHARE     # 32,000 at most: below the ports that the system gives to outgoing connections
_random = Random(os.getpid())
_NOT_IN_BROWSERS = 10_080   # the one of them that browsers refuse to open (amanda): Fetch standard, "bad port"
_given = {_NOT_IN_BROWSERS}


def free_port(first: int = _FIRST, last: int = _LAST) -> int:
    """A port that nobody listens on now, that a browser opens, and that this process has not been given before."""
    for _ in range(1000):
        port = _random.randrange(first, last)
        if port in _given:
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
