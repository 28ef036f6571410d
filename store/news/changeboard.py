"""What each process of a server shows the others in memory that they share: what it listens to, and what it has changed
lately. To wake another process costs as much as a small command; to look there wakes nobody.

Each has a part of its own, the only one that it writes. A part has

* the process's number,
* a counter for each of INTERESTS, which mailboxes and accounts share by their numbers: of those who listen. One that is
  0 says for certain that nobody there listens;
* a ring of the last CHANGES that were told there. An entry that is overwritten while it is read does not agree with
  its checksum, and is passed over. Like all news they are hints: who misses one finds a gap in the MODSEQs.
"""

import mmap
import os
import struct
import threading
import zlib
from collections.abc import Iterable

import numpy as np
from attrs import define, field, frozen

from mboxlist.entry import MailboxId
from store.changes import Change

INTERESTS = 1 << 18
MOST = 255                  # that a counter counts; from there it counts no more, and stays
CHANGES = 512
NAMED = 64                  # chunks of an entry
_ENTRY = np.dtype([("check", "<u4"), ("mailbox", "<u4"), ("partition", "<u4"), ("count", "<u4"), ("before", "<u8"),
                   ("chunks", "<u4", NAMED)])       # check: CRC-32 of what follows
_HEAD = struct.Struct("<IIIQ")                      # of an entry, behind its check
_ONE = struct.Struct(_HEAD.format + "I")            # that, and a chunk
_NUMBER = struct.Struct("<I")
_RING = 4096                # the octet of a part at which the ring begins; before it there is the number
_COUNTERS = _RING + CHANGES * _ENTRY.itemsize
_PART = (_COUNTERS + INTERESTS + 4095) // 4096 * 4096


@frozen
class Place:
    """A process's part of the memory behind a descriptor, which has so many parts."""

    handle: int
    own: int
    parts: int


def make(parts: int) -> int:
    """Memory for so many processes, in which there is nothing yet: a descriptor."""
    handle = os.memfd_create("onecopy-changes", os.MFD_CLOEXEC)
    os.ftruncate(handle, parts * _PART)
    return handle


@define(eq=False)
class _Part:
    octets: memoryview
    counters: memoryview = field(init=False)
    ring: "np.ndarray[tuple[int], np.dtype[np.void]]" = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.counters = self.octets[_COUNTERS:_COUNTERS + INTERESTS]
        self.ring = np.frombuffer(self.octets[_RING:_COUNTERS], _ENTRY)

    @property
    def number(self) -> int:
        """That of the process."""
        return int(_NUMBER.unpack_from(self.octets)[0])

    def listens(self, numbers: Iterable[int]) -> bool:
        """Whether somebody there may listen to one of these."""
        return any([self.counters[number % INTERESTS] for number in numbers])


class Board:
    """This process's part, and those of the others."""

    def __init__(self, place: Place) -> None:
        whole = memoryview(mmap.mmap(place.handle, place.parts * _PART))
        parts = [_Part(whole[at * _PART:(at + 1) * _PART]) for at in range(place.parts)]
        self._own = parts.pop(place.own)
        self._others = parts
        self._written = 0
        self._lock = threading.Lock()
        _NUMBER.pack_into(self._own.octets, 0, os.getpid())

    def listen(self, number: int, more: int) -> None:
        """So many more listen here to the mailbox or account of that number: 1, or -1."""
        counters, at = self._own.counters, number % INTERESTS
        if counters[at] != MOST:
            counters[at] += more

    def wanted(self, numbers: Iterable[int]) -> bool:
        """Whether somebody may listen to one of these in another process."""
        for part in self._others:               # as `listens`, which each change would call for each process
            counters = part.counters
            for number in numbers:
                if counters[number % INTERESTS]:
                    return True
        return False

    def wants(self, process: int, numbers: Iterable[int]) -> bool | None:
        """Whether somebody may listen to one of these in the process of that number; None when it has no part."""
        for part in self._others:
            if part.number == process:
                return part.listens(numbers)
        return None

    def note(self, changes: Iterable[Change]) -> None:
        """Show what has been changed here; what is not said, or too much, is left out."""
        if not self._others:
            return
        for change in changes:
            if change.chunks is not None and len(change.chunks) <= NAMED:
                chunks = change.chunks
                if len(chunks) == 1:            # nearly always
                    number, = chunks
                    body = _ONE.pack(change.mailbox, change.partition, 1, change.before, number)
                else:
                    body = _HEAD.pack(change.mailbox, change.partition, len(chunks), change.before) + struct.pack(
                        f"<{len(chunks)}I", *chunks)
                entry = _NUMBER.pack(zlib.crc32(body)) + body
                with self._lock:
                    at = _RING + self._written % CHANGES * _ENTRY.itemsize
                    self._written += 1
                    self._own.octets[at:at + len(entry)] = entry

    def changes_of(self, mailbox: MailboxId) -> list[Change]:
        """What the other processes show of that mailbox, in no order."""
        found = []
        for part in self._others:
            for at in np.flatnonzero(part.ring["mailbox"] == mailbox).tolist():
                entry = part.ring[at].tobytes()
                there, partition, count, before = _HEAD.unpack_from(entry, _NUMBER.size)
                end = _NUMBER.size + _HEAD.size + 4 * count
                if (there == mailbox and count <= NAMED
                        and zlib.crc32(entry[_NUMBER.size:end]) == _NUMBER.unpack_from(entry)[0]):
                    chunks = struct.unpack_from(f"<{count}I", entry, _NUMBER.size + _HEAD.size)
                    found.append(Change(partition, mailbox, before, frozenset(chunks)))
        return found
