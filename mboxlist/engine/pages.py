"""Whether the pages of tables are what Berkeley DB has written, by what each page says of itself. For closed tables."""

import os
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mboxlist import privatefiles
from mboxlist.engine.damagemarks import file_id, known_tables

_READ_OCTETS = 1 << 20          # of a table are looked at at a time
_CHECKED = 1                    # a flag in a table's first page: every page has a checksum,
_CHECK = slice(28, 32)          # which is here


def look(folder: Path) -> str:
    """What is wrong with the tables that must be there, after recovery and before anybody opens them; "" if nothing."""
    for name, identity in known_tables(folder).items():
        wrong = "is not the table that was there" if file_id(folder / name) != identity else bad_pages(folder / name)
        if wrong:
            return f"{name}: {wrong}"
    return ""


def bad_pages(table: Path) -> str:
    """What is wrong with the pages of a table; "" if nothing. It looks at their numbers, which each page has in it, and
    at their checksums, if they have any.

    For Berkeley DB a page of zeros is an empty one, although pages have checksums. For a table that is closed.
    """
    with privatefiles.open_file(table, "rb") as file:
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
        at, pages = 0, max(1, _READ_OCTETS // page)
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


def have_checksums(table: Path) -> bool:
    """Whether every page of the table has one."""
    with privatefiles.open_file(table, "rb") as file:
        return bool(file.read(512)[26] & _CHECKED)


def _field(pages: NDArray[np.uint8], where: slice) -> NDArray[Any]:
    """A number of 4 octets of each page."""
    return np.ascontiguousarray(pages[:, where]).view("<u4")[:, 0]


@cache
def _weights(page: int) -> NDArray[np.uint32]:
    """The weight of each octet of a page in its checksum: powers of 33, and 0 for the checksum itself."""
    powers = np.cumprod(np.concatenate([[1], np.full(page - 1, 33)]).astype(np.uint32), dtype=np.uint32)[::-1].copy()
    powers[_CHECK] = 0
    return powers


def _hashes(pages: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """The checksum of each page: a sum modulo 2^32. This was found out by comparison with many pages."""
    found: NDArray[np.uint32] = np.einsum("ij,j->i", pages.astype(np.uint32), _weights(pages.shape[1]))
    return found
