"""Troubles that last for a while: one line of the log when one begins, counts while it lasts, one line when it ends.

A full disk refuses every command that writes, and each client hears its refusal. A line of the log for each would say
nothing new, and would hide the lines that do. `after_commit` is for what may fail when the answer is decided already.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from attrs import define, field

log = logging.getLogger(__name__)

QUIET = 30.0                # a trouble is over when it has not been met for so many seconds
REMIND = 60.0               # seconds between two lines while it lasts

NO_ROOM = "no space is left on the disk"        # kinds that several parts of the program meet
AWAY = "a standby is away, and what it has is not changed: housekeeping waits"


@define
class _Trouble:
    began: float
    last: float             # when it was met last,
    told: float             # and when the log was last told
    times: int = 0
    since: int = 0          # how often it was met since then
    until_over: bool = False
    remind: bool = True


@define(eq=False)
class Troubles:
    """The troubles of a process, by kind: a few words with which a line of the log begins. Any thread may call. `clock`
    is in seconds."""

    clock: Callable[[], float] = time.monotonic
    _lasting: dict[str, _Trouble] = field(factory=dict, init=False)
    _lock: threading.Lock = field(factory=threading.Lock, init=False)

    def met(self, kind: str, detail: str = "", *, until_over: bool = False, level: int = logging.ERROR,
            remind: bool = True) -> None:
        """Note that a trouble of that kind was met. When it begins here, `detail` is logged at that `level`. It is over
        when it has not been met for QUIET seconds; with `until_over`, when `over` is called. `remind`: while it lasts,
        a line says so again from time to time."""
        now = self.clock()
        with self._lock:
            trouble = self._lasting.get(kind)
            begins = trouble is None
            if trouble is None:
                trouble = self._lasting[kind] = _Trouble(now, now, now, until_over=until_over, remind=remind)
            trouble.last, trouble.times, trouble.since = now, trouble.times + 1, trouble.since + 1
        if begins:
            log.log(level, "%s%s (more of this is counted)", kind, f": {detail}" if detail else "")

    def over(self, kind: str) -> None:
        """Note that the trouble is over; nothing is logged if there was none."""
        if kind in self._lasting:
            with self._lock:
                trouble = self._lasting.pop(kind, None)
            if trouble is not None:
                self._tell_end(kind, trouble)

    def look(self) -> None:
        """Log the troubles that last and those that have ended; call this every few seconds."""
        if not self._lasting:
            return
        now = self.clock()
        with self._lock:
            ended = {kind: each for kind, each in self._lasting.items()
                     if not each.until_over and now - each.last >= QUIET}
            for kind in ended:
                del self._lasting[kind]
            told = [(kind, each.since, now - each.told) for kind, each in self._lasting.items()
                    if each.since and each.remind and now - each.told >= REMIND]
            for kind, _, _ in told:
                self._lasting[kind].told, self._lasting[kind].since = now, 0
        for kind, trouble in ended.items():
            self._tell_end(kind, trouble)
        for kind, times, seconds in told:
            log.warning("%s: still so, met %d times in %.0f s", kind, times, seconds)

    def lasting(self) -> dict[str, int]:
        """The troubles that last now, and how often they have been met."""
        with self._lock:
            return {kind: each.times for kind, each in self._lasting.items()}

    @staticmethod
    def _tell_end(kind: str, trouble: _Trouble) -> None:
        log.warning("%s: over; met %d times in %.0f s", kind, trouble.times, trouble.last - trouble.began)


#: Those of this process.
TROUBLES = Troubles()


def after_commit(step: Callable[..., object], *given: Any) -> None:
    """Do what follows a commit, or a durable change: tell others, remember, clear away. What is committed is done,
    whatever happens here; so nothing that this raises reaches the answer. It is logged."""
    try:
        step(*given)
    except Exception as error:
        name = getattr(step, "__qualname__", type(step).__name__)
        kind = f"{name} failed after a commit, which stays ({type(error).__name__})"
        if kind not in TROUBLES.lasting():
            log.debug("%s", kind, exc_info=error)
        TROUBLES.met(kind, str(error))
