"""Passwords that were found right a short while ago, so that not every session pays for a slow hash."""

import hashlib
import os
import struct
import time
from collections import OrderedDict
from collections.abc import Callable
from threading import Lock

from store.accounts.throttle.sharedcache import Remembered
from store.values import Secret

LIFETIME = 300.0            # seconds
MOST = 10_000               # entries
_LENGTHS = struct.Struct(">III")


class VerifiedPasswords:
    """Keyed digests, in memory only, under a key of this process. A changed password hash is another key. Other
    processes may have found more (`share`).

    Used in threads, too.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, lifetime: float = LIFETIME) -> None:
        self.lifetime = lifetime
        self._clock = clock
        self._key = os.urandom(32)
        self._lock = Lock()
        self._until: OrderedDict[bytes, tuple[float, str, str]] = OrderedDict()
        self._of: dict[str, set[bytes]] = {}
        self._shared: Remembered | None = None

    def share(self, shared: Remembered) -> None:
        """Tell other processes, and believe them. They forget nothing early: it does not fit a row that has changed."""
        self._shared, self._key = shared, shared.key

    def __contains__(self, entry: tuple[str, Secret, str]) -> bool:
        """Whether this password of that user was found to fit that stored hash."""
        digest = self._digest(*entry)
        with self._lock:
            until = self._until.get(digest, (0.0, "", ""))[0]
            if until < self._clock():
                self._drop(digest)
            return digest in self._until or self._shared is not None and self.lifetime > 0 and digest in self._shared

    def add(self, user: str, password: Secret, stored: str, most: float = float("inf")) -> None:
        """Remember that it fits, for `most` seconds at the most."""
        digest = self._digest(user, password, stored)
        with self._lock:
            seconds = min(self.lifetime, most)
            if seconds <= 0:
                return
            if self._shared is not None:
                self._shared.add(digest, seconds)
            self._until[digest] = self._clock() + seconds, user, stored
            self._until.move_to_end(digest)
            self._of.setdefault(user, set()).add(digest)
            if len(self._until) > MOST:
                self._drop(next(iter(self._until)))

    def forget(self, user: str, unless: str = "") -> None:
        """The user is gone, or has changed: what fits the stored hash `unless` may stay."""
        with self._lock:
            for digest in tuple(self._of.get(user, ())):
                if self._until[digest][2] != unless:
                    self._drop(digest)

    def clear(self) -> None:
        """Forget all."""
        with self._lock:
            self._until.clear()
            self._of.clear()

    def __len__(self) -> int:
        return len(self._until)

    def _drop(self, digest: bytes) -> None:
        _, user, _ = self._until.pop(digest, (0.0, "", ""))
        mine = self._of.get(user, set())
        mine.discard(digest)
        if not mine:
            self._of.pop(user, None)

    def _digest(self, user: str, password: Secret, stored: str) -> bytes:
        name, secret, kept = user.encode(), password.reveal(), stored.encode()
        text = b"%b%b%b%b" % (_LENGTHS.pack(len(name), len(secret), len(kept)), name, secret, kept)
        return hashlib.blake2b(text, key=self._key, digest_size=32).digest()
