"""How much the scripts of one user may send in an hour, so that nobody fills the relay's queue for the others."""

import time
from collections import Counter
from collections.abc import Callable
from threading import Lock

from attrs import define, field

HOUR = 3600


@define(eq=False)
class Allowance:
    """Counts letters by user, in this process and in this hour. `clock` gives seconds."""

    clock: Callable[[], float] = time.monotonic
    _hour: int = field(default=-1, init=False)
    _sent: Counter[str] = field(factory=Counter, init=False)
    _lock: Lock = field(factory=Lock, init=False)

    def take(self, user: str, letters: int, most: int) -> bool:
        """Whether the user may send so many more, of `most` in an hour (0: any number); then they count."""
        with self._lock:
            hour = int(self.clock() // HOUR)
            if hour != self._hour:
                self._hour = hour
                self._sent.clear()
            if most and self._sent[user] + letters > most:
                return False
            self._sent[user] += letters
            return True
