"""What an outside directory has said, as long as it is believed."""

import time
from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Generic, TypeVar

V = TypeVar("V")


class Ages(Generic[V]):
    """Up to `size` answers by name, each for `seconds`; those not used for longest go first. For threads, too."""

    def __init__(self, size: int, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._size = size
        self._seconds = seconds
        self._clock = clock
        self._lock = Lock()
        self._known: OrderedDict[str, tuple[float, V]] = OrderedDict()

    def get(self, name: str) -> V | None:
        """What was said, if that is still to be believed."""
        with self._lock:
            found = self._known.get(name)
            if found is None:
                return None
            if found[0] <= self._clock():
                del self._known[name]
                return None
            self._known.move_to_end(name)
            return found[1]

    def put(self, name: str, value: V) -> None:
        """It has been said just now."""
        with self._lock:
            if self._size <= 0 or self._seconds <= 0:
                return
            self._known[name] = self._clock() + self._seconds, value
            self._known.move_to_end(name)
            if len(self._known) > self._size:
                self._known.popitem(last=False)

    def drop(self, name: str) -> None:
        """It is not believed any more."""
        with self._lock:
            self._known.pop(name, None)

    def clear(self) -> None:
        """Nothing is."""
        with self._lock:
            self._known.clear()

    def __len__(self) -> int:
        return len(self._known)
