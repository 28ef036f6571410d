"""What all processes of a server count together: counters in memory that they share, without a lock.

Each process has a part of its own, the only one that it writes, and adds up those of the others when it asks. A part is
a count-min sketch: a name has a cell in each row, and the smallest of these cells is never too low, and too high
only when others share all of them, which nobody can bring about without the key. A part holds no names, and its size
does not depend on how many there are. Beside it a process shows how many connections of each server it has open.
"""

import hashlib
import mmap
import os
import secrets
import struct
from collections.abc import Sequence
from typing import Literal

from attrs import define, field, frozen

ROWS = 4
WIDTH = 16 << 10                        # cells of a row
_CELL: Literal["I"] = "I"
_PART = ROWS * WIDTH * 4                # octets
_CELLS = struct.Struct(f"<{ROWS}{_CELL}")
SERVERS = ("imap", "pop3", "lmtp", "managesieve", "front", "http")      # whose connections are shown, in this order
_SHOWN = 16                             # cells for them: 0 where the process takes none of a server, else 1 more


@frozen
class Place:
    """Where a process counts: its part of the memory behind a descriptor, which has so many parts."""

    handle: int
    own: int
    parts: int
    key: str = field(repr=False)


def make(parts: int) -> int:
    """Memory for so many processes, all counters 0: a descriptor."""
    handle = os.memfd_create("onecopy-counts", os.MFD_CLOEXEC)
    os.ftruncate(handle, parts * (_PART + _SHOWN * 4))
    return handle


def new_key() -> str:
    """For one start of all processes."""
    return secrets.token_hex(32)


@define(eq=False)
class Counts:
    """This process's counters, and those of the others."""

    _key: bytes
    _own: memoryview
    _others: Sequence[memoryview]
    _shown: memoryview
    _shown_by_others: Sequence[memoryview]

    @classmethod
    def at(cls, place: Place) -> "Counts":
        """In the memory that the supervisor has made."""
        whole = memoryview(mmap.mmap(place.handle, place.parts * (_PART + _SHOWN * 4))).cast(_CELL)
        parts = _divided(whole[:place.parts * ROWS * WIDTH], place.parts)
        shown = _divided(whole[place.parts * ROWS * WIDTH:], place.parts)
        return cls(bytes.fromhex(place.key), parts.pop(place.own), parts, shown.pop(place.own), shown)

    def add(self, name: bytes, change: int) -> None:
        """One more of `name`, or one less of those that were added here."""
        for cell in self._cells(name):
            self._own[cell] += change

    def others(self, name: bytes) -> int:
        """How many of `name` the other processes count."""
        if not self._others:
            return 0
        cells = self._cells(name)
        return sum(min(part[cell] for cell in cells) for part in self._others)

    def show_open(self, server: str, connections: int | None) -> None:
        """This process serves that server, and has so many connections of it open; None: it takes no more. Of a server
        that is not in SERVERS nothing is shown."""
        if server in SERVERS:
            self._shown[SERVERS.index(server)] = 0 if connections is None else connections + 1

    def fewest_open(self, server: str) -> int | None:
        """How many connections of that server the other process has that has the fewest; None: no other takes any."""
        if server not in SERVERS:
            return None
        at = SERVERS.index(server)
        return min((part[at] - 1 for part in self._shown_by_others if part[at]), default=None)

    def _cells(self, name: bytes) -> list[int]:
        digest = hashlib.blake2b(name, key=self._key, digest_size=_CELLS.size).digest()
        return [row * WIDTH + value % WIDTH for row, value in enumerate(_CELLS.unpack(digest))]


def _divided(cells: memoryview, parts: int) -> list[memoryview]:
    size = len(cells) // parts
    return [cells[at * size:(at + 1) * size] for at in range(parts)]
