"""How the octets are to be read that a standby and the one that serves send each other.

The messages are those of `store.usermove.messageformat`. Both ends must have the same version of onecopy, since they
send each other files as they are.
"""

import re
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

from attrs import define, evolve, frozen

from mboxlist.engine.hotcopy import Position
from store.expiry import rulebook
from store.partition.messagereading import MID_OCTETS
from store.partitions.volumes import NAME
from store.snapshots.taking import LIST
from store.standby.standbystate import StandbyState
from store.usermove.messageformat import ANSWER_OCTETS, DATA_OCTETS, BadMessage, Message, seconds, whole

SENT_OCTETS = 512 << 10                   # octets of a file that one message takes
QUICK_OCTETS = 384 << 10    # of logs and message files that come with one answer, when they are all that is new,
UNHURRIED = 10              # times as much where nobody waits for it,
QUICK_FILES = 4_000         # and message files
FOLDERS = 4096                      # of message files, by the first three digits of their names
FILES = 2_000                       # message files that are asked for at a time
SMALL_FILES = 2_000                 # small files that are listed at a time
FURTHER = 100                       # standbys of a standby, at most, of which it tells
SELDOM = ("first", "tables", "epochs")     # fields of `StandbyState` that come when they have changed
_ALL = re.compile(r"(?!.*(\.new|lock)\Z)[^.].*", re.DOTALL)      # but what is not whole, and locks
TOP = ""                            # the folder of the store itself,
SMALL = {                           # and folders whose files are copied, too, and which of them: see `small_folders`
    "access": _ALL, "operations": _ALL, "operations/ended": _ALL, "outgoing": _ALL, "audit": _ALL,
    # Who may use the API, and what nginx must know: secrets. That there has been an audit trail: behind the trail.
    TOP: re.compile("http-tokens|front-secret|audited"),
    rulebook.FOLDER: re.compile(r"[^.].*\.rules", re.DOTALL)}
SMALL_OF_PARTITION = re.compile(re.escape(rulebook.FILE))
_FILE = struct.Struct(">32sQQ")     # of a list: name, octets, time of its last change in nanoseconds
_SENT = struct.Struct(">BQQI")      # of an answer: one of these three; octets, time, octets of it that follow
_PARTITION = re.compile("partitions/([^/]+)/index")
_FOLDER_OF_PARTITION = re.compile("partitions/([^/]+)")
PACK_OCTETS = 1024          # that are packed, at least,
PACK_LEVEL = 1              # the quickest of zlib's levels,
PACK_WORTH = 0.9            # when they become so much smaller; else of the next
PACK_SKIPPED = 7            # answers none is tried
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
    """The files of a list that was sent. Raises BadMessage."""
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
        if not is_environment(name):
            raise BadMessage(f"an environment of the name {name!r}")
        found[name] = whole(place[0], "file"), whole(place[1], "octet")
    return found


def further_of(said: Message) -> dict[str, float]:
    """The standbys that follow the one that asks, and how many seconds each is behind. Raises BadMessage."""
    found = said.fields.get("further")
    if not isinstance(found, dict) or len(found) > FURTHER:
        raise BadMessage("further standbys are none")
    return {str(host): seconds(behind, "behind") for host, behind in found.items()}


@lru_cache(64)
def is_environment(name: str) -> bool:
    """Whether an environment of a store can have that name: what comes is written below it."""
    place = _PARTITION.fullmatch(name)
    return name == LIST or place is not None and NAME.fullmatch(place[1]) is not None


def small_folders(environments: Iterable[str]) -> list[str]:
    """The folders in which small files may be of a store with these environments: its own, and those of partitions."""
    return [*SMALL, *(name.removesuffix("/index") for name in environments if name != LIST)]


def partition_of(folder: str) -> str:
    """The partition whose folder that is; empty: it is none of a partition."""
    found = _FOLDER_OF_PARTITION.fullmatch(folder)
    return found[1] if found is not None and NAME.fullmatch(found[1]) else ""


def is_small(folder: str, name: str) -> bool:
    """Whether a file of that name in that folder of the store is one of the small ones."""
    names = SMALL_OF_PARTITION if partition_of(folder) else SMALL.get(folder)
    return names is not None and names.fullmatch(name) is not None


@define
class Packing:
    """Compresses what is sent (zlib, RFC 1950), where that is asked for and helps: after octets that did not become
    smaller, as those of compressed attachments, some answers go as they are."""

    is_wanted: bool = False
    _skip: int = 0

    def pack(self, fields: dict[str, Any], octets: bytes) -> tuple[dict[str, Any], bytes]:
        """An answer, which has the field `unpacked`, the number of octets, when they are packed."""
        if not self.is_wanted or len(octets) < PACK_OCTETS:
            return fields, octets
        if self._skip:
            self._skip -= 1
            return fields, octets
        smaller = zlib.compress(octets, PACK_LEVEL)
        if len(smaller) > len(octets) * PACK_WORTH:
            self._skip = PACK_SKIPPED
            return fields, octets
        return {**fields, "unpacked": len(octets)}, smaller


def unpacked(said: Message) -> Message:
    """An answer as it was before `pack`. Raises BadMessage."""
    if "unpacked" not in said.fields:
        return said
    count, unpacking = said.number("unpacked", 0, ANSWER_OCTETS + 1), zlib.decompressobj()
    try:
        octets = unpacking.decompress(said.octets, count + 1)
    except zlib.error as error:
        raise BadMessage("what came cannot be unpacked") from error
    if len(octets) != count or not unpacking.eof or unpacking.unused_data:
        raise BadMessage("what came is not whole, or more than was said")
    return Message({name: value for name, value in said.fields.items() if name != "unpacked"}, octets)


@frozen
class LogPart:
    """Octets of a log: of that file, from that octet on."""

    environment: str
    file: int
    at: int
    octets: bytes


@frozen
class FileWhole:
    """A message file; without octets where it is too large to come with others."""

    partition: str
    digest: bytes
    size: int
    time: int
    octets: bytes


@frozen
class Quick:
    """An answer that has all that is new, from `known` to `ends`. `seldom`: the first files of the logs that recovery
    needs, the tables and the epochs, when they are others than before. `ahead`: the one that serves may not have its
    logs on disk up to `ends`; it does when it says more."""

    known: dict[str, Position]
    ends: dict[str, Position]
    moment: float
    logs: tuple[LogPart, ...]
    files: tuple[FileWhole, ...]
    seldom: dict[str, dict[str, Any]]
    ahead: bool = False

    @classmethod
    def of(cls, said: Message, ends: dict[str, Position] | None = None) -> "Quick":
        """From an answer, of which it may be known already to where it leads. Raises BadMessage."""
        known = positions(said.fields.get("known"))
        if ends is None:
            ends = positions(said.fields.get("ends"))
        logs, files, at = list[LogPart](), list[FileWhole](), 0

        def octets(count: object) -> bytes:
            nonlocal at
            found = said.octets[at:at + whole(count, "octets")]
            at += len(found)
            if len(found) != count:
                raise BadMessage("octets of an answer are missing")
            return found

        try:
            for name, file, start, count in said.list("logs", ANSWER_OCTETS):
                if name not in ends:
                    raise BadMessage("a log of no environment")
                logs.append(LogPart(str(name), whole(file, "file"), whole(start, "octet"), octets(count)))
            for partition, digest, size, time, count in said.list("files", ANSWER_OCTETS):
                if f"partitions/{partition}/index" not in ends or len(name := bytes.fromhex(digest)) != MID_OCTETS:
                    raise BadMessage("a message file of no partition, or without a name")
                files.append(FileWhole(partition, name, whole(size, "size"), whole(time, "time"), octets(count)))
            seldom = {name: dict(said.fields[name]) for name in SELDOM if name in said.fields}
            moment = seconds(said.fields["moment"], "moment")
        except (ValueError, TypeError, KeyError) as error:
            raise BadMessage(f"an answer cannot be read: {error}") from error
        return cls(known, ends, moment, tuple(logs), tuple(files), seldom, "ahead" in said.fields)

    def is_whole(self) -> bool:
        """Whether the octets of the logs lead from `known` to `ends`."""
        at = dict(self.known)
        for each in self.logs:
            file, octet = at.get(each.environment, (0, 0))
            if (each.file, each.at) not in ((file, octet), (file + 1, 0)):
                return False
            at[each.environment] = each.file, each.at + len(each.octets)
        return at == self.ends

    def large(self) -> Iterator[FileWhole]:
        """The message files that did not come with it."""
        return (each for each in self.files if len(each.octets) != each.size)

    def after(self, state: StandbyState, small: dict[str, int] | None = None) -> StandbyState:
        """The state with all of it, and with such small files, if that is given."""
        new = self.seldom
        return evolve(state, ends=self.ends, moment=self.moment, first=new.get("first", state.first),
                      tables=new.get("tables", state.tables), epochs=new.get("epochs", state.epochs),
                      small=state.small if small is None else small)
