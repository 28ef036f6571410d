"""Folders with databases of a snapshot that have been recovered and can be read: `<snapshot>.past`, beside it.

The snapshot itself stays as it is. All processes share such a folder. Whoever uses one has the lock of a file in it,
together with the others; the last one to leave takes it away. What killed processes left behind goes when the next
snapshot is made (`sweep`).
"""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from attrs import define

from mboxlist import privatefiles
from store.filelock import in_turn

SUFFIX, GONE, PART, LOCK = ".past", ".gone", ".part", "lock"


@define(eq=False)
class Prepared:
    """A folder that is in use until `release`."""

    path: Path
    _handle: int

    @classmethod
    def of(cls, snapshot: Path) -> "Prepared":
        """That of the snapshot in a folder. For a thread. Raises OSError."""
        path = snapshot.with_name(snapshot.name + SUFFIX)
        while True:
            privatefiles.make_folder(path, exist_ok=True)
            try:
                handle = privatefiles.open_handle(path / LOCK, os.O_RDWR | os.O_CREAT)
            except FileNotFoundError:               # another process has just taken it away
                continue
            fcntl.flock(handle, fcntl.LOCK_SH)
            if _is_there(path / LOCK, handle):
                return cls(path, handle)
            os.close(handle)

    def environment(self, name: str, fill: Callable[[Path], None]) -> Path:
        """The folder of an environment, which `fill` fills if nobody has yet. For a thread. Raises OSError, and what
        `fill` raises."""
        target, flat = self.path / name, name.replace("/", ".")
        with in_turn(self.path / f"{flat}.{LOCK}"):
            if not target.is_dir():
                part = self.path / (flat + PART)
                shutil.rmtree(part, ignore_errors=True)     # of a process that was killed
                privatefiles.make_folder(part)
                try:
                    fill(part)
                except BaseException:
                    shutil.rmtree(part, ignore_errors=True)
                    raise
                privatefiles.make_folder(target.parent, parents=True, exist_ok=True)
                part.rename(target)
        return target

    def release(self) -> None:
        """Leave it. For a thread: the last one out takes it away."""
        _leave(self.path, self._handle)


def sweep(place: Path) -> None:
    """Take away the folders in `place` that nobody uses, as far as that can be done."""
    for path in place.glob("*" + SUFFIX):
        with contextlib.suppress(OSError):
            _leave(path, privatefiles.open_handle(path / LOCK, os.O_RDWR | os.O_CREAT))


def _leave(path: Path, handle: int) -> None:
    """Close the file with the lock; if nobody else has it, and the folder is that of the file, it goes."""
    gone = None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_there(path / LOCK, handle):
            gone = path.with_name(f"{path.name}.{os.getpid()}{GONE}")       # who comes now makes a new one
            path.rename(gone)
    except BlockingIOError:
        pass
    finally:
        os.close(handle)
        if gone is not None:
            shutil.rmtree(gone, ignore_errors=True)


def _is_there(path: Path, handle: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(handle))
    except FileNotFoundError:
        return False
