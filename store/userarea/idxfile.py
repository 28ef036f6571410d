"""`store.idx`: the portable copy of one mailbox, in the user area. Plain octets; what reads it needs no database.

All numbers are little-endian. The file is a directory of 512 octets, sections, and the same directory once more at the
very end, so that a file that lost one of the two can still be read.

The directory:

    0    8  magic, 89 6F 6E 65 63 6F 70 79 (an octet that no text has, and "onecopy")
    8    4  version: 2
    12   4  number of sections, up to 15
    16   .. one entry of 32 octets for each: name (8 octets of ASCII, NULs behind it), offset of its data in the file
            (8; a multiple of 8), octets of its data (8), octets of one item of it (4), octets under one checksum (4)
    496  8  octets of the whole file
    504  4  0
    508  4  CRC-32 of the 508 octets before

A section is a table of CRC-32s, 4 octets each, one for each block of its data (the last block may be shorter), and then
at once the data. The table stands before the data, so that a file that was cut short keeps the blocks it still has.
One flipped bit costs one block. Readers skip sections whose names they do not know. Those of version 2:

    "head"     the mailbox as JSON in UTF-8 (`Head`); it is there twice, before all others and behind them
    "rows"     its records in ascending order of UID: `index.ROW`, 96 octets each, 64 of them in a block
    "heads"    the header fields that messages have in this mailbox alone, by the number that their records have for
               them: `HEADS`, 64 octets each, as many in a row for each number as its octets need
    "own"      what readers have as flags of their own in somebody else's mailbox: `OWN`, 584 octets each, by number of
               the reader in `Head.readers` and chunk of 64 UIDs
    "account"  in the INBOX of a user of the built-in directory: the account as its row has it, with the hash of the
               password. It is in no head, so that nothing that reads heads gets it
    "uidls"    unique-ids of POP3 that messages brought along from another server: `UIDLS`, 80 octets each, by UID
"""

import json
import os
import struct
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from attrs import asdict, evolve, field, frozen
from numpy.typing import NDArray

from mboxlist import privatefiles
from mboxlist.engine.disk import sync_folder
from store.errors import Problem, StoreError, disk_problem
from store.tables.index import CHUNK, ROW, Rows
from store.tables.index import OWN as FLAGS
from store.userarea.idxhead import FORM

NAME = "store.idx"
MAGIC = b"\x89onecopy"
VERSION = 2
DIRECTORY = 512
SECTIONS = 15
BLOCK = 64 * ROW.itemsize       # octets of records under one checksum
SMALLEST = 512                  # octets of a block, at least, unless it is the section's only one
HEAD_LIMIT = 128 << 20          # octets of a head
ACCOUNT_LIMIT = 1 << 20         # octets of an account
FILE_LIMIT = 8 << 30            # octets of a file: 89 million records
_START = struct.Struct("<8sII")
_ENTRY = struct.Struct("<8sQQII")
_END = struct.Struct("<QI")
_CHECK = struct.Struct("<I")

OWN = np.dtype([("reader", "<u4"), ("chunk", "<u4"), ("own", FLAGS, (CHUNK,))])
HEADS = np.dtype([("number", "<u4"), ("octets", "<u4"), ("piece", "V56")])      # `octets` is those of all its pieces
UIDLS = np.dtype([("uid", "<u4"), ("octets", "<u4"), ("uidl", "V72")])          # `octets`: how many of them it has
_FIELD_OCTETS = HEADS["piece"].itemsize


@frozen
class Head:
    """The mailbox beside its messages.

    `name` is canonical ("user/alice/Archive"), `owner` "" for a public mailbox; `removed` the Unix time at which it was
    deleted, or 0; `epoch` that of its figures (`MailboxState`); `written` the Unix time of writing in nanoseconds;
    `store` names the list that gave the id. `limits` maps quota roots to their limits of octets and messages
    (`quotatable.DEFAULT` and `quotatable.UNLIMITED` among them): in an INBOX those of its user and of the domain, in a
    public mailbox those of its root. `annotations` maps entry names to users ("" for all) to values in base64.
    `subscriptions` are the owner's, in an INBOX. `account` is the CRC-32 of the section of that name; 0 without one.
    `generation` is that of the databases when it was written, or 0 (`mboxlist.engine.generations`).
    """

    id: int
    name: str
    owner: str
    partition: str
    uidvalidity: int
    uidnext: int
    highestmodseq: int
    epoch: int = 1
    recent: int = 1
    removed: int = 0
    created: int = 0
    special_use: str | None = None
    quota_root: str = ""
    limits: dict[str, list[int]] = field(factory=dict)
    acl: dict[str, str] = field(factory=dict)
    annotations: dict[str, dict[str, str]] = field(factory=dict)
    keywords: list[str] = field(factory=list)
    subscriptions: list[str] = field(factory=list)
    readers: list[str] = field(factory=list)
    records: int = 0
    written: int = 0
    store: str = ""
    account: int = 0
    generation: int = 0

    def to_bytes(self) -> bytes:
        """The stored form."""
        return json.dumps(asdict(self), separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> "Head":
        """From the stored form; what it does not know is left out. Raises ValueError."""
        try:
            values = json.loads(data)
        except RecursionError as error:
            raise ValueError("the head is nested too deep") from error
        if not isinstance(values, dict):
            raise ValueError("the head is no object")
        known = {name: values[name] for name in FORM if name in values}
        for name, value in known.items():
            if not FORM[name](value):
                raise ValueError(f"{name} is not what it should be")
        try:
            return cls(**known)
        except TypeError as error:
            raise ValueError(str(error)) from error


@frozen(eq=False)
class Contents:
    """A mailbox as its file has it; `own` is a table of `OWN`, `private_headers` the records' own header fields,
    `uidls` unique-ids of POP3 by UID, `account` the owner's row."""

    head: Head
    rows: Rows
    own: NDArray[Any] = field(factory=lambda: np.empty(0, OWN))
    private_headers: dict[int, bytes] = field(factory=dict)
    uidls: dict[int, bytes] = field(factory=dict)
    account: bytes = b""


@frozen(eq=False)
class Salvaged:
    """What is left of a damaged file; `head` is None when both copies of it are lost. `findings` says what is lost, one
    line for each loss; it is empty for a whole file."""

    head: Head | None
    rows: Rows
    own: NDArray[Any]
    private_headers: dict[int, bytes]
    findings: list[str]
    uidls: dict[int, bytes] = field(factory=dict)
    account: bytes = b""


@frozen
class _Section:
    name: str
    start: int
    size: int
    item: int
    block: int

    @property
    def checks(self) -> int:
        """Number of checksums, which stand before the data."""
        return -(-self.size // self.block)


# Writing

def write(path: Path, contents: Contents) -> int:
    """Put the file in its place, whole or not at all, and on disk; its octets.

    Raises StoreError DISK_FULL, UNAVAILABLE, and LIMIT for a mailbox that is too large.
    """
    temporary = temporary_name(path, contents.head.id)
    size = prepare(temporary, contents, sync=True)
    try:
        os.replace(temporary, path)
        sync_folder(path.parent)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise disk_problem(error) from error
    return size


def temporary_name(path: Path, mailbox: int) -> Path:
    """A name beside it that no other thread uses. (No mailbox name has a level that begins with "store.idx".)"""
    return path.with_name(f"{NAME}.{mailbox}.{os.getpid()}.{threading.get_native_id()}")


def prepare(path: Path, contents: Contents, *, sync: bool) -> int:
    """Write the file under that name, and with `sync` its octets to the disk; how many. Raises as `write` does."""
    parts = encode(contents)
    try:
        handle = privatefiles.open_handle(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            for part in parts:
                view = memoryview(part).cast("B")
                while view:
                    view = view[os.write(handle, view):]
            if sync:
                os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        path.unlink(missing_ok=True)
        raise disk_problem(error) from error
    return sum(memoryview(part).nbytes for part in parts)


def encode(contents: Contents) -> list[bytes | memoryview]:
    """The octets of the file, in pieces. Raises StoreError LIMIT."""
    head = evolve(contents.head, account=zlib.crc32(contents.account)).to_bytes()
    if len(head) > HEAD_LIMIT:
        raise StoreError(Problem.LIMIT, detail=f"{contents.head.name} has too much about it for {NAME}")
    parts = [("head", memoryview(head), 1, max(len(head), 1)), ("rows", _octets(contents.rows), ROW.itemsize, BLOCK)]
    if contents.private_headers:
        parts.append(("heads", _octets(_in_pieces(contents.private_headers)), HEADS.itemsize, HEADS.itemsize * 64))
    if len(contents.own):
        parts.append(("own", _octets(contents.own), OWN.itemsize, OWN.itemsize * 8))
    if contents.uidls:
        parts.append(("uidls", _octets(uidl_items(contents.uidls)), UIDLS.itemsize, UIDLS.itemsize * 64))
    if contents.account:
        parts.append(("account", memoryview(contents.account), 1, len(contents.account)))
    parts.append(parts[0])
    pieces: list[bytes | memoryview] = [b""]
    entries, at = [], DIRECTORY
    for name, data, item, block in parts:
        checks = np.fromiter((zlib.crc32(data[start:start + block]) for start in range(0, len(data), block)), "<u4",
                             -(-len(data) // block)).tobytes()
        gap = bytes(-(at + len(checks)) % 8)
        at += len(gap) + len(checks)
        entries.append(_ENTRY.pack(name.encode(), at, len(data), item, block))
        pieces += [gap, checks, data]
        at += len(data)
    if at + DIRECTORY > FILE_LIMIT:
        raise StoreError(Problem.LIMIT, detail=f"{contents.head.name} has too many messages for {NAME}")
    directory = (_START.pack(MAGIC, VERSION, len(entries)) + b"".join(entries)).ljust(496, b"\0")
    directory += _END.pack(at + DIRECTORY, 0)
    directory += _CHECK.pack(zlib.crc32(directory))
    pieces[0] = directory
    pieces.append(directory)
    return pieces


def _in_pieces(private_headers: dict[int, bytes]) -> NDArray[Any]:
    return np.array([(number, len(octets), octets[at:at + _FIELD_OCTETS])
                     for number, octets in sorted(private_headers.items())
                     for at in range(0, len(octets), _FIELD_OCTETS)], HEADS)


def uidl_items(uidls: dict[int, bytes]) -> NDArray[Any]:
    """Unique-ids by UID as a table of `UIDLS`."""
    return np.array([(uid, len(uidl), uidl) for uid, uidl in sorted(uidls.items())], UIDLS)


def uidls_of(items: NDArray[Any]) -> dict[int, bytes]:
    """Those of such a table."""
    return {uid: uidl[:octets] for uid, octets, uidl in items.tolist() if uid and octets}


def _octets(table: NDArray[Any]) -> memoryview:
    return np.ascontiguousarray(table).view(np.uint8).data.cast("B") if len(table) else memoryview(b"")


# Reading

def read(path: Path) -> Contents:
    """The mailbox of that file. Raises StoreError CORRUPT when any of it is damaged, UNAVAILABLE."""
    left = read_what_is_left(path)
    if left.findings or left.head is None:
        raise StoreError(Problem.CORRUPT, detail=f"{path}: {left.findings[0]}")
    return Contents(left.head, left.rows, left.own, left.private_headers, left.uidls, left.account)


def read_account(path: Path) -> bytes:
    """The section "account" alone; empty where there is none, or it is not whole."""
    try:
        with privatefiles.open_file(path, "rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            for at in (0, max(0, size - DIRECTORY)):
                sections = _directory(os.pread(file.fileno(), DIRECTORY, at), size)
                section = next((item for item in sections or () if item.name == "account"), None)
                if section is not None and section.size <= ACCOUNT_LIMIT:
                    first = section.start - 4 * section.checks
                    data = os.pread(file.fileno(), section.start + section.size - first, first)
                    return data[4 * section.checks:] if _is_whole(_Octets(data, first), section) else b""
    except OSError:
        pass
    return b""


def read_head(path: Path) -> Head:
    """The head alone, whatever became of the rest. Raises StoreError CORRUPT, UNAVAILABLE (also when it is missing)."""
    try:
        with privatefiles.open_file(path, "rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            start = file.read(4096)
            section = next((item for item in _directory(start[:DIRECTORY], size) or [] if item.name == "head"), None)
            if section is not None and section.size <= HEAD_LIMIT:
                first = section.start - 4 * section.checks
                data = start[first:section.start + section.size]
                if section.start + section.size > len(start):
                    data = os.pread(file.fileno(), section.start + section.size - first, first)
                head = _head(_Octets(data, first), section)
                if head is not None:
                    return head
    except OSError as error:
        raise disk_problem(error) from error
    left = read_what_is_left(path)
    if left.head is None:
        raise StoreError(Problem.CORRUPT, detail=f"{path}: {left.findings[0]}")
    return left.head


def read_what_is_left(path: Path) -> Salvaged:
    """All that can still be read of the file, and what cannot. Raises StoreError UNAVAILABLE when there is no file, or
    the disk cannot read it."""
    try:
        with privatefiles.open_file(path, "rb", buffering=0) as file:
            return decode_what_is_left(file)
    except OSError as error:
        raise disk_problem(error) from error


def decode_what_is_left(file: BinaryIO) -> Salvaged:
    """What `read_what_is_left` finds, in an open file that is at its beginning. Raises OSError."""
    size = os.fstat(file.fileno()).st_size
    ends = os.pread(file.fileno(), DIRECTORY, 0), os.pread(file.fileno(), DIRECTORY, max(0, size - DIRECTORY))
    if size > FILE_LIMIT or all(_directory(end, size) is None for end in ends):
        return decode(b"".join(ends))       # as good as nothing, however large it is
    data = file.read(size)
    while len(data) < size and (more := file.read(size - len(data))):
        data += more
    return decode(data)


def decode(data: bytes) -> Salvaged:
    """All that can still be read of the octets of a file, and what cannot. Raises nothing."""
    findings: list[str] = []
    directories = [_directory(data[:DIRECTORY], len(data)), _directory(data[-DIRECTORY:], len(data))]
    found = next((sections for sections in directories if sections is not None), None)
    empty = Salvaged(None, np.empty(0, ROW), np.empty(0, OWN), {}, findings)
    if found is None:
        version = _version(data)
        findings.append("it is not a store.idx" if version is None else "its directory is damaged"
                        if version == VERSION else f"it has version {version}, which is not known here")
        return empty
    if None in directories:
        findings.append("one of its two directories is damaged")
    octets = _Octets(data, 0)
    heads = _heads(octets, [section for section in found if section.name == "head"])
    head = next((head for head in heads if head is not None), None)
    if None in heads or len(heads) < 2:
        findings.append("one of the two copies of its head is damaged" if head else "its head is lost")
    rows = _table(octets, found, "rows", ROW, findings)
    own = _table(octets, found, "own", OWN, findings)
    header_fields = _joined(_table(octets, found, "heads", HEADS, findings))
    uidls = uidls_of(_table(octets, found, "uidls", UIDLS, findings))
    account = _table(octets, found, "account", np.dtype("u1"), findings).tobytes()
    if head is not None and zlib.crc32(account) != head.account:
        findings.append("its account is not the one that its head tells")
        account = b""
    if (np.diff(rows["uid"].astype(np.int64)) <= 0).any() or len(rows) and not rows["uid"][0]:
        findings.append("its UIDs do not ascend")
        _, firsts = np.unique(rows["uid"], return_index=True)
        rows = rows[firsts]
        rows = rows[rows["uid"] > 0]
    if head is not None and not findings and len(rows) != head.records:
        findings.append(f"it has {len(rows)} records instead of {head.records}")
    return Salvaged(head, rows, own, header_fields, findings, uidls, account)


def _joined(pieces: NDArray[Any]) -> dict[int, bytes]:
    """The header fields of which no piece is lost."""
    found: dict[int, list[bytes]] = {}
    sizes = dict(zip(pieces["number"].tolist(), pieces["octets"].tolist(), strict=True))
    for number, part in zip(pieces["number"].tolist(), pieces["piece"].tolist(), strict=True):
        found.setdefault(number, []).append(part)
    return {number: b"".join(parts)[:sizes[number]] for number, parts in found.items()
            if len(parts) == -(-sizes[number] // _FIELD_OCTETS)}


@frozen
class _Octets:
    """Octets of a file from `offset` on."""

    data: bytes
    offset: int

    def between(self, start: int, end: int) -> memoryview:
        """As much as there is."""
        return memoryview(self.data)[max(0, start - self.offset):max(0, end - self.offset)]


def _version(data: bytes) -> int | None:
    """The version that the first directory, or else the last, claims to be of; None when neither is one."""
    for start in (data[:DIRECTORY], data[-DIRECTORY:]):
        if len(start) >= _START.size and start.startswith(MAGIC):
            return int(_START.unpack_from(start)[1])
    return None


def _directory(data: bytes, size: int) -> list[_Section] | None:
    """The sections of a directory; None when it cannot be used. `size` is the file's, which may have been cut short."""
    if len(data) != DIRECTORY or _CHECK.unpack(data[-4:])[0] != zlib.crc32(data[:-4]):
        return None
    magic, version, count = _START.unpack_from(data)
    if magic != MAGIC or version != VERSION or count > SECTIONS:
        return None
    sections = []
    for number in range(count):
        name, start, length, item, block = _ENTRY.unpack_from(data, _START.size + number * _ENTRY.size)
        section = _Section(name.rstrip(b"\0").decode("latin-1"), start, length, item, block or 1)
        if not item or block < min(length, SMALLEST) or not block or start > FILE_LIMIT or length > FILE_LIMIT \
                or start < 4 * section.checks:
            return None
        sections.append(section)
    return sections


def _blocks(octets: _Octets, section: _Section) -> Iterator[tuple[int, memoryview | None]]:
    """The blocks of a section that the file reaches to: offset in the section; octets, or None for a damaged one."""
    table = octets.between(section.start - 4 * section.checks, section.start)
    checks = np.frombuffer(table[:len(table) // 4 * 4], "<u4").tolist()
    data = octets.between(section.start, section.start + section.size)
    for at, check in zip(range(0, len(data), section.block), checks, strict=False):
        block = data[at:min(at + section.block, section.size)]
        yield at, block if zlib.crc32(block) == check else None


def _head(octets: _Octets, section: _Section) -> Head | None:
    if section.size > HEAD_LIMIT:
        return None
    data = b"".join(block for _, block in _blocks(octets, section) if block is not None)
    if len(data) != section.size:           # a block is damaged or missing
        return None
    try:
        return Head.from_bytes(data)
    except ValueError:
        return None


def _heads(octets: _Octets, sections: list[_Section]) -> list[Head | None]:
    """Each copy of the head; copies that are the same octets are taken apart once."""
    found: list[Head | None] = []
    first = b""
    for section in sections:
        start = section.start - 4 * section.checks
        there = bytes(octets.between(start, section.start + section.size))
        found.append(found[0] if found and there == first and section.size == sections[0].size
                     else _head(octets, section))
        first = first or there
    return found


def _table(octets: _Octets, sections: list[_Section], name: str, form: "np.dtype[Any]", findings: list[str]
           ) -> NDArray[Any]:
    """The items of a section in its good blocks; it need not be there."""
    section = next((section for section in sections if section.name == name), None)
    if section is None or not section.size:
        return np.empty(0, form)
    if section.item != form.itemsize or section.size % form.itemsize or section.block % form.itemsize:
        findings.append(f"its section {name} is not what it should be")
        return np.empty(0, form)
    if _is_whole(octets, section):      # nearly every one: no copy, since what was read has it in one piece
        return np.frombuffer(octets.between(section.start, section.start + section.size), form)
    good, lost, reached = [], 0, 0
    for at, block in _blocks(octets, section):
        reached = min(at + section.block, section.size)
        if block is None:
            lost += (reached - at) // form.itemsize
        else:
            good.append(block)
    lost += (section.size - reached) // form.itemsize
    if lost:
        findings.append(f"its section {name} has lost {lost} of {section.size // form.itemsize} items")
    return np.frombuffer(b"".join(good), form)


def _is_whole(octets: _Octets, section: _Section) -> bool:
    """Whether all of a section is there, and is what it was."""
    data, block, check = octets.between(section.start, section.start + section.size), section.block, zlib.crc32
    table = octets.between(section.start - 4 * section.checks, section.start)
    return len(data) == section.size and len(table) == 4 * section.checks and table.tobytes() == np.fromiter(
        (check(data[at:at + block]) for at in range(0, len(data), block)), "<u4", section.checks).tobytes()
