"""Passwords that were found right a short while ago, so that not every session pays for a slow hash."""

import hashlib
import os
import time
from collections import OrderedDict
from collections.abc import Callable

from store.values import Secret

LIFETIME = 300.0            # seconds
MOST = 10_000               # entries


class VerifiedPasswords:
    """Keyed digests, in memory only, under a key of this process. A changed password hash is another key."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._key = os.urandom(32)
        self._until: OrderedDict[bytes, float] = OrderedDict()

    def __contains__(self, entry: tuple[str, Secret, str]) -> bool:
        """Whether this password of that user was found to fit that stored hash."""
        digest = self._digest(*entry)
        until = self._until.get(digest)
        if until is None:
            return False
        if until < self._clock():
            del self._until[digest]
            return False
        return True

    def add(self, user: str, password: Secret, stored: str) -> None:
        """Remember that it fits."""
        digest = self._digest(user, password, stored)
        self._until[digest] = self._clock() + LIFETIME
        self._until.move_to_end(digest)
        if len(self._until) > MOST:
            self._until.popitem(last=False)

    def _digest(self, user: str, password: Secret, stored: str) -> bytes:
        parts = (user.encode(), password.reveal(), stored.encode())
        text = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
        return hashlib.blake2b(text, key=self._key, digest_size=32).digest()
