"""What is asked of a disk by all that write to one."""

import errno
import os
from pathlib import Path


def is_disk_full(error: BaseException) -> bool:
    """Whether the error says that no space is left on the device."""
    code = error.args[0] if error.args else None
    return code in (errno.ENOSPC, errno.EDQUOT)


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


def replace_file(path: Path, content: str) -> None:
    """Have a file with this content, whole and on disk, in the place of what is there. Raises OSError."""
    new = path.with_name(f"{path.name}.new")
    new.write_text(content, encoding="utf-8")
    sync_file(new)
    new.replace(path)
    sync_folder(path.parent)
