"""What is asked of a disk by all that write to one."""

import errno
import os
from pathlib import Path


def is_disk_full(error: BaseException) -> bool:
    """Whether the error says that no space is left on the device."""
    code = error.args[0] if error.args else None
    return code in (errno.ENOSPC, errno.EDQUOT)


def replace_file(path: Path, octets: bytes, suffix: str = ".new") -> None:
    """Write a file, whole or not at all, and on disk; `suffix` ends its name until then. Raises OSError."""
    new = path.with_name(path.name + suffix)
    with open(new, "wb", opener=_private) as file:
        file.write(octets)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    sync_folder(path.parent)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def sync_folder(folder: Path) -> None:
    """Return when the names in `folder` are on disk."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_file(path: Path) -> None:
    """Return when the content of a file is on disk. Raises OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
