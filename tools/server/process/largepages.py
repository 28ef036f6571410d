"""A worker's memory in pages of 2 MiB (MADV_COLLAPSE of madvise(2), Linux 6.1).

What a command touches of Python's objects lies all over the memory of the process, some hundred pages of 4 KiB: where
each of them is, the processor must look up, and in a virtual machine twice. Large pages are a few.

A worker begins as a copy of its supervisor, and has what neither has written to since in common with the others. That
would be its own afterwards. So only those 2 MiB come to lie in one page of which much is its own already: these are
also what is in use. An administrator who wants no large pages says `never` in the file `SAYS`.
"""

import contextlib
import ctypes
import errno
import logging
import os
import resource
from array import array
from collections.abc import Iterator
from pathlib import Path

from attrs import define, field

from mboxlist import privatefiles
from store.housekeeping.tasks import Task

log = logging.getLogger(__name__)

INTERVAL = 10.0                 # seconds between two looks
LARGE = 2 << 20                 # octets of a large page,
SMALL = 4 << 10                 # and of the others
OWN = LARGE // SMALL * 2 // 5   # small pages that must be the worker's own before they become a large one
SAYS = Path("/sys/kernel/mm/transparent_hugepage/enabled")      # Documentation/admin-guide/mm/transhuge.rst
_PAGES = Path("/proc/self/pagemap")                             # Documentation/admin-guide/mm/pagemap.rst:
_OWN = 1 << 63 | 1 << 56                                        # a page is there, and nobody else has it
_COLLAPSE = 25                  # MADV_COLLAPSE
_UNKNOWN = (errno.EINVAL, errno.ENOSYS)


@define(eq=False)
class LargePages:
    """Those of this process."""

    _done: set[int] = field(factory=set)        # where they begin, and where one could not be made
    _works: bool = True

    def task(self) -> Task:
        """Makes them from time to time, one after the other."""
        return Task("large pages", INTERVAL, lambda _: self._worthwhile(), lambda _, at: self._make(at))

    def _worthwhile(self) -> Iterator[int]:
        """Where one is to be made: addresses of octets."""
        if not self._works or not are_wanted():
            return
        try:
            maps, pages = privatefiles.read_named("/proc/self/maps"), privatefiles.open_handle(_PAGES)
        except PermissionError:         # of a server that began as root: all of /proc/self is root's
            self._works = False
            return
        with contextlib.closing(os.fdopen(pages, "rb", 0)) as file:
            for at in places(maps):
                if at not in self._done and own_pages(os.pread(file.fileno(), LARGE // SMALL * 8, at // SMALL * 8)
                                                      ) >= OWN:
                    yield at

    def _make(self, at: int) -> int:
        """Make one, or none when there is no room for it now: it is only faster. How many were made."""
        madvise = ctypes.CDLL(None, use_errno=True).madvise
        if madvise(ctypes.c_void_p(at), ctypes.c_size_t(LARGE), _COLLAPSE) == 0:
            self._done.add(at)
            return 1
        reason = ctypes.get_errno()
        if reason != errno.EAGAIN:      # which is over when the next look comes
            self._done.add(at)
        if reason in _UNKNOWN:
            log.debug("large pages: the kernel makes none")
            self._works = False
        return 0


def are_wanted() -> bool:
    """Whether the kernel has them, for who asks at least."""
    try:
        return b"[never]" not in privatefiles.read_named(SAYS) and resource.getpagesize() == SMALL
    except OSError:
        return False


def places(maps: bytes) -> list[int]:
    """Where large pages could be in the private memory of a process, by its /proc/pid/maps (proc(5)): not in files."""
    found: list[int] = []
    for line in maps.splitlines():
        span, access, _, _, file, *_ = line.split(None, 5)
        if access == b"rw-p" and file == b"0":
            first, _, end = span.partition(b"-")
            found += range(-(-int(first, 16) // LARGE) * LARGE, int(end, 16) // LARGE * LARGE, LARGE)
    return found


def own_pages(entries: bytes) -> int:
    """How many of these pages nobody else has; 8 octets of /proc/pid/pagemap for each."""
    return sum(entry & _OWN == _OWN for entry in array("Q", entries))
