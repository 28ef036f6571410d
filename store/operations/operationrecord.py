"""The record of an operation: see the room's text."""

import contextlib
import fcntl
import itertools
import json
import os
import time
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from attrs import asdict, evolve, field, frozen

from mboxlist import privatefiles
from mboxlist.engine.disk import replace_file, sync_folder
from store.errors import Problem, StoreError, disk_problem

FOLDER = "operations"
ENDED = "ended"
KEPT = 30 * 86400           # seconds for which is told what became of one that was cut off
MOST_KEPT = 200
NAME = "%Y%m%dT%H%M%SZ"
_NEW = ".new"               # ends the name of one that is being written: it has not begun
#: Refusals that leave something to be finished: the disk was full, or part of the store could not be had.
_HALF_WAY = (Problem.DISK_FULL, Problem.UNAVAILABLE, Problem.CORRUPT)
_numbers = itertools.count(1)
_finishing = ContextVar("finishing", default=False)     # what is done now is on record as what was cut off


@frozen
class Operation:
    """What was begun: its kind and arguments, when (Unix time), by whom. `outcome`: what became of one that was cut
    off, at the time `ended`, or so far; `problem`: why it could not be finished yet."""

    id: str
    kind: str
    arguments: dict[str, Any]
    began: float
    who: str
    pid: int
    problem: str = ""
    outcome: str = ""
    ended: float = 0.0

    def __str__(self) -> str:
        words = (f"{name}={','.join(map(str, value)) if isinstance(value, list) else value}"
                 for name, value in self.arguments.items() if value not in (None, False, [], ""))
        return " ".join((self.kind, *words))

    @classmethod
    def from_bytes(cls, octets: bytes) -> "Operation":
        """From the stored form. Raises ValueError."""
        try:
            return cls(**json.loads(octets))
        except TypeError as error:
            raise ValueError(str(error)) from error

    def to_bytes(self) -> bytes:
        """The stored form."""
        return json.dumps(asdict(self)).encode() + b"\n"


@frozen
class Cut:
    """One that was cut off, whose lock this process has now: nobody else finishes it."""

    root: Path
    operation: Operation
    _path: Path = field(repr=False)
    _locks: list[int] = field(repr=False)       # descriptors that are closed when the lock is given up

    def end(self, outcome: str) -> None:
        """It is finished, or undone: say what was done; the record goes. Raises OSError."""
        ended = self.root / FOLDER / ENDED
        privatefiles.make_folder(ended, exist_ok=True)
        replace_file(ended / self.operation.id, evolve(
            self.operation, problem="", outcome=outcome, ended=time.time()).to_bytes(), _NEW)
        _remove(self._path)
        _forget(ended)

    def so_far(self, outcome: str = "", problem: str = "") -> None:
        """It is not finished yet: say what has been done, or what keeps it from being finished. Raises OSError."""
        if outcome or problem != self.operation.problem:
            self._locks.append(_write(self._path, evolve(
                self.operation, outcome=outcome or self.operation.outcome, problem=problem)))


@contextlib.contextmanager
def begun(root: Path, kind: str, who: str, arguments: dict[str, Any], *, stops: bool = False) -> Iterator[None]:
    """The operation is on record, on disk, while the block lasts. What ends it half way (no room, Ctrl-C) leaves the
    record, and it is finished later; `stops`: it is whole at any time, and only a kill cuts it off: of all else the
    person hears who wanted it.

    Raises StoreError DISK_FULL, UNAVAILABLE when it cannot be put on record.
    """
    if _finishing.get():
        yield
        return
    began = time.time()
    operation = Operation(f"{time.strftime(NAME, time.gmtime(began))}-{os.getpid()}-{next(_numbers)}", kind, arguments,
                          began, who, os.getpid())
    path = root / FOLDER / operation.id
    try:
        handle = _write(path, operation)
    except OSError as error:
        raise disk_problem(error) from error
    leave = False
    try:
        yield
    except BaseException as error:
        leave = not stops and (error.problem in _HALF_WAY if isinstance(error, StoreError) else
                               isinstance(error, OSError | KeyboardInterrupt))
        raise
    finally:
        if not leave:
            with contextlib.suppress(OSError):      # it is done: whoever finds the record sees that
                _remove(path)
        os.close(handle)


def _write(path: Path, operation: Operation) -> int:
    """A descriptor that has the lock of the file, which takes the place of one that has the name. Raises OSError."""
    folder = path.parent
    if not folder.is_dir():
        privatefiles.make_folder(folder, exist_ok=True)
        sync_folder(folder.parent)
    hidden = path.with_name(path.name + _NEW)
    hidden.unlink(missing_ok=True)              # left by one that was killed here
    handle = privatefiles.open_handle(hidden, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)          # before it has its name
        os.write(handle, operation.to_bytes())
        os.fsync(handle)
        hidden.rename(path)
        sync_folder(folder)
    except BaseException:
        hidden.unlink(missing_ok=True)
        os.close(handle)
        raise
    return handle


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)
    sync_folder(path.parent)


def _forget(ended: Path) -> None:
    found = sorted(path for path in ended.iterdir() if not path.name.endswith(_NEW))
    over = time.time() - KEPT
    for path in [*found[:-MOST_KEPT], *(path for path in found[-MOST_KEPT:] if path.stat().st_mtime < over)]:
        path.unlink(missing_ok=True)


def under_way(root: Path) -> tuple[list[Operation], list[Operation]]:
    """Those that are being done now, and those that were cut off and wait."""
    living, cut = list[Operation](), list[Operation]()
    for path in _paths(root / FOLDER):
        with contextlib.suppress(FileNotFoundError):
            handle = privatefiles.open_handle(path)
            try:
                operation = _read(path)
                if operation is not None:
                    (cut if _try_to_lock(handle, fcntl.LOCK_SH) else living).append(operation)
            finally:
                os.close(handle)
    return living, cut


def ended(root: Path) -> list[Operation]:
    """Those that were cut off and are finished or undone, the last first."""
    found = [_read(path) for path in _paths(root / FOLDER / ENDED)]
    return sorted((each for each in found if each is not None), key=lambda each: each.ended, reverse=True)


@contextlib.contextmanager
def cut_off(root: Path, only: str | None = None) -> Iterator[list[Cut]]:
    """Those that were cut off, or only the one of that id, in the order in which they began; nobody else has them
    during the block, and what the block begins is not on record beside them."""
    handles, found = list[int](), list[Cut]()
    before = _finishing.set(True)
    try:
        for path in _paths(root / FOLDER):
            if only not in (None, path.name):
                continue
            with contextlib.suppress(FileNotFoundError):
                handle = privatefiles.open_handle(path)
                handles.append(handle)
                if _try_to_lock(handle, fcntl.LOCK_EX) and os.path.samestat(os.fstat(handle), path.stat()) and (
                        operation := _read(path)) is not None:
                    found.append(Cut(root, operation, path, handles))
        yield sorted(found, key=lambda each: each.operation.began)
    finally:
        _finishing.reset(before)
        for handle in handles:
            os.close(handle)


def _paths(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if path.is_file() and not path.name.endswith(_NEW))


def _read(path: Path) -> Operation | None:
    """None if there is no such record any more. One that cannot be read is of a kind that nobody knows."""
    try:
        return Operation.from_bytes(privatefiles.read(path))
    except FileNotFoundError:
        return None
    except ValueError:
        return Operation(path.name, "unreadable", {}, path.stat().st_mtime, "", 0)


def _try_to_lock(handle: int, how: int) -> bool:
    try:
        fcntl.flock(handle, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
