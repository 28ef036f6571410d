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
