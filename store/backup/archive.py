"""What is in an archive.

    manifest.json           which backup it is, of what, and which earlier ones it continues
    accounts/0001.jsonl     the built-in directory, some users each: a row a line, with the subscriptions
    limits/0001.jsonl       limits of quota roots: partition, root, octets, messages
    cache/P/0001            cache records of the message files that come next: see `cached`
    partitions/P/messages/3/fa/<digest>     a message file, before the first mailbox that needs it
    partitions/P/users/.../store.idx        a mailbox: see `store.userarea.idxfile`
    copies/...              the manifest, the accounts and the limits once more, in another place
    catalogue.jsonl         every mailbox that there is, and the archive that has it; which message files there are
    totals.json             the last one: sums, and a digest over those of all members before it

The names are those of a store's own files. So what any tar unpacks is a user area and message files from which `onecopy
reconstruct --all` makes a store.
"""

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, BinaryIO

from attrs import asdict, define, evolve, field, fields, frozen

from mboxlist import privatefiles
from store.backup.compression import Read, chunks
from store.backup.tarmembers import Cut, Lost, Member, MemberReader
from store.errors import Problem, StoreError

FORMAT = 1
MANIFEST, CATALOGUE, TOTALS = "manifest.json", "catalogue.jsonl", "totals.json"
ACCOUNTS, LIMITS, CACHED, PARTITIONS, COPIES = "accounts/", "limits/", "cache/", "partitions/", "copies/"
BESIDE = (ACCOUNTS, LIMITS, CACHED, COPIES)     # members that are neither mailboxes nor messages
ROWS_IN_MEMBER = 1000
SMALL_OCTETS = 64 << 20             # of what is read as a whole: a manifest, some accounts
CATALOGUE_OCTETS = 4 << 30          # of a catalogue
TOTALS_WITHIN_OCTETS = 1 << 20      # of the end of an archive, in which the totals are
_ROW_SERIALS = 4096


@frozen
class Scope:
    """Whose mailboxes: of all, of these users (`group`: those who were in it), or of those on a partition. Public
    mailboxes are the user ""."""

    users: tuple[str, ...] | None = None
    partition: str = ""
    group: str = ""

    def is_like(self, other: "Scope") -> bool:
        """Whether one can continue the other: who is in a group may change."""
        return self == other or self.group != "" and self.group == other.group


@frozen
class Manifest:
    """Which backup it is. `since` are the ids of the archives that it continues, the first one being full."""

    id: str
    time: int
    store: str
    program: str
    scope: Scope = field(factory=Scope)
    since: tuple[str, ...] = ()
    format: int = FORMAT

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self), indent=1).encode() + b"\n"

    @classmethod
    def from_bytes(cls, data: bytes) -> "Manifest":
        """Raises StoreError CORRUPT, and UNAVAILABLE for one of a later format."""
        try:
            values = json.loads(data)
            if values["format"] > FORMAT:
                raise StoreError(Problem.UNAVAILABLE, f"The archive has format {values['format']}, of a later onecopy")
            known = {item.name: values[item.name] for item in fields(cls) if item.name in values}
            scope = known.get("scope") or {}
            users = scope.get("users")
            return cls(**{**known, "since": tuple(map(str, known.get("since", ()))), "scope": Scope(
                None if users is None else tuple(map(str, users)), str(scope.get("partition", "")),
                str(scope.get("group", "")))})
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise StoreError(Problem.CORRUPT, f"The manifest of the archive cannot be read: {error}") from None


@frozen
class Totals:
    """Sums over an archive. `catalogue` and `copies` are where in the file the frames with these begin; `digest` is
    that of a line with the name, and one with size and digest, of each member before; `complete`: everything in the
    scope is in this archive or in those that it continues."""

    messages: int = 0
    octets: int = 0
    mailboxes: int = 0
    records: int = 0
    members: int = 0
    catalogue: int = 0
    copies: int = 0
    complete: bool = True
    digest: str = ""

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def from_bytes(cls, data: bytes) -> "Totals":
        """Raises ValueError."""
        values = json.loads(data)
        return cls(**{item.name: values[item.name] for item in fields(cls) if item.name in values})


@define(eq=False)
class Serials:
    """Arrival serials of a partition: the message files that archives have."""

    blocks: dict[int, int] = field(factory=dict)

    def __contains__(self, serial: int) -> bool:
        return bool(self.blocks.get(serial // _ROW_SERIALS, 0) >> serial % _ROW_SERIALS & 1)

    def add(self, serial: int) -> None:
        self.blocks[serial // _ROW_SERIALS] = self.blocks.get(serial // _ROW_SERIALS, 0) | 1 << serial % _ROW_SERIALS

    def to_json(self) -> dict[str, str]:
        return {str(number): f"{bits:x}" for number, bits in sorted(self.blocks.items())}

    @classmethod
    def from_json(cls, values: dict[str, str]) -> "Serials":
        """Raises ValueError."""
        return cls({int(number): int(bits, 16) for number, bits in values.items()})


@frozen
class Listed:
    """A mailbox in a catalogue: `archive` is the id of the archive that has it, `facts` a digest of what its
    `store.idx` says beside the records."""

    name: str
    id: int
    partition: str
    uidvalidity: int
    uidnext: int
    highestmodseq: int
    records: int
    facts: str
    archive: str

    def is_same(self, other: "Listed") -> bool:
        """Whether nothing has changed."""
        return evolve(self, archive=other.archive) == other


_LISTED = tuple(item.name for item in fields(Listed))


@define(eq=False)
class Catalogue:
    """What a chain of archives has: all mailboxes by their names, and the message files by partition."""

    manifest: Manifest
    mailboxes: dict[str, Listed] = field(factory=dict)
    serials: dict[str, Serials] = field(factory=dict)
    complete: bool = True

    @property
    def chain(self) -> tuple[str, ...]:
        return (*self.manifest.since, self.manifest.id)

    def lines(self) -> Iterator[bytes]:
        archives = {name: at for at, name in enumerate(self.chain)}
        yield json.dumps({"archives": self.chain, "complete": self.complete, "serials": {
            name: serials.to_json() for name, serials in self.serials.items()}}).encode() + b"\n"
        for each in self.mailboxes.values():
            yield json.dumps([each.name, each.id, each.partition, each.uidvalidity, each.uidnext, each.highestmodseq,
                              each.records, each.facts, archives[each.archive]], separators=(",", ":")).encode() + b"\n"

    @classmethod
    def from_bytes(cls, manifest: Manifest, data: bytes) -> "Catalogue":
        """Raises StoreError CORRUPT."""
        try:
            first, *rest = data.splitlines()
            head = json.loads(first)
            archives = head["archives"]
            mailboxes = {}
            for line in rest:
                values = json.loads(line)
                mailboxes[values[0]] = Listed(**dict(zip(_LISTED, [*values[:-1], archives[values[-1]]], strict=True)))
            serials = {name: Serials.from_json(values) for name, values in head["serials"].items()}
            return cls(manifest, mailboxes, serials, bool(head["complete"]))
        except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
            raise StoreError(Problem.CORRUPT, f"The catalogue of the archive cannot be read: {error}") from None


# Reading an archive

@define(eq=False)
class Archive:
    """An archive in a file, or (`path` None) one that comes through a pipe and is read once."""

    path: Path | None
    pipe: Read | None = None
    manifest: Manifest | None = None
    ended: bool = False             # at its last reading
    flaws: int = 0                  # likewise: see `MemberReader`
    copies_at: int = 0              # where in the file the copies begin, when `catalogue` has looked
    totals: Totals | None = None    # likewise

    @property
    def name(self) -> str:
        return str(self.path) if self.path is not None else "standard input"

    def members(self) -> Iterator[Member | Lost]:
        """All of it, from the beginning; the manifest and the totals are looked at on the way.

        Raises StoreError UNAVAILABLE.
        """
        self.ended, self.totals = False, None
        if self.path is None:
            assert self.pipe is not None
            yield from self._members(self.pipe)
            return
        try:
            file = privatefiles.open_named(self.path, buffering=0)
        except OSError as error:
            raise StoreError(Problem.UNAVAILABLE, f"{self.path}: {error.strerror}") from None
        with file:
            yield from self._members(_reading(file))

    def _members(self, read: Read) -> Iterator[Member | Lost]:
        reader = MemberReader(chunks(read))
        for member in reader.all():
            if isinstance(member, Member) and member.name in (MANIFEST, TOTALS):
                try:
                    if member.name == MANIFEST:
                        self.manifest = Manifest.from_bytes(member.octets(SMALL_OCTETS))
                        continue
                    self.totals = Totals.from_bytes(member.octets(SMALL_OCTETS))
                except (Cut, ValueError, TypeError):
                    yield Lost(member.offset, member.size)
                    continue
            elif isinstance(member, Member) and member.name == COPIES + MANIFEST and self.manifest is None:
                with contextlib.suppress(Cut):
                    self.manifest = Manifest.from_bytes(member.octets(SMALL_OCTETS))
                continue
            yield member
        self.ended, self.flaws = reader.ended, reader.flaws

    def wrong(self) -> Iterator[str]:
        """What was found beside the members at the last reading, when that was to the end."""
        if not self.ended:
            yield f"{self.name}: it is cut off, or damaged at its end"
        elif self.flaws:
            yield f"{self.name}: octets between members or frames are damaged, which takes nothing from what is in it"

    def copies(self) -> Iterator[Member]:
        """Accounts and limits as they are there once more, if it is a file whose end can be read."""
        if self.path is None or not self.copies_at:
            return
        with privatefiles.open_named(self.path, buffering=0) as file:
            file.seek(self.copies_at)
            for member in MemberReader(chunks(_reading(file))).all():
                if isinstance(member, Member):
                    if not member.name.startswith(COPIES):
                        return
                    yield member

    def catalogue(self) -> Catalogue | None:
        """What it says that there is; None when that is damaged, cut off, or comes last through a pipe."""
        if self.path is None:
            return None
        try:
            with privatefiles.open_named(self.path, buffering=0) as file:
                size = file.seek(0, 2)
                manifest = self.manifest or _first(file, 0, MANIFEST, Manifest.from_bytes)
                file.seek(max(0, size - TOTALS_WITHIN_OCTETS) // 512 * 512)
                totals = _first(file, file.tell(), TOTALS, Totals.from_bytes)
                if totals is not None:
                    self.totals, self.copies_at = totals, totals.copies
                    if manifest is None and totals.copies:
                        manifest = _first(file, totals.copies, COPIES + MANIFEST, Manifest.from_bytes)
                if manifest is None or totals is None:
                    return None
                self.manifest = manifest
                found: Catalogue | None = _first(file, totals.catalogue, CATALOGUE,
                                                 lambda data: Catalogue.from_bytes(manifest, data))
                return found
        except OSError as error:
            raise StoreError(Problem.UNAVAILABLE, f"{self.path}: {error.strerror}") from None
        except StoreError as error:
            if error.problem is Problem.CORRUPT:
                return None
            raise


def _reading(file: IO[bytes]) -> Read:
    def read(count: int) -> bytes:
        try:
            return file.read(count)
        except OSError:             # a bad block of the disk: the rest is missing
            return b""

    return read


def _first(file: IO[bytes], at: int, name: str, form: Callable[[bytes], Any]) -> Any:
    """The member of that name, if it is among the first ones from that octet of the file on."""
    file.seek(at)
    for member in MemberReader(chunks(_reading(file))).all():
        if isinstance(member, Member) and member.name == name:
            try:
                return form(member.octets(CATALOGUE_OCTETS))
            except (Cut, ValueError, TypeError):
                return None
        if name == MANIFEST and isinstance(member, Member):
            return None
    return None


def message_name(partition: str, digest: bytes) -> str:
    name = digest.hex()
    return f"{PARTITIONS}{partition}/messages/{name[0]}/{name[1:3]}/{name}"


def parse_name(name: str) -> tuple[str, str, bytes] | None:
    """What a member below `partitions/` is: its partition, "messages" or "users", and the digest of a message."""
    top, _, rest = name.partition("/")
    partition, _, rest = rest.partition("/")
    kind, _, rest = rest.partition("/")
    if top + "/" != PARTITIONS or not partition:
        return None
    if kind == "users" and rest.endswith("/store.idx"):
        return partition, kind, b""
    try:
        digest = bytes.fromhex(rest.rpartition("/")[2])
    except ValueError:
        return None
    return (partition, kind, digest) if kind == "messages" and len(digest) == 32 else None


@contextlib.contextmanager
def in_memory() -> Iterator[BinaryIO]:
    """A file that is nowhere on disk."""
    with os.fdopen(os.memfd_create("onecopy"), "w+b") as file:
        yield file
