"""How the octets are to be read that a standby and the one that serves send each other.

The messages are those of `store.usermove.messageformat`. Both ends must have the same version of onecopy, since they
send each other files as they are.
"""

import struct
from collections.abc import Iterator, Sequence

from attrs import frozen

from mboxlist.engine.hotcopy import Position
from store.usermove.messageformat import DATA_OCTETS, BadMessage, whole

SENT_OCTETS = 512 << 10                   # octets of a file that one message takes
FOLDERS = 4096                      # of message files, by the first three digits of their names
FILES = 2_000                       # message files that are asked for at a time
SMALL_FILES = 2_000                 # small files that are listed at a time
SMALL = ("access", "operations", "operations/ended", "audit")     # folders of the store whose files are copied, too
_FILE = struct.Struct(">32sQQ")     # of a list: name, octets, time of its last change in nanoseconds
_SENT = struct.Struct(">BQQI")      # of an answer: one of these three; octets, time, octets of it that follow
_GONE, _COMES, _SAME = range(3)
LISTED = DATA_OCTETS // _FILE.size  # files of a list, at most


@frozen
class Listed:
    """A message file: `name` is its digest. Files of one name that have the same size and time are the same."""

    name: bytes
    size: int
    time: int


@frozen
class Sent:
    """A message file as it came, whole or its beginning. `same`: it is the one that is known."""

    size: int
    time: int
    octets: bytes = b""
    same: bool = False


def pack_list(files: Sequence[Listed]) -> bytes:
    """A list, as it is sent."""
    return b"".join([_FILE.pack(file.name, file.size, file.time) for file in files])


def read_list(octets: bytes) -> list[Listed]:
    """As it was sent. Raises BadMessage."""
    if len(octets) % _FILE.size:
        raise BadMessage("a list of files is not whole")
    return [Listed(*row) for row in _FILE.iter_unpack(octets)]


def pack_sent(sent: Sent | None) -> bytes:
    """A file in an answer; None: it is not there."""
    if sent is None:
        return _SENT.pack(_GONE, 0, 0, 0)
    return _SENT.pack(_SAME if sent.same else _COMES, sent.size, sent.time, len(sent.octets)) + sent.octets


def read_sent(octets: bytes) -> Iterator[Sent | None]:
    """All files of an answer. Raises BadMessage."""
    at = 0
    while at < len(octets):
        if len(octets) - at < _SENT.size:
            raise BadMessage("an answer is not whole")
        what, size, time, count = _SENT.unpack_from(octets, at)
        at += _SENT.size
        if what > _SAME or count > size or count > len(octets) - at:
            raise BadMessage("a file is not whole")
        yield None if what == _GONE else Sent(size, time, octets[at:at + count], what == _SAME)
        at += count


def positions(value: object) -> dict[str, Position]:
    """Where logs end, by environment. Raises BadMessage."""
    if not isinstance(value, dict):
        raise BadMessage("there are no places in logs")
    found = {}
    for name, place in value.items():
        if not isinstance(place, list) or len(place) != 2:
            raise BadMessage("a place in a log is none")
        found[str(name)] = whole(place[0], "file"), whole(place[1], "octet")
    return found
