"""The memory about logins that all processes of a server share, from the supervisor's start to its end.

It has no name on any disk. A process that dies leaves it as it is: what a change was cut off in is a wrong number or an
entry that fits nobody, and every entry goes with time. Changes of several entries are made under a lock of the kernel,
which a dead process holds no longer. A process that is stopped while it holds it (a debugger) is not waited for long.
That lock is a process's (fcntl(2)), so its threads take turns by one of their own.
"""

import fcntl
import hashlib
import mmap
import os
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum

from attrs import field, frozen

TRIES = 1000                # to get the lock; then the change is made without it: a count may be lost


class Part(Enum):
    """What is in it: its size in octets, whole pages."""

    RIGHT = ("right passwords", 320 * 4096)
    WRONG = ("wrong passwords", 320 * 4096)
    FAILURES = ("failures", 1024 * 4096)
    FORMER = ("former logins", 1025 * 4096)

    @property
    def octets(self) -> int:
        """Its size."""
        return self.value[1]


_PARTS = tuple(Part)


@frozen(eq=False)
class LoginMemory:
    """`handle`: a descriptor, or -1 for memory of this process alone."""

    handle: int
    key: str = field(repr=False)
    _turns: dict[Part, threading.Lock] = field(init=False, repr=False, factory=lambda: {
        part: threading.Lock() for part in Part})

    @classmethod
    def shared(cls) -> "LoginMemory":
        """That of a server: all is 0."""
        handle = os.memfd_create("onecopy-logins", os.MFD_CLOEXEC)
        os.ftruncate(handle, sum(part.octets for part in Part))
        return cls(handle, secrets.token_hex(32))

    @classmethod
    def private(cls) -> "LoginMemory":
        """That of one process: nobody else sees it."""
        return cls(-1, secrets.token_hex(32))

    def map(self, part: Part) -> mmap.mmap:
        """One part of it."""
        if self.handle < 0:
            return mmap.mmap(-1, part.octets)
        before = _PARTS[:_PARTS.index(part)]
        return mmap.mmap(self.handle, part.octets, offset=sum(each.octets for each in before))

    def key_of(self, part: Part) -> bytes:
        """The key of digests in that part."""
        return hashlib.blake2b(bytes.fromhex(self.key), person=part.name.encode(), digest_size=32).digest()

    @contextmanager
    def locked(self, part: Part) -> Iterator[None]:
        """Nobody else changes that part meanwhile. Only for what takes microseconds."""
        at = _PARTS.index(part)
        with self._turns[part]:
            held = self.handle >= 0 and self._lock(at)
            try:
                yield
            finally:
                if held:
                    fcntl.lockf(self.handle, fcntl.LOCK_UN, 1, at)

    def _lock(self, at: int) -> bool:
        for _ in range(TRIES):
            try:
                fcntl.lockf(self.handle, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, at)
                return True
            except OSError:
                os.sched_yield()
        return False
