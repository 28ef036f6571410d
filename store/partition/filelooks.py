"""Looks at many message files in one go: how long they are, and whether their contents have their digests.

In a mailbox of 100,000, each microsecond for a file is a tenth of a second. So names begin at `messages/` (openat(2)):
the kernel walks three folders instead of ten. And the names of many are made at once.

Both functions look under the names that files have in `messages/`. When a file is not there, or cannot be used, they
say only that. The caller then looks where else it may be, and what is wrong with it.
"""

import contextlib
import hashlib
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mboxlist import privatefiles
from store.partition.messagefiles import MessageFiles
from store.partition.messagereading import MID_OCTETS

READ_OCTETS = 1 << 20       # of a file, at a time
_HEX = np.array([b"%02x" % octet for octet in range(256)])


def sizes(files: MessageFiles, digests: NDArray[np.void]) -> NDArray[np.int64]:
    """The octets of the message files of these digests (V32); -1 where there is none. Raises OSError."""
    found: list[int] = []
    take, stat = found.append, os.stat
    with _opened(files) as folder:
        for name in _names(digests):
            try:
                take(stat(name, dir_fd=folder).st_size)
            except FileNotFoundError:
                take(-1)
    return np.array(found, np.int64)


def read_through(files: MessageFiles, figures: NDArray[Any]) -> NDArray[np.bool_]:
    """Which of these message files (`digest`, `size`, `trace`) have that many octets, and a content with that digest.
    The files are read. Raises OSError."""
    found = np.zeros(len(figures), np.bool_)
    start, close = privatefiles.open_handle, os.close
    with _opened(files) as folder:
        for at, (name, digest, size, trace) in enumerate(zip(_names(figures["digest"]), *(
                figures[field].tolist() for field in ("digest", "size", "trace")), strict=True)):
            try:
                file = start(name, at=folder)
            except OSError:
                continue
            try:
                found[at] = _agrees(file, digest, size, trace)
            except OSError:
                continue
            finally:
                close(file)
    return found


def _names(digests: NDArray[np.void]) -> list[bytes]:
    """The names of these message files, from `messages/` on, as `MessageFiles.path` makes them."""
    digits = _HEX[np.ascontiguousarray(digests).view(np.uint8)].view(np.uint8).reshape(len(digests), 2 * MID_OCTETS)
    slash = np.full((len(digests), 1), ord("/"), np.uint8)
    names: list[bytes] = np.hstack((digits[:, :1], slash, digits[:, 1:3], slash, digits)).view("S69").ravel().tolist()
    return names


def _agrees(file: int, own_digest: bytes, size: int, trace: int) -> bool:
    if size < READ_OCTETS:
        octets = os.read(file, size + 1)        # one more than there should be
        return len(octets) == size and hashlib.blake2b(octets[trace:], digest_size=MID_OCTETS).digest() == own_digest
    digest, at = hashlib.blake2b(digest_size=MID_OCTETS), 0
    while octets := os.read(file, READ_OCTETS):
        digest.update(octets[max(0, trace - at):])
        at += len(octets)
    return at == size and digest.digest() == own_digest


@contextlib.contextmanager
def _opened(files: MessageFiles) -> Iterator[int]:
    """`messages/`, to look into. Raises OSError."""
    handle = privatefiles.open_folder(files.folder)
    try:
        yield handle
    finally:
        os.close(handle)
