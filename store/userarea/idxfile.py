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
from pathlib import Path
from typing import Any

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
START = struct.Struct("<8sII")
ENTRY = struct.Struct("<8sQQII")
END = struct.Struct("<QI")
CHECK = struct.Struct("<I")

OWN = np.dtype([("reader", "<u4"), ("chunk", "<u4"), ("own", FLAGS, (CHUNK,))])
HEADS = np.dtype([("number", "<u4"), ("octets", "<u4"), ("piece", "V56")])      # `octets` is those of all its pieces
UIDLS = np.dtype([("uid", "<u4"), ("octets", "<u4"), ("uidl", "V72")])          # `octets`: how many of them it has
FIELD_OCTETS = HEADS["piece"].itemsize


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


@frozen
class Section:
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
        entries.append(ENTRY.pack(name.encode(), at, len(data), item, block))
        pieces += [gap, checks, data]
        at += len(data)
    if at + DIRECTORY > FILE_LIMIT:
        raise StoreError(Problem.LIMIT, detail=f"{contents.head.name} has too many messages for {NAME}")
    directory = (START.pack(MAGIC, VERSION, len(entries)) + b"".join(entries)).ljust(496, b"\0")
    directory += END.pack(at + DIRECTORY, 0)
    directory += CHECK.pack(zlib.crc32(directory))
    pieces[0] = directory
    pieces.append(directory)
    return pieces


def _in_pieces(private_headers: dict[int, bytes]) -> NDArray[Any]:
    return np.array([(number, len(octets), octets[at:at + FIELD_OCTETS])
                     for number, octets in sorted(private_headers.items())
                     for at in range(0, len(octets), FIELD_OCTETS)], HEADS)


def uidl_items(uidls: dict[int, bytes]) -> NDArray[Any]:
    """Unique-ids by UID as a table of `UIDLS`."""
    return np.array([(uid, len(uidl), uidl) for uid, uidl in sorted(uidls.items())], UIDLS)


def uidls_of(items: NDArray[Any]) -> dict[int, bytes]:
    """Those of such a table."""
    return {uid: uidl[:octets] for uid, octets, uidl in items.tolist() if uid and octets}


def _octets(table: NDArray[Any]) -> memoryview:
    return np.ascontiguousarray(table).view(np.uint8).data.cast("B") if len(table) else memoryview(b"")


# Reading
