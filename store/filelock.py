"""One process at a time, by the lock of a file or folder (flock(2)) or of octets of a file (fcntl(2)), which a killed
process cannot leave behind; and folders that end with the process that works in them, by the same lock."""

import contextlib
import fcntl
import os
import shutil
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

from mboxlist import privatefiles
from mboxlist.heldlocks import take
from store.errors import Problem, StoreError, disk_problem

SCRATCH = ".scratch"            # a folder that has those of all processes
# What earlier versions called theirs, which lay beside the store's own folders.
_FLOCK = struct.Struct("@hhqqi4x")      # struct flock of Linux on 64 bits
_FORMER = (".plan-*", ".recover-*", "[0-9]*.scratch")


@contextlib.contextmanager
def exclusive(path: Path, problem: Problem, otherwise: str, *, folder: bool = False) -> Iterator[None]:
    """No other process is in a block with that file, which is made if there is none, or with that folder; a partition's
    may be reached by a link, since it is on another volume.

    Raises StoreError with that problem and that text when one is, without waiting for it; OSError.
    """
    handle = privatefiles.open_folder(path) if folder else privatefiles.open_handle(path, os.O_RDWR | os.O_CREAT)
    try:
        if not take(handle):
            raise StoreError(problem, otherwise)
        yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def in_turn(path: Path) -> Iterator[None]:
    """`exclusive`, after the others: for what is short. Raises OSError."""
    handle = privatefiles.open_handle(path, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def in_turn_for(path: Path, what: str) -> Iterator[None]:
    """`in_turn` among those that name the same, or what happens to have the same checksum. Raises StoreError."""
    try:
        handle = privatefiles.open_handle(path, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise disk_problem(error) from error
    try:
        lock_octet(handle, zlib.crc32(what.encode()), wait=True)
        yield
    finally:
        os.close(handle)


def lock_octet(handle: int, offset: int, *, wait: bool) -> bool:
    """Lock one octet of an open file; without `wait`, False when another has it. The lock belongs to the open file
    (open file description locks), so that it keeps threads apart as well, and ends with it. Raises StoreError."""
    what = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, offset, 1, 0)
    try:
        fcntl.fcntl(handle, fcntl.F_OFD_SETLKW if wait else fcntl.F_OFD_SETLK, what)
    except (BlockingIOError, PermissionError):
        return False
    except OSError as error:
        raise disk_problem(error) from error
    return True


@contextlib.contextmanager
def scratch(parent: Path, what: str) -> Iterator[Path]:
    """A folder to work in, below `parent`, that goes with the block. One that a killed process has left is removed by
    the next process that wants one there, or by `sweep`. Raises OSError."""
    base = parent / SCRATCH
    privatefiles.make_folder(base, exist_ok=True)
    with locked_folder(base):
        _sweep(base)
        folder = privatefiles.new_folder(f"{what}-", base)
        handle = privatefiles.open_handle(folder, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(handle, fcntl.LOCK_EX)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)


@contextlib.contextmanager
def temporary(what: str) -> Iterator[Path]:
    """`scratch` where there is no store: below the system's folder for temporary files, in one of this user's own.
    Raises OSError."""
    with scratch(privatefiles.users_temporary_folder(), what) as folder:
        yield folder


def sweep(parent: Path) -> None:
    """Remove what killed processes have left below `parent`. What cannot be removed stays."""
    base = parent / SCRATCH
    with contextlib.suppress(OSError):
        for pattern in _FORMER:
            for folder in parent.glob(pattern):
                shutil.rmtree(folder, ignore_errors=True)
        if base.is_dir():
            with locked_folder(base):
                _sweep(base)


def _sweep(base: Path) -> None:
    """Those whose process is no more. Raises OSError."""
    for folder in base.iterdir():
        try:
            with locked_folder(folder, wait=False):
                shutil.rmtree(folder, ignore_errors=True)
        except (BlockingIOError, NotADirectoryError):
            continue


@contextlib.contextmanager
def locked_folder(folder: Path, *, wait: bool = True) -> Iterator[None]:
    """No other process is in a block with that folder. Raises BlockingIOError where another is and this one does not
    wait, OSError."""
    handle = privatefiles.open_handle(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)
