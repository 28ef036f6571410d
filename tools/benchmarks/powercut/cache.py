"""A disk with a volatile write cache: what was written since the last flush can be lost, whole or in part."""

import os
from mmap import ACCESS_COPY, mmap
from random import Random

from attrs import define, field

SECTOR = 512
BLOCK = 4096
PIECE_OCTETS = 1 << 20
#: What of the unflushed writes is on the disk after a cut: none; all; each write whole or not; of each write each block
#: of 4,096 octets, or each sector of 512, or not.
LEFT = ("none", "all", "writes", "blocks", "sectors")


@define
class Loss:
    """What a cut did: unflushed sectors that there were, and that are not on the disk."""

    unflushed: int = 0
    dropped: int = 0


@define
class CachedDisk:
    """A disk that begins as `image`, a file, which stays as it is. Offsets and lengths are in octets.

    Readers see `_now`; after the cut too, when writes reach only that: the kernel that is about to be thrown away keeps
    one view of its own.
    """

    image: int                      # a descriptor
    size: int
    requests: int = 0               # writes and flushes since power came
    is_on: bool = True
    _now: mmap = field(init=False)
    _disk: mmap = field(init=False)
    _unflushed: list[tuple[int, bytes]] = field(factory=list)
    _filled: set[int] = field(factory=set)                      # pieces that something was written to
    _apart: list[tuple[int, int]] = field(factory=list)         # where the two may differ since the cut

    def __attrs_post_init__(self) -> None:
        self._now = mmap(self.image, self.size, access=ACCESS_COPY)
        self._disk = mmap(self.image, self.size, access=ACCESS_COPY)

    @property
    def has_unflushed(self) -> bool:
        """Whether a flush has something to do."""
        return bool(self._unflushed)

    def read(self, offset: int, length: int) -> bytes:
        """What was written last."""
        return self._now[offset:offset + length]

    def write(self, offset: int, octets: bytes) -> None:
        """Into the cache."""
        self.requests += 1
        self._now[offset:offset + len(octets)] = octets
        if self.is_on:
            self._unflushed.append((offset, octets))
        else:
            self._apart.append((offset, len(octets)))

    def flush(self) -> None:
        """Everything that was written before is on the disk."""
        self.requests += 1
        for offset, octets in self._unflushed:
            self._put(offset, octets)
        self._unflushed.clear()

    def _put(self, offset: int, octets: bytes) -> None:
        self._disk[offset:offset + len(octets)] = octets
        self._filled.update(range(offset // PIECE_OCTETS, (offset + len(octets) - 1) // PIECE_OCTETS + 1))

    def cut(self, left: str, random: Random) -> Loss:
        """Power is off: of what was not flushed that is on the disk which `left` says, and nothing that comes later."""
        loss = Loss()
        unit = {"blocks": BLOCK, "sectors": SECTOR}.get(left, 1 << 30)
        share = {"none": 0.0, "all": 1.0}.get(left, random.random())
        for offset, octets in self._unflushed:
            self._apart.append((offset, len(octets)))
            for at in range(0, len(octets), unit):
                piece = octets[at:at + unit]
                sectors = -(-len(piece) // SECTOR)
                loss.unflushed += sectors
                if random.random() < share:
                    self._put(offset + at, piece)
                else:
                    loss.dropped += sectors
        self._unflushed.clear()
        self.is_on = False
        return loss

    def power_on(self) -> None:
        """All that is left is what is on the disk."""
        for offset, length in self._apart:
            self._now[offset:offset + length] = self._disk[offset:offset + length]
        self._apart.clear()
        self.requests, self.is_on = 0, True

    def copied(self) -> int:
        """A descriptor of an image of what is on the disk now, which began empty."""
        handle = os.memfd_create("powercut")
        os.truncate(handle, self.size)
        for at in self._filled:
            os.pwrite(handle, self._disk[at * PIECE_OCTETS:(at + 1) * PIECE_OCTETS], at * PIECE_OCTETS)
        return handle

    def close(self) -> None:
        """Forget it all."""
        self._now.close()
        self._disk.close()
