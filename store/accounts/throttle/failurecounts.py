"""How often logins have failed, by whatever name they are counted: a table of fixed size that all processes share.

A name has a few places, given by a digest under a secret key; of these the one that counts least is given up for
another name. So who fails under many names displaces others that did the same, and none that has failed often. The name
itself stands there for administrators, cut off where it is too long.
"""

import hashlib
import mmap
import struct
from collections.abc import Iterator

from attrs import define, evolve, frozen

from store.accounts.throttle.loginmemory import LoginMemory, Part

USER, ADDRESS, NETWORK, PAIR = "user", "address", "network", "user at address"
_KINDS = ("", USER, ADDRESS, NETWORK, PAIR)
_ENTRY = struct.Struct("<16sdddBB86s")      # digest; weight, as it was when; time of the next look; kind; name
_DIGEST = 16                                # octets of it
_NOBODY = bytes(_DIGEST)                    # stands where no name does
_WAYS = 8                                   # places of a name
_LONGEST = 86                               # octets of a name that are kept
_BUCKET = _WAYS * _ENTRY.size


@frozen
class Name:
    """What is counted: a user, an address, a network, or a user at an address or network ("ADDRESS USER")."""

    kind: str
    text: str

    @property
    def kept(self) -> bytes:
        """What of the text is kept."""
        return self.text.encode(errors="replace")[:_LONGEST]


@frozen
class Count:
    """`weight` failures at the time `when`; `last` is when one was looked at last, which may be to come."""

    weight: float = 0.0
    when: float = 0.0
    last: float = 0.0

    def at(self, now: float, half_life: float) -> float:
        """What is left of the failures."""
        return float(self.weight * 0.5 ** (max(0.0, now - self.when) / half_life))


NOTHING = Count()


@frozen
class Row:
    """What stands in the table, for administrators."""

    kind: str
    name: str
    count: Count


@define(eq=False)
class FailureCounts:
    """The table. Whoever reads and then writes does so under `memory.locked(Part.FAILURES)`."""

    memory: LoginMemory
    half_life: float
    _key: bytes
    _octets: mmap.mmap

    @classmethod
    def at(cls, memory: LoginMemory, half_life: float) -> "FailureCounts":
        """In the memory about logins."""
        return cls(memory, half_life, memory.key_of(Part.FAILURES), memory.map(Part.FAILURES))

    def get(self, name: Name) -> Count:
        """What is counted under that name."""
        digest, places = self._places(name)
        for at in places:
            if self._octets[at:at + _DIGEST] == digest:
                return self._count(at)
        return NOTHING

    def put(self, name: Name, count: Count) -> None:
        """Count so much under that name; 0: forget it."""
        digest, places = self._places(name)
        digests = [self._octets[at:at + _DIGEST] for at in places]
        if digest in digests:
            at = places[digests.index(digest)]
        elif count.weight <= 0:
            return
        elif _NOBODY in digests:
            at = places[digests.index(_NOBODY)]
        else:
            at = min(places, key=lambda each: self._count(each).at(count.when, self.half_life))
        if count.weight <= 0:
            self._octets[at:at + _ENTRY.size] = bytes(_ENTRY.size)
            return
        kept = name.kept
        _ENTRY.pack_into(self._octets, at, digest, count.weight, count.when, count.last, _KINDS.index(name.kind),
                         len(kept), kept)

    def rows(self, now: float) -> Iterator[Row]:
        """All that counts for more than nothing, as it is now."""
        for at in range(0, len(self._octets), _ENTRY.size):
            if self._octets[at:at + _DIGEST] == _NOBODY:
                continue
            _, weight, when, last, kind, length, text = _ENTRY.unpack_from(self._octets, at)
            count = Count(weight, when, last)
            if (left := count.at(now, self.half_life)) >= 0.05 and 0 < kind < len(_KINDS):
                yield Row(_KINDS[kind], text[:length].decode(errors="replace"), evolve(count, weight=left, when=now))

    def _count(self, at: int) -> Count:
        _, weight, when, last, *_ = _ENTRY.unpack_from(self._octets, at)
        return Count(weight, when, last)

    def _places(self, name: Name) -> tuple[bytes, list[int]]:
        whole = hashlib.blake2b(f"{name.kind} {name.text}".encode(errors="replace"), key=self._key,
                                digest_size=24).digest()
        bucket = int.from_bytes(whole[_DIGEST:], "little") % (len(self._octets) // _BUCKET) * _BUCKET
        return whole[:_DIGEST], list(range(bucket, bucket + _BUCKET, _ENTRY.size))
