"""Passwords that any process of a server looked at a short while ago: in memory that they share, without a lock.

What is remembered has a place, given by its digest, and whoever comes to the same place later takes it. There stands
until when it holds, and a tag of both under a key of this start of the server: so a place that is half written, or was
written by chance, says nothing. The memory has no name on any disk, and goes with the server.
"""

import hashlib
import hmac
import mmap
import struct
import time
from collections.abc import Callable

from attrs import define

from store.accounts.throttle.loginmemory import LoginMemory, Part

_PLACE = struct.Struct("<d32s")         # until when (CLOCK_MONOTONIC, the same in all processes), and the tag


@define(eq=False)
class Remembered:
    """What all processes remember. A digest is of user, password and the hash that is stored, under `key`."""

    key: bytes
    _memory: mmap.mmap
    clock: Callable[[], float] = time.monotonic

    @classmethod
    def at(cls, memory: LoginMemory, part: Part = Part.RIGHT) -> "Remembered":
        """In one part of the memory about logins."""
        return cls(memory.key_of(part), memory.map(part))

    def __contains__(self, digest: bytes) -> bool:
        """Whether it was added, and its time is not over."""
        until, tag = _PLACE.unpack_from(self._memory, self._at(digest))
        return bool(until > self.clock()) and hmac.compare_digest(tag, self._tag(until, digest))

    def add(self, digest: bytes, seconds: float) -> None:
        """Remember it for so long."""
        until = self.clock() + seconds
        at = self._at(digest)
        self._memory[at:at + _PLACE.size] = _PLACE.pack(until, self._tag(until, digest))

    def _at(self, digest: bytes) -> int:
        return int.from_bytes(digest[:8], "little") % (len(self._memory) // _PLACE.size) * _PLACE.size

    def _tag(self, until: float, digest: bytes) -> bytes:
        return hashlib.blake2b(struct.pack("<d", until) + digest, key=self.key, digest_size=32).digest()
