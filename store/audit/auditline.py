"""A line of the audit trail, the names of its files, and the head, which says where the trail ends."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from attrs import frozen

FOLDER = "audit"
HEAD = "head"
BEGUN = "audited"           # in the folder of the store itself: there has been a trail
LOCK = "lock"
NAME = re.compile(r"(\d{6})-(\d{4}-\d{2})\.jsonl")      # serial and month
HEAD_OCTETS = 256           # within a sector of a disk: it is written whole, or not at all
LONGEST = 1000              # characters of one fact
MOST = 64                   # facts of a list
LONGEST_LINE = 1 << 20      # octets: what is longer is no line

#: What can be noted, and what is unless something else is set. A proxy acts as each user who comes through it.
KINDS = {
    "act": "an administrator acts as another user",
    "proxy": "a proxy lets a user in",
    "delete": "mailboxes and users are deleted, messages are expunged in mailboxes of others, files are purged",
    "share": "an ACL is changed",
    "export": "mail is written to files, or read for a report",
    "search": "mail of others is searched",
    "read": "mail of others is opened",
    "user": "users and aliases are made and changed",
    "access": "app passwords and second factors are made, revoked and reset",
    "quota": "limits are changed",
    "mailbox": "mailboxes are made, renamed and subscribed to by an administrator, and mail is imported",
    "configuration": "what holds for the store is changed: configuration, partitions, rules of expiry",
    "session": "sessions are ended",
    "restore": "what was deleted, or is in a backup or a snapshot, is brought back",
    "repair": "the store is mended by a command",
}
CHOICES = tuple(KINDS)
USUAL = tuple(kind for kind in KINDS if kind != "proxy")
OWN = "audit"               # the kind of lines about the trail itself, which are always written
CUT, REMOVED, NO_HEAD = "line was cut off", "files removed", "head was missing"     # what these say


@frozen
class Head:
    """Where the trail ends: the number and the digest of its last line, and up to where the files go."""

    number: int = 0
    digest: str = ""
    serial: int = 0         # of the last file,
    size: int = 0           # and its octets

    def to_bytes(self) -> bytes:
        """As the file has it."""
        return json.dumps({"number": self.number, "digest": self.digest, "file": self.serial, "size": self.size}
                          ).encode().ljust(HEAD_OCTETS - 1) + b"\n"

    @classmethod
    def from_bytes(cls, octets: bytes) -> "Head | None":
        """What the file says; None for what no head is."""
        found = parsed(octets.strip())
        if found is None:
            return None
        values = found.get("number"), found.get("digest"), found.get("file"), found.get("size")
        number, digest, serial, size = values
        if not (isinstance(number, int) and isinstance(digest, str) and isinstance(serial, int)
                and isinstance(size, int) and min(number, serial, size) >= 0):
            return None
        return cls(number, digest, serial, size)

    def __str__(self) -> str:
        return f"{self.number}:{self.digest}"


def digest_of(line: bytes) -> str:
    """Of a line, without its end."""
    return hashlib.blake2b(line, digest_size=32).hexdigest()


def made(facts: Mapping[str, Any], number: int, before: str, when: float) -> bytes:
    """The line, without its end. It is ASCII: what is not printable is escaped."""
    return json.dumps({"number": number, "time": datetime.fromtimestamp(when, UTC).isoformat(timespec="milliseconds"),
                       **{name: _bounded(value) for name, value in facts.items() if value not in ("", None, [])},
                       "before": before}).encode("ascii").replace(b"\x7f", b"\\u007f")


def parsed(line: bytes) -> dict[str, Any] | None:
    """What a line says; None for what is none."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _bounded(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= LONGEST else value[:LONGEST - 1] + "…"
    if isinstance(value, list | tuple):
        return [*map(_bounded, value[:MOST]), *(["…"] if len(value) > MOST else [])]
    return value


def name_of(serial: int, when: float) -> str:
    """Of a file that is begun then."""
    return f"{serial:06d}-{datetime.fromtimestamp(when, UTC):%Y-%m}.jsonl"


def files(folder: Path) -> list[tuple[int, str, Path]]:
    """The files in their order: serial, month, path. Raises OSError."""
    try:
        names = [path for path in folder.iterdir() if NAME.fullmatch(path.name)]
    except FileNotFoundError:
        return []
    return sorted((int(path.name[:6]), path.name[7:14], path) for path in names)


def lines(file: Any) -> Iterator[bytes]:
    """The lines of an open file with their ends; the last one may have none, and what is too long comes in pieces."""
    while line := file.readline(LONGEST_LINE):
        yield line
