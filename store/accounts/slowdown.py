"""Failed logins make the next ones slow: by address and by user, more each time, and forgotten with time.

Who has logged in from an address before is told from others: neither a guest at the same address nor a stranger
elsewhere can slow that user down there, and all that counts there is how often just the two have failed together.
"""

import time
from collections import OrderedDict
from collections.abc import Callable

from attrs import define, field, frozen

MOST_AT_ONCE = 64           # so many doublings are more than any delay


@frozen
class Scale:
    """`free` failures cost nothing, the next one `first` seconds, each further one twice that, up to `longest`; a
    failure counts half when `half_life` has passed. `first` 0: nothing is slowed down."""

    first: float = 1.0
    longest: float = 30.0
    half_life: float = 600.0
    free_of_address: int = 10
    free_of_user: int = 3


@define
class _Failures:
    weight: float
    when: float


@define(eq=False)
class SlowDown:
    """What one process remembers. `most` bounds the memory: what has not been looked at longest is forgotten first."""

    scale: Scale
    most: int = 50_000
    clock: Callable[[], float] = time.monotonic
    _failures: OrderedDict[tuple[str, str], _Failures] = field(factory=OrderedDict, init=False)
    _known: OrderedDict[tuple[str, str], None] = field(factory=OrderedDict, init=False)

    def delay(self, address: str, user: str) -> float:
        """Seconds that a login has to wait. `address`: "" for one that does not count."""
        if (address, user) in self._known:
            return self._seconds((address, user), self.scale.free_of_user)
        return max(self._seconds((address, ""), self.scale.free_of_address) if address else 0.0,
                   self._seconds(("", user), self.scale.free_of_user) if user else 0.0)

    def failed(self, address: str, user: str) -> None:
        """A login has failed."""
        if not self.scale.first:
            return
        if (address, user) in self._known:
            self._add((address, user))
            return
        if address:
            self._add((address, ""))
        if user:
            self._add(("", user))

    def succeeded(self, address: str, user: str) -> None:
        """A login has succeeded."""
        if not self.scale.first:
            return
        self._known[address, user] = None
        self._known.move_to_end((address, user))
        self._failures.pop((address, user), None)
        if len(self._known) > self.most:
            self._known.popitem(last=False)

    def key(self, address: str, user: str) -> tuple[str, str]:
        """By which logins are to be looked at in turn: so a stranger keeps no user waiting who is known there."""
        return (address, user) if not address or (address, user) in self._known else (address, "")

    def doubtful(self, address: str, user: str) -> bool:
        """Whether logins like this have failed lately: once within the half-life, or more often."""
        if (address, user) in self._known:
            return False
        return self._weight((address, "") if address else ("", user)) > 0.5

    def __len__(self) -> int:
        return len(self._failures) + len(self._known)

    def _seconds(self, key: tuple[str, str], free: int) -> float:
        beyond = round(self._weight(key)) - free
        if beyond < 0 or not self.scale.first:
            return 0.0
        return min(self.scale.longest, self.scale.first * (1 << min(beyond, MOST_AT_ONCE)))

    def _weight(self, key: tuple[str, str]) -> float:
        found = self._failures.get(key)
        if found is None:
            return 0.0
        return float(found.weight * 0.5 ** ((self.clock() - found.when) / self.scale.half_life))

    def _add(self, key: tuple[str, str]) -> None:
        self._failures[key] = _Failures(self._weight(key) + 1, self.clock())
        self._failures.move_to_end(key)
        if len(self._failures) > self.most:
            self._failures.popitem(last=False)
