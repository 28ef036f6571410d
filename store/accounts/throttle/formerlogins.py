"""Where each user has logged in from before: in memory that all processes share, and in a file from stop to start.

Neither has names: only digests under a key of their own, which is in the file. It is no secret from those who can read
the store, and useless to others. A pair that has not come for `LIFETIME` is a stranger again. A place that is full
gives up the pair that has not come for longest.
"""

import hashlib
import logging
import mmap
import os
import struct
import time
from collections.abc import Callable
from pathlib import Path

from attrs import define, field

from mboxlist import privatefiles
from store.accounts.throttle.loginmemory import LoginMemory, Part

log = logging.getLogger(__name__)

FILE = Path("run", "former-logins")
LIFETIME = 90 * 86400       # seconds
REFRESH = 3600              # seconds after which a pair that comes again is written again
PAIRS = 1 << 18

_MAGIC = b"onecopy logins 1"
_HEAD = struct.Struct("<16s32sQ")       # magic, key, how often something has been written
_PAIR = struct.Struct("<12sI")          # digest; Unix time of the last login
_DIGEST = 12                            # octets
_WAYS = 8
_FIRST = Part.FORMER.octets - PAIRS * _PAIR.size


@define(eq=False)
class FormerLogins:
    """See the module's text."""

    _memory: LoginMemory
    _octets: mmap.mmap
    clock: Callable[[], float] = time.time
    _saved: int = field(default=0, init=False)

    @classmethod
    def at(cls, memory: LoginMemory) -> "FormerLogins":
        """In the memory about logins; whoever comes first makes the key."""
        found = cls(memory, memory.map(Part.FORMER))
        with memory.locked(Part.FORMER):
            if found._head[0] != _MAGIC:
                _HEAD.pack_into(found._octets, 0, _MAGIC, os.urandom(32), 0)
        return found

    def has(self, place: str, user: str) -> bool:
        """Whether that user has logged in from there; user "": anybody."""
        digest, places = self._places(self._digest(place, user))
        return any(self._octets[at:at + _DIGEST] == digest and self._pair(at)[1] > self.clock() - LIFETIME
                   for at in places)

    def add(self, place: str, user: str) -> None:
        """That user has logged in from there."""
        digest, now = self._digest(place, user), int(self.clock())
        _, places = self._places(digest)
        for at in places:               # first without the lock: nearly all come again soon
            found, before = self._pair(at)
            if found == digest and now - before < REFRESH:
                return
        with self._memory.locked(Part.FORMER):
            self._put(digest, now)

    # The file

    def load(self, path: Path) -> None:
        """Take over what an earlier server has written, before anybody logs in. A file that is none is ignored."""
        if self._head[2]:
            return                      # the processes have started again, the server has not
        try:
            whole = privatefiles.read(path)
            magic, key, _ = _HEAD.unpack_from(whole)
        except (OSError, struct.error):
            return
        if magic != _MAGIC or (len(whole) - _HEAD.size) % _PAIR.size:
            log.warning("%s is damaged: nobody is known to have logged in before", path)
            return
        _HEAD.pack_into(self._octets, 0, _MAGIC, key, 1)
        for digest, when in _PAIR.iter_unpack(whole[_HEAD.size:_HEAD.size + PAIRS * _PAIR.size]):
            self._put(digest, when)
        self._saved = self._head[2]

    def save(self, path: Path) -> bool:
        """Write what there is, if it is not what was written last. For a thread. Raises OSError."""
        changes = self._head[2]
        if changes == self._saved:
            return False
        pairs = b"".join(piece for at in range(_FIRST, len(self._octets), _PAIR.size)
                         if any(piece := self._octets[at:at + _PAIR.size]))
        with privatefiles.replacing(path, sync=False) as file:
            file.write(_HEAD.pack(_MAGIC, self._head[1], 0) + pairs)
        self._saved = changes
        return True

    # Inside

    @property
    def _head(self) -> tuple[bytes, bytes, int]:
        magic, key, changes = _HEAD.unpack_from(self._octets)
        return magic, key, changes

    def _digest(self, place: str, user: str) -> bytes:
        text = f"{place} {user}".encode(errors="replace")
        return hashlib.blake2b(text, key=self._head[1], digest_size=_DIGEST).digest()

    def _places(self, digest: bytes) -> tuple[bytes, list[int]]:
        bucket = int.from_bytes(digest[:8], "little") % (PAIRS // _WAYS) * _WAYS
        first = _FIRST + bucket * _PAIR.size
        return digest, list(range(first, first + _WAYS * _PAIR.size, _PAIR.size))

    def _pair(self, at: int) -> tuple[bytes, int]:
        digest, when = _PAIR.unpack_from(self._octets, at)
        return digest, when

    def _put(self, digest: bytes, when: int) -> None:
        _, places = self._places(digest)
        for at in places:
            found, before = self._pair(at)
            if found == digest:
                if when - before < REFRESH:
                    return
                break
        else:
            at = min(places, key=lambda each: self._pair(each)[1])
        _PAIR.pack_into(self._octets, at, digest, when)
        self._touch()

    def _touch(self) -> None:
        magic, key, changes = self._head
        _HEAD.pack_into(self._octets, 0, magic, key, changes + 1)
