"""What another server or program says is read at a pace: one that says nothing for long, next to nothing for longer, or
that is at one user's mail for too long, has no more of our time."""

import io
import os
import select
import socket
import subprocess
import time
from collections.abc import Callable
from typing import Any

from attrs import define, field

from tools.transfer.sourcevalues import UserTime

TIMEOUT_SECONDS = 120       # without a sign of life from a server
PACE_SECONDS = 1800.0       # of waiting in which at least so much is to come:
PACE_OCTETS = 64 << 10      # more than servers say that only ask for patience ("* OK Still here")
READ_OCTETS = 1 << 18       # that are read at a time


@define(eq=False)
class Pace:
    """How long one has waited since it was looked at last, and what came."""

    allowed: UserTime
    clock: Callable[[], float] = time.monotonic
    _waited: float = field(default=0.0, init=False)
    _octets: int = field(default=0, init=False)

    def wait(self, read: Callable[[float], int]) -> int:
        """The octets that `read` brings, which may take so many seconds. Raises OutOfTime, OSError."""
        began = self.clock()
        count = read(min(TIMEOUT_SECONDS, self.allowed.left()))
        self._waited += self.clock() - began
        self._octets += count
        if self._waited > PACE_SECONDS:
            if self._octets < PACE_OCTETS:
                raise TimeoutError(f"only {self._octets} octets came in {self._waited:.0f} s")
            self._waited, self._octets = 0.0, 0
        return count


class _Paced(io.RawIOBase):
    def __init__(self, way: "socket.socket | subprocess.Popen[bytes]", pace: Pace) -> None:
        super().__init__()
        self._way, self._pace = way, pace

    def readable(self) -> bool:
        """Yes."""
        return True

    def readinto(self, buffer: Any) -> int:
        """What comes next; 0 at the end. Raises OutOfTime, OSError."""
        return self._pace.wait(lambda seconds: self._read(buffer, seconds))

    def _read(self, buffer: Any, seconds: float) -> int:
        if isinstance(self._way, socket.socket):
            self._way.settimeout(seconds)
            try:
                return self._way.recv_into(buffer)
            finally:
                self._way.settimeout(TIMEOUT_SECONDS)       # for what is written
        assert self._way.stdout is not None
        looking = select.poll()
        looking.register(self._way.stdout, select.POLLIN)
        if not looking.poll(seconds * 1000):
            raise TimeoutError("the program says nothing")
        return os.readv(self._way.stdout.fileno(), [buffer])


def reading(way: "socket.socket | subprocess.Popen[bytes]", pace: Pace) -> io.BufferedReader:
    """What comes from there. Reading raises OutOfTime, OSError."""
    return io.BufferedReader(_Paced(way, pace), READ_OCTETS)
