"""Which message files the octets of a log tell of.

A record of Berkeley DB's log (5.3) begins with the place of the record before it, its length and its checksum, four
octets each; then come its type, the transaction, and the transaction's record before this one. A row that is added to a
page is a record of type `_ADDREM`, in which the key stands whole, behind the octets of its header on the page. Keys of
`messages.db` are digests of `MID_OCTETS`; no other key or value of that length does harm, since nobody has a message
file of that name.
"""

import struct

from store.partition.messagereading import MID_OCTETS

_HEAD = struct.Struct("<4xI4xI")        # of each record: length and type,
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
