"""Whether the volumes of a store take writes.

The flag of a mount (statvfs(3)) does not tell it all: since Linux 6.15 an ext4 that has met an error refuses writes
under the option `emergency_ro`, and the mount is not called read-only.
"""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

from mboxlist import privatefiles
from store.errors import in_words

MOUNTS = "/proc/self/mountinfo"     # proc(5)
MOUNTS_OCTETS = 1 << 16             # of it, at a time
LIST = ""                           # among the names of partitions
_REFUSED = (errno.EROFS, errno.EIO)


def folders(root: Path) -> Iterator[Path]:
    """A folder of each volume that the store may be on, whose times mean nothing."""
    yield root / "mboxlist"
    yield from (path / "index" for path in sorted((root / "partitions").glob("[!.]*")))


def is_read_only(root: Path) -> bool:
    """Whether any volume of the store says that it is read-only. Cheap, and writes nothing."""
    devices = set()
    for folder in folders(root):
        try:
            if os.statvfs(folder).f_flag & os.ST_RDONLY:
                return True
            devices.add(folder.stat().st_dev)
        except OSError:
            continue
    return not _emergencies().isdisjoint(f"{os.major(device)}:{os.minor(device)}".encode() for device in devices)


def _emergencies() -> set[bytes]:
    """The devices, by their numbers, whose file systems refuse writes after an error."""
    try:
        lines = _read(MOUNTS).splitlines()
    except OSError:
        return set()
    found = [line.split() for line in lines if b"emergency_ro" in line]
    return {fields[2] for fields in found if b"emergency_ro" in fields[-1].split(b",")}


def _read(path: str) -> bytes:
    """What the kernel writes into such a file. (The built-in open asks four times more.) Raises OSError."""
    handle, octets = privatefiles.open_handle(path), b""
    try:
        while more := os.read(handle, MOUNTS_OCTETS):
            octets += more
    finally:
        os.close(handle)
    return octets


def why_not_writable(root: Path) -> str:
    """Why nothing can be written to a volume of the store, in words; "" when all take writes. Each is written to."""
    return next(iter(unwritable(root).values()), "")


def unwritable(root: Path) -> dict[str, str]:
    """The partitions whose volumes take no writes, and why, in words; LIST stands for the volume with the list. Each
    volume that is there is written to."""
    found = {}
    for folder in folders(root):
        try:
            os.utime(folder)
        except OSError as error:
            if error.errno in _REFUSED:
                found[LIST if folder.parent == root else folder.parent.name] = in_words(error)
    return found
