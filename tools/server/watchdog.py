"""The watchdog of systemd (sd_notify(3), WatchdogSec= of systemd.service(5)): it is told that the server is well; where
it is not told it ends the server, and starts it again."""

import contextlib
import os
import socket
import time
from collections.abc import Callable, MutableMapping

from attrs import define

BEATS = 6               # attempts within the time after which systemd gives up,
LONGEST = 10.0          # and seconds between two at most


@define(eq=False)
class Watchdog:
    """`path`: systemd's socket, "" for none; `interval`: seconds between two messages."""

    _path: str = ""
    _interval: float = 0.0
    _clock: Callable[[], float] = time.monotonic
    _next: float = 0.0

    @classmethod
    def of(cls, environment: MutableMapping[str, str]) -> "Watchdog":
        """As systemd asks for it. What it says is taken out of the environment: it is not for other processes."""
        path, microseconds = environment.pop("NOTIFY_SOCKET", ""), environment.pop("WATCHDOG_USEC", "")
        mine = environment.pop("WATCHDOG_PID", "") in ("", str(os.getpid()))
        if not (path[:1] in ("/", "@") and microseconds.isdigit() and int(microseconds) and mine):
            return cls()
        return cls(path, min(LONGEST, int(microseconds) / 1e6 / BEATS))

    def beat(self, is_well: Callable[[], bool]) -> None:
        """Tell it, if it is time and all is well."""
        if not self._path or self._clock() < self._next:
            return
        if is_well():
            self._send(b"WATCHDOG=1")
        self._next = self._clock() + self._interval

    def _send(self, message: bytes) -> None:
        address = "\0" + self._path[1:] if self._path.startswith("@") else self._path
        with contextlib.suppress(OSError):      # also where no descriptor is left: the next beat tells it
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as connection:
                connection.setblocking(False)
                connection.sendto(message, address)
