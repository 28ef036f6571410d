"""What everything that writes to a disk needs: errors, and syncs."""

import errno
import os
from pathlib import Path

from mboxlist import privatefiles


def is_disk_full(error: BaseException) -> bool:
    """Whether the error says that no space is left on the device."""
    code = error.args[0] if error.args else None
    return code in (errno.ENOSPC, errno.EDQUOT)


#: The disk fails, its server does not answer, or there is no descriptor or memory left.
_UNANSWERED = frozenset({errno.EIO, errno.ENXIO, errno.ENODEV, errno.ESTALE, errno.ETIMEDOUT, errno.EMFILE,
                         errno.ENFILE, errno.ENOMEM})


def is_unanswered(error: OSError) -> bool:
    """Whether the error says nothing about the file: neither that it is there, nor that it is missing or damaged. A
    caller that took it for missing would act on something that may not be so a moment later."""
    return error.errno in _UNANSWERED


def replace_file(path: Path, octets: bytes, suffix: str = ".new") -> None:
    """Write a file, whole or not at all, and on disk; until then its name ends in `suffix`. Raises OSError."""
    with privatefiles.replacing(path, suffix) as file:
        file.write(octets)
    sync_folder(path.parent)


class SyncFailed(OSError):
    """A sync was tried and has failed: nobody knows what is on disk. The next sync does not report that, so it must not
    be believed (fsync(2)). Any other error came before the sync: then one can be tried again."""


def sync(handle: int) -> None:
    """Return when the open file is on disk. Raises SyncFailed."""
    try:
        os.fsync(handle)
    except OSError as error:
        raise SyncFailed(error.errno, error.strerror) from error


def sync_folder(folder: Path) -> None:
    """Return when the names in `folder` are on disk. Raises OSError, SyncFailed."""
    handle = privatefiles.open_folder(folder)
    try:
        sync(handle)
    finally:
        os.close(handle)


def sync_file(path: Path) -> None:
    """Return when the content of a file is on disk. Raises OSError."""
    handle = privatefiles.open_handle(path)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
