"""Whether the pages of tables are what Berkeley DB has written, by what each page says of itself. For closed tables."""

import os
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mboxlist.traces import file_id, known_tables

_PIECE = 1 << 20                # octets of a table that are looked at at a time
_CHECKED = 1                    # of the flags in a table's first page: every page has a checksum,
_CHECK = slice(28, 32)          # which is here


def look(folder: Path) -> str:
    """What is wrong with the tables that there must be, after recovery and before anybody opens them; "" if nothing."""
    for name, identity in known_tables(folder).items():
        wrong = "is not the table that was there" if file_id(folder / name) != identity else bad_pages(folder / name)
        if wrong:
            return f"{name}: {wrong}"
    return ""


def bad_pages(table: Path) -> str:
    """What is wrong with the pages of a table by their numbers, which each has in it, and by their checksums, if they
    have any; "" if nothing is.

    A page of zeros passes for an empty one with Berkeley DB, although it has checksums. For a table that is closed.
    """
    with table.open("rb") as file:
        head = file.read(512)
        size = os.fstat(file.fileno()).st_size
        page = int.from_bytes(head[20:24], "little") if len(head) == 512 else 0
        if page not in (512, 1024, 2048, 4096, 8192, 16384, 32768, 65536):
            return "its first page cannot be read"
        checked = bool(head[26] & _CHECKED)
        last = int.from_bytes(head[32:36], "little")
        if size < (last + 1) * page:
            return f"it has been cut short: {size} octets instead of {(last + 1) * page}"
        file.seek(0)
        at, pages = 0, max(1, _PIECE // page)
        while data := file.read(pages * page):
            count = min(len(data) // page, last + 1 - at)
            if count <= 0:
                break
            there = np.frombuffer(data, np.uint8, count * page).reshape(count, page)
            wrong = _field(there, slice(8, 12)) != np.arange(at, at + count, dtype=np.uint32)
            if checked:
                wrong |= (_hashes(there) != _field(there, _CHECK)) & (np.arange(at, at + count) > 0)
            if wrong.any():
                return f"page {at + int(np.flatnonzero(wrong)[0])} is not what it was"
            at += count
    return ""


def _field(pages: NDArray[np.uint8], where: slice) -> NDArray[Any]:
    """A number of 4 octets of each page."""
    return np.ascontiguousarray(pages[:, where]).view("<u4")[:, 0]


@cache
def _weights(page: int) -> NDArray[np.uint32]:
    """What each octet of a page counts in its checksum: powers of 33, and nothing where the checksum itself is."""
    powers = np.cumprod(np.concatenate([[1], np.full(page - 1, 33)]).astype(np.uint32), dtype=np.uint32)[::-1].copy()
    powers[_CHECK] = 0
    return powers


def _hashes(pages: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """The checksum of each page: found out by comparison with many pages, a sum modulo 2^32."""
    found: NDArray[np.uint32] = pages.astype(np.uint32) @ _weights(pages.shape[1])
    return found


# The log

SECTOR = 512
_LONGEST_RECORD = 1 << 20
_HEADER = 12                    # octets before a record's own: where the one before it is, its length, its checksum


def end_of_log(folder: Path) -> tuple[str, bytes]:
    """The newest log file as it is, without the zeros that it may have been made longer with. Recovery only adds to
    it, unless it comes upon something damaged."""
    there = logs(folder)
    return (there[-1].name, there[-1].read_bytes().rstrip(b"\0")) if there else ("", b"")


def cut_at(folder: Path, before: tuple[str, bytes], end: tuple[int, int]) -> int | None:
    """Where the log, which recovery has left with this `end`, is no longer what it was, or ends; None if it goes on."""
    name, then = before
    try:
        now = (folder / name).read_bytes() if name else b""
    except OSError:
        return 0
    if now.startswith(then):
        return None if not name or end >= (int(name[4:]), len(then)) else end[1] if end[0] == int(name[4:]) else 0
    first = next(at for at in range(0, len(then), SECTOR) if now[at:at + SECTOR] != then[at:at + SECTOR])
    return first + next(at for at in range(SECTOR) if now[first + at:first + at + 1] != then[first + at:first + at + 1])


def was_cut(folder: Path, before: tuple[str, bytes], ended: tuple[int, int]) -> bool:
    """Whether recovery has cut the log off at something that was damaged.

    A loss of power may leave the end half written: a write that is missing and reads as zeros, in a record or at its
    end, or a last record that is not whole. That is no damage, since nobody was answered for what is in it.
    """
    differs, then = cut_at(folder, before, ended), before[1]
    if differs is None:
        return False
    if (int(before[0][4:] or 0), differs) < newest(folder):         # so far it had been flushed
        return True
    at = 0
    while True:
        length = int.from_bytes(then[at + 4:at + 8], "little")
        if not _HEADER <= length or at + length > differs:
            break
        at += length
    end = at + length
    if length == 0 or _HEADER <= length < _LONGEST_RECORD and end > len(then):
        return False
    if not _HEADER <= length < _LONGEST_RECORD:
        return True
    if int.from_bytes(then[end:end + 4], "little") != at:       # nothing that is whole comes behind it
        return False
    return not then[at:end].endswith(bytes(16)) and bytes(64) not in then[at:end]
