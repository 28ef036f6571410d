"""Cache records of messages in an archive, so that a restore need not parse what comes back.

A member `cache/P/<number>` has those of some of the message files that come behind it, up to the next such member:
the octets of each (four octets, little-endian), and the record as a store keeps it. They are a help and no more: what
is damaged, of another version, or not that of its message is rebuilt from the message.
"""

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from store.backup.tarmembers import Cut, Member
from store.message.cacherecord import CachedMessage, are_sound

MEMBER_OCTETS = 8 << 20              # octets of records in a member
LARGEST_RECORD_OCTETS = 64 << 10          # of a record that comes along
_LENGTH = struct.Struct("<I")


def pack(values: Sequence[bytes | None], digests: Sequence[bytes], traces: NDArray[Any]) -> bytes:
    """A member with those of these stored records that are sound, as far as there is room; empty when there are none.
    """
    held: list[bytes] = []
    octets = 0
    sound = are_sound(values, np.frombuffer(b"".join(digests), "V32"), traces)
    for value, is_sound in zip(values, sound.tolist(), strict=True):
        if (value is not None and is_sound and len(value) <= LARGEST_RECORD_OCTETS
                and octets + len(value) <= MEMBER_OCTETS):
            held += _LENGTH.pack(len(value)), value
            octets += len(value)
    return b"".join(held)


def read(member: Member) -> Mapping[bytes, CachedMessage]:
    """The records in a member, by the digests of their messages; none when it is damaged."""
    try:
        data = member.octets(2 * MEMBER_OCTETS)
    except Cut:
        return {}
    found, at = {}, 0
    while at + _LENGTH.size <= len(data):
        start = at + _LENGTH.size
        at = start + _LENGTH.unpack_from(data, at)[0]
        if at > len(data):
            break
        try:
            record = CachedMessage.from_bytes(data[start:at])
        except ValueError:
            continue
        found[record.digest] = record
    return found
