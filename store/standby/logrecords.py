"""Which message files the octets of a log tell of.

A record of Berkeley DB's log (5.3) begins with the place of the record before it, its length and its checksum, four
octets each; then come its type, the transaction, and the transaction's record before this one. A row that is added to a
page is a record of type `_ADDREM`, in which the key stands whole, behind the octets of its header on the page. Keys of
`messages.db` are digests of `MID_OCTETS`; no other key or value of that length does harm, since nobody has a message
file of that name.
"""

import struct
from collections.abc import Iterator

from store.partition.messagereading import MID_OCTETS

_HEAD = struct.Struct("<III")           # of each record: the one before it, length, checksum
_ADDREM, _ADDED = 41, 1                 # type of record; what it does, above the type of the page
_TYPE = struct.Struct("<I")
_ROW = struct.Struct("<16xIiIIII")      # behind the head: opcode, table, page, index, octets, length of the header
_LENGTH = struct.Struct("<I")


def digests(octets: bytes) -> Iterator[bytes]:
    """The digests of which these octets tell, which begin with a record, and after which there may be zeros. Raises
    ValueError when they are no records, or the last is not whole."""
    for start, end in records(octets):
        body = start + _HEAD.size
        if end - body < _ROW.size or _TYPE.unpack_from(octets, body)[0] != _ADDREM:
            continue
        opcode, _, _, _, _, header = _ROW.unpack_from(octets, body)
        at = body + _ROW.size + header
        if opcode >> 8 != _ADDED or at + _LENGTH.size > end:
            continue
        length, = _LENGTH.unpack_from(octets, at)
        if length == MID_OCTETS and at + _LENGTH.size + length <= end:
            yield octets[at + _LENGTH.size:at + _LENGTH.size + length]


def records(octets: bytes) -> Iterator[tuple[int, int]]:
    """Where each record begins and ends. Raises ValueError."""
    at = 0
    while at < len(octets):
        if len(octets) - at < _HEAD.size:
            if any(octets[at:]):
                raise ValueError("a record of the log is not whole")
            return
        _, length, _ = _HEAD.unpack_from(octets, at)
        if not length:
            if any(octets[at:]):
                raise ValueError("there is something behind the end of the log")
            return
        if length < _HEAD.size or at + length > len(octets):
            raise ValueError("a record of the log is not whole")
        yield at, at + length
        at += length
