"""Which message files the octets of a log tell of.

A record of Berkeley DB's log (5.3) begins with the place of the record before it, its length and its checksum
(`are_whole`), four octets each; then come its type, the transaction, and the transaction's record before this one. A
row that is added to a page is a record of type `_ADDREM`, in which the key stands whole, behind the octets of its
header on the page. Keys of `messages.db` are digests of `MID_OCTETS`; no other key or value of that length does harm,
since nobody has a message file of that name.
"""

import struct
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from store.partition.messagereading import MID_OCTETS

_HEAD = struct.Struct("<4xI4xI")        # of each record: length and type,
_SUMMED = struct.Struct("<III")         # and with what stands around its length: the record before it, the checksum
_FACTOR = 33                            # of the checksum, for each octet
_ADDREM, _ADDED = 41, 1                 # type of record; what it does, above the type of the page
_ROW = struct.Struct("<12x16xIiIIII")   # of such a record: opcode, table, page, index, octets, length of the header
_LENGTH = struct.Struct("<I")
_DIGEST = MID_OCTETS,


def digests(octets: bytes) -> list[bytes]:
    """The digests of which these octets tell, which begin with a record, and after which there may be zeros. Raises
    ValueError when they are no records, or the last is not whole."""
    found, at, size, head, row = list[bytes](), 0, len(octets), _HEAD.unpack_from, _ROW.size
    while size - at >= _HEAD.size:
        length, kind = head(octets, at)
        end = at + length
        if length < _HEAD.size or end > size:
            break
        if kind == _ADDREM and length >= row:
            opcode, _, _, _, _, header = _ROW.unpack_from(octets, at)
            key = at + row + header + _LENGTH.size
            if opcode >> 8 == _ADDED and key + MID_OCTETS <= end and _LENGTH.unpack_from(
                    octets, key - _LENGTH.size) == _DIGEST:
                found.append(octets[key:key + MID_OCTETS])
        at = end
    if octets.count(0, at) != size - at:
        raise ValueError("a record of the log is not whole, or there is something behind the end of the log")
    return found


def are_whole(octets: bytes) -> bool:
    """Whether these octets, which begin with a record, are records to their end, each of them as its checksum says:
    then all of them had been written when they were read.

    The checksum of a record is that of Berkeley DB (5.3) without encryption: its octets behind the head, each after the
    sum so far times 33, modulo 2 to the 32, and that with the other two numbers of the head by exclusive or.
    """
    places, sums, at, size = list[int](), list[int](), 0, len(octets)      # where each begins behind its head, and ends
    while at < size:
        if size - at < _SUMMED.size:
            return False
        before, length, checksum = _SUMMED.unpack_from(octets, at)
        if length <= _SUMMED.size or length > size - at:
            return False
        places += at + _SUMMED.size, at + length
        at += length
        sums.append(checksum ^ before ^ length)
    if not sums:
        return True
    up, down = _powers(1 << size.bit_length())
    found = np.add.reduceat(np.frombuffer(octets, np.uint8) * down[:size], places[:-1], dtype=np.uint32)[::2]
    return bool((found * up[np.array(places[1::2]) - 1]).tolist() == sums)


@lru_cache(32)
def _powers(count: int) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Of the factor, and of its inverse, modulo 2 to the 32."""
    up, down = (np.full(count, each, np.uint32) for each in (_FACTOR, pow(_FACTOR, -1, 1 << 32)))
    up[0] = down[0] = 1
    return np.cumprod(up, dtype=np.uint32), np.cumprod(down, dtype=np.uint32)
