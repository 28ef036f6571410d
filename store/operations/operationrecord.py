"""The record of an operation: see the room's text."""

import contextlib
import fcntl
import itertools
import json
import logging
import os
import time
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from attrs import asdict, define, evolve, field, frozen

from mboxlist import privatefiles
from mboxlist.engine.disk import replace_file, sync_folder
from store.errors import Problem, StoreError, disk_problem
from store.filelock import locked_folder
from store.operations import clockrecord

log = logging.getLogger(__name__)

FOLDER = "operations"
ENDED = "ended"
KEPT = 30 * 86400           # seconds for which is told what became of one that was cut off
MOST_KEPT = 200
NAME = "%Y%m%dT%H%M%SZ"
_NEW = ".new"               # ends the name of one that is being written: it has not begun
EVERYTHING = "*"            # in `Operation.holds`: all that operations of the kind can hold
#: Refusals that leave something to be finished: the disk was full, or part of the store could not be had.
HALF_WAY = frozenset((Problem.DISK_FULL, Problem.UNAVAILABLE, Problem.CORRUPT))
_LEFT = "the server does what is left as soon as it can: see onecopy status; or run the command again"
WHAT_IS_LEFT = "what is done stays; run the command again for what is left"
_numbers = itertools.count(1)


@frozen
class Operation:
    """What was begun: its kind and arguments, when (Unix time), by whom. `outcome`: what became of one that was cut
    off, at the time `ended`, or so far; `problem`: why it could not be finished yet.

    `holds`: what no other operation that begins with the same word may hold meanwhile, such as the users into whose
    mailboxes it imports. `again`: the server has had it done again, in a process that has the lock while it lives."""

    id: str
    kind: str
    arguments: dict[str, Any]
    began: float
    who: str
    pid: int
    problem: str = ""
    outcome: str = ""
    ended: float = 0.0
    holds: list[str] = field(factory=list)
    again: bool = False

    def is_rival_of(self, other: "Operation") -> bool:
        """Whether the two must not be done at one time."""
        return self.kind.partition(" ")[0] == other.kind.partition(" ")[0] and bool(
            set(self.holds) & set(other.holds) or (
                self.holds and other.holds and EVERYTHING in (*self.holds, *other.holds)))

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
    locks: list[int] = field(repr=False)        # descriptors that are closed when the lock is given up

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
            self.locks.append(_write(self._path, evolve(
                self.operation, outcome=outcome or self.operation.outcome, problem=problem)))

    def done_again(self) -> list[int]:
        """A process will do it again, which is to inherit these descriptors: it has the lock while it lives.
        Raises OSError."""
        self.locks.append(_write(self._path, evolve(self.operation, again=True)))
        return self.locks


#: Those that this process finishes now, by id: what it does for these is on record as what was cut off.
_finishing: ContextVar[dict[str, Cut] | None] = ContextVar("finishing", default=None)


@define
class Begun:
    """An operation while its block lasts."""

    _stops: bool = False
    _waits: bool = False
    half_way: bool = False          # part of it was refused for now, and is left to the server
    is_undone: bool = False         # what was done before a refusal is put back: nothing is left
    again: str = WHAT_IS_LEFT             # what is said of a part that is not left to the server

    def refused(self, error: BaseException) -> str:
        """A part was refused so: what becomes of it, for people to read; "" for what changes nothing."""
        problem = error.problem if isinstance(error, StoreError) else (
            disk_problem(error).problem if isinstance(error, OSError) else None)
        if self.is_undone or problem is None or isinstance(error, StoreError) and problem not in HALF_WAY:
            return ""
        left = not self._stops or self._waits and problem is Problem.DISK_FULL
        self.half_way = self.half_way or left
        return _LEFT if left else self.again


@contextlib.contextmanager
def begun(root: Path, kind: str, who: str, arguments: dict[str, Any], *, stops: bool = False, waits: bool = False,
          holds: Sequence[str] | None = ()) -> Iterator[Begun]:
    """The operation is on record, on disk, while the block lasts. What ends it half way (no room, Ctrl-C) leaves the
    record, and it is finished later; `stops`: it is whole at any time, and only a kill cuts it off, or a full disk if
    it `waits` for room: of all else the person hears who wanted it. Where another is under way that `holds` the same
    (None: everything) this waits for its end, and says so.

    Raises StoreError DISK_FULL, UNAVAILABLE when it cannot be put on record.
    """
    if _finishing.get() is not None:
        yield Begun()
        return
    began, this = time.time(), Begun(stops, waits)
    operation = Operation(f"{time.strftime(NAME, time.gmtime(began))}-{os.getpid()}-{next(_numbers)}", kind, arguments,
                          began, who, os.getpid(), holds=[EVERYTHING] if holds is None else list(holds))
    path = root / FOLDER / operation.id
    try:
        handle = _in_turn(path, operation)
    except OSError as error:
        raise disk_problem(error) from error
    try:
        yield this
    except BaseException as error:
        this.half_way = this.half_way or not stops and isinstance(error, KeyboardInterrupt)
        error.add_note(this.refused(error))
        raise
    finally:
        try:
            if not this.half_way:
                with contextlib.suppress(OSError):      # it is done: whoever finds the record sees that
                    _remove(path)
        finally:
            os.close(handle)


def _in_turn(path: Path, operation: Operation) -> int:
    """A descriptor that has the lock of its record, which is written when no rival is under way. A killed process
    leaves no lock, so that nobody waits for one. Raises OSError."""
    folder = path.parent
    if not folder.is_dir():
        privatefiles.make_folder(folder, exist_ok=True)
        sync_folder(folder.parent)
    while True:
        with locked_folder(folder), _opened(folder, fcntl.LOCK_SH) as found:
            rival = next((each for each in found if each.living and each.operation.is_rival_of(operation)), None)
            if rival is None:
                return _write(path, operation)
            handle = os.dup(rival.handle)
        try:
            _say_whose_end(rival.operation)
            fcntl.flock(handle, fcntl.LOCK_SH)
        finally:
            os.close(handle)


def _say_whose_end(rival: Operation) -> None:
    log.warning("onecopy: %s: this waits for the end of %s (see onecopy status)", rival,
                "what the server does, which was cut off" if rival.again else
                f"{rival.who} ({rival.pid}), begun {time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(rival.began))} UTC")


@frozen
class _Record:
    """One of the folder: `living`, while a process has its lock; the lock of another is this process's now."""

    operation: Operation
    handle: int
    living: bool


@contextlib.contextmanager
def _opened(folder: Path, how: int) -> Iterator[list[_Record]]:
    """All that there are. Raises OSError."""
    found = list[_Record]()
    with contextlib.ExitStack() as stack:
        for path in _paths(folder):
            with contextlib.suppress(FileNotFoundError):
                handle = privatefiles.open_handle(path)
                stack.callback(os.close, handle)
                living = not _try_to_lock(handle, how)      # also of a file that is written anew now
                there = living or os.path.samestat(os.fstat(handle), path.stat())
                if there and (operation := _read(path)) is not None:
                    found.append(_Record(operation, handle, living))
        yield found


def _write(path: Path, operation: Operation) -> int:
    """A descriptor that has the lock of the file, which takes the place of one that has the name. Raises OSError."""
    folder = path.parent
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
    over = 0.0 if clockrecord.holds_back(ended.parents[1]) else time.time() - KEPT
    for path in [*found[:-MOST_KEPT], *(path for path in found[-MOST_KEPT:] if path.stat().st_mtime < over)]:
        path.unlink(missing_ok=True)


def under_way(root: Path) -> tuple[list[Operation], list[Operation]]:
    """Those that are being done now, and those that were cut off and wait."""
    with _opened(root / FOLDER, fcntl.LOCK_SH) as found:
        return ([each.operation for each in found if each.living],
                [each.operation for each in found if not each.living])


def rivals_cut_off(root: Path, kind: str, holds: Sequence[str]) -> list[Operation]:
    """Those that were cut off, and must not be finished behind one of that kind that begins now. Raises OSError."""
    new = Operation("", kind, {}, 0.0, "", 0, holds=list(holds))
    return [each for each in under_way(root)[1] if each.is_rival_of(new)] if _paths(root / FOLDER) else []


def forget(root: Path, cut: Operation) -> None:
    """What that one did was done away with by a later one: nobody finishes it any more."""
    with contextlib.suppress(OSError), locked_folder(root / FOLDER):
        _remove(root / FOLDER / cut.id)


def is_waiting(root: Path) -> bool:
    """Whether any was cut off and waits."""
    return bool(_paths(root / FOLDER)) and bool(under_way(root)[1])


def ended(root: Path) -> list[Operation]:
    """Those that were cut off and are finished or undone, the last first."""
    found = [_read(path) for path in _paths(root / FOLDER / ENDED)]
    return sorted((each for each in found if each is not None), key=lambda each: each.ended, reverse=True)


@contextlib.contextmanager
def cut_off(root: Path, only: str | None = None) -> Iterator[list[Cut]]:
    """Those that were cut off, or only the one of that id, in the order in which they began; nobody else has them
    during the block, and what the block begins is not on record beside them. One whose rival is under way waits for
    another time."""
    folder = root / FOLDER
    if not folder.is_dir():
        yield []
        return
    with locked_folder(folder), _opened(folder, fcntl.LOCK_EX) as found:
        rivals = [each.operation for each in found if each.living]
        mine = {each.operation.id: Cut(root, each.operation, folder / each.operation.id, [os.dup(each.handle)])
                for each in found if not each.living and only in (None, each.operation.id)
                and not any(map(each.operation.is_rival_of, rivals))}
    before = _finishing.set(mine)
    try:
        yield sorted(mine.values(), key=lambda each: each.operation.began)
    finally:
        _finishing.reset(before)
        for each in mine.values():
            for handle in each.locks:
                os.close(handle)


def taken(operation: Operation) -> Cut:
    """The one that this process finishes now."""
    return (_finishing.get() or {})[operation.id]


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
