"""Reading `store.idx`, whole or what is left of it: the format is that of `idxfile`."""

import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from mboxlist import privatefiles
from mboxlist.engine.disk import is_unanswered
from store.errors import Problem, StoreError, disk_problem
from store.tables.index import ROW, Rows
from store.userarea.idxfile import (
    ACCOUNT_LIMIT,
    CHECK,
    DIRECTORY,
    ENTRY,
    FIELD_OCTETS,
    FILE_LIMIT,
    HEAD_LIMIT,
    HEADS,
    MAGIC,
    OWN,
    SECTIONS,
    SMALLEST,
    START,
    UIDLS,
    VERSION,
    Contents,
    Head,
    Section,
    uidls_of,
)


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


def read(path: Path) -> Contents:
    """The mailbox of that file. Raises StoreError CORRUPT when any of it is damaged, UNAVAILABLE."""
    left = read_what_is_left(path)
    if left.findings or left.head is None:
        raise StoreError(Problem.CORRUPT, detail=f"{path}: {left.findings[0]}")
    return Contents(left.head, left.rows, left.own, left.private_headers, left.uidls, left.account)


def read_account(path: Path) -> bytes:
    """The section "account" alone; empty where there is none, or it is not whole. Raises StoreError UNAVAILABLE when
    the disk does not say: it would be left out of the next file."""
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
    except OSError as error:
        if is_unanswered(error):
            raise disk_problem(error) from error
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
            if len(parts) == -(-sizes[number] // FIELD_OCTETS)}


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
        if len(start) >= START.size and start.startswith(MAGIC):
            return int(START.unpack_from(start)[1])
    return None


def _directory(data: bytes, size: int) -> list[Section] | None:
    """The sections of a directory; None when it cannot be used. `size` is the file's, which may have been cut short."""
    if len(data) != DIRECTORY or CHECK.unpack(data[-4:])[0] != zlib.crc32(data[:-4]):
        return None
    magic, version, count = START.unpack_from(data)
    if magic != MAGIC or version != VERSION or count > SECTIONS:
        return None
    sections = []
    for number in range(count):
        name, start, length, item, block = ENTRY.unpack_from(data, START.size + number * ENTRY.size)
        section = Section(name.rstrip(b"\0").decode("latin-1"), start, length, item, block or 1)
        if not item or block < min(length, SMALLEST) or not block or start > FILE_LIMIT or length > FILE_LIMIT \
                or start < 4 * section.checks:
            return None
        sections.append(section)
    return sections


def _blocks(octets: _Octets, section: Section) -> Iterator[tuple[int, memoryview | None]]:
    """The blocks of a section that the file reaches to: offset in the section; octets, or None for a damaged one."""
    table = octets.between(section.start - 4 * section.checks, section.start)
    checks = np.frombuffer(table[:len(table) // 4 * 4], "<u4").tolist()
    data = octets.between(section.start, section.start + section.size)
    for at, check in zip(range(0, len(data), section.block), checks, strict=False):
        block = data[at:min(at + section.block, section.size)]
        yield at, block if zlib.crc32(block) == check else None


def _head(octets: _Octets, section: Section) -> Head | None:
    if section.size > HEAD_LIMIT:
        return None
    data = b"".join(block for _, block in _blocks(octets, section) if block is not None)
    if len(data) != section.size:           # a block is damaged or missing
        return None
    try:
        return Head.from_bytes(data)
    except ValueError:
        return None


def _heads(octets: _Octets, sections: list[Section]) -> list[Head | None]:
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


def _table(octets: _Octets, sections: list[Section], name: str, form: "np.dtype[Any]", findings: list[str]
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


def _is_whole(octets: _Octets, section: Section) -> bool:
    """Whether all of a section is there, and is what it was."""
    data, block, check = octets.between(section.start, section.start + section.size), section.block, zlib.crc32
    table = octets.between(section.start - 4 * section.checks, section.start)
    return len(data) == section.size and len(table) == 4 * section.checks and table.tobytes() == np.fromiter(
        (check(data[at:at + block]) for at in range(0, len(data), block)), "<u4", section.checks).tobytes()
