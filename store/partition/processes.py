"""Which processes have a store open: which is the first (it runs recovery), which is the last, which have died in the
store, and which is the server.

All of this depends on flock(2): a killed process cannot leave such a lock behind. Processes come and go one at a time,
behind a door. A process that is inside holds the lock of a file of its own. The file gets its lock before its name, and
loses its name before its lock: so when a file's lock is free, its process has died inside. Anybody can look at any
time.
"""

import contextlib
import fcntl
import itertools
import os
import stat
import time
from collections.abc import Collection, Iterator
from pathlib import Path

from attrs import frozen

from mboxlist import privatefiles
from mboxlist.heldlocks import is_held, take
from store.errors import Problem, StoreError

WAIT = 20.0         # seconds that a process waits to come in while one that died keeps a store from being used
STEP = 0.02
DOOR = "door.lock"  # in the folder `run`; a process that comes or goes holds its lock
_LONGEST = 100      # octets of what a process calls itself
_numbers = itertools.count()


@frozen
class Inside:
    """A process that has the store open, or had it open when it died. `who` is what it called itself ("onecopy
    deliver")."""

    pid: int
    who: str
    path: Path

    def __str__(self) -> str:
        return f"{self.who or 'a process'} ({self.pid})"


class ProcessRegistry:
    """This process's place in a store. `alone`: no other process was in it when this one came.

    The door stays shut until `uidskip`. While one has died inside and others are still there, nobody comes in:
    processes that are there, or come, may wait for ever for its locks. All must leave first, and the next process
    recovers the store. Raises StoreError UNAVAILABLE when they have not left after `wait` seconds.
    """

    def __init__(self, folder: Path, who: str = "", wait: float = WAIT) -> None:
        self.who = who
        self._root = folder
        self._folder = folder / "inside"
        privatefiles.make_folder(self._folder, parents=True, exist_ok=True)
        self._door = -1
        try:
            self.alone = self._come(time.monotonic() + wait)
            name = f"{os.getpid()}.{next(_numbers)}.{_file_name(who)}"
            hidden = self._folder / f".{name}"
            self._inside = _lock(hidden)
            self._own = hidden.rename(self._folder / name)
        except BaseException:
            self.opened()                           # a process that goes on must not keep all others out
            raise

    def _come(self, deadline: float) -> bool:
        while True:
            self._door = _lock(self._root / DOOR)
            living, dead = look(self._root)
            if not living:
                _clear(self._folder)
                return True
            if not dead:
                return False
            self.opened()
            if time.monotonic() > deadline:
                raise StoreError(Problem.UNAVAILABLE, f"{_listed(dead)} died in the store: it can be used again when "
                                 f"the others have left it: {_listed(living)}")
            time.sleep(STEP)

    def opened(self) -> None:
        """Let the next processes in: the store is open, or will not be opened."""
        if self._door >= 0:
            os.close(self._door)
            self._door = -1

    def leaving(self) -> bool:
        """Shut the door in order to leave; whether this is the last process inside, and none died there."""
        if self._door < 0:
            self._door = _lock(self._root / DOOR)
        living, dead = look(self._root)
        return not dead and all(other.path == self._own for other in living)

    def leave(self) -> None:
        """Leave the store. If the name cannot be removed, this process counts as one that died in the store."""
        with contextlib.suppress(OSError):
            self._own.unlink(missing_ok=True)
        for handle in (self._inside, self._door):
            if handle >= 0:
                os.close(handle)
        self._inside = self._door = -1


def look(folder: Path) -> tuple[list[Inside], list[Inside]]:
    """The processes that have the store of this `run` folder open, and those that died with it open.

    The dead are listed until the next process comes in alone, to recover the store. Raises OSError when the folder
    cannot be read.
    """
    living, dead = [], []
    for other in _inside(folder / "inside"):
        path = other.path
        if not _is_file(path):
            continue
        with contextlib.suppress(FileNotFoundError):
            if _is_held(path, other.pid):
                living.append(other)
            elif path.exists():                     # else it has just left
                dead.append(other)
    return living, dead


def strangers(folder: Path, own: Collection[int]) -> bool:
    """Whether other processes than these have the store open, or died with it open (`look`). It opens no file."""
    return any(other.pid not in own for other in _inside(folder / "inside"))


def _inside(folder: Path) -> Iterator[Inside]:
    """The files of all processes that came in and have not left, in order of name."""
    with contextlib.suppress(FileNotFoundError):
        for name in sorted(os.listdir(folder)):
            pid, _, rest = name.partition(".")
            if pid:                                     # else it is coming in just now
                yield Inside(int(pid) if pid.isdecimal() else 0, rest.partition(".")[2], folder / name)


def _is_held(path: Path, pid: int) -> bool:
    """Whether that process has the store open. If its file cannot be looked at (it is root's, no descriptor is left,
    the disk fails), whether there is such a process. Raises FileNotFoundError."""
    try:
        return is_held(path)
    except FileNotFoundError:
        raise
    except OSError:
        return Path(f"/proc/{pid}").exists()


def forget_dead(folder: Path) -> None:
    """Forget the processes that died, if nobody is inside: the next one is then alone, and recovers the store."""
    admission = _open(folder / DOOR)
    try:
        fcntl.flock(admission, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not look(folder)[0]:
            _clear(folder / "inside")
    except BlockingIOError:
        pass                                        # somebody is at the door, and will do it
    finally:
        os.close(admission)


def claim(path: Path) -> int:
    """Own the store as its server for as long as the descriptor is open. Raises StoreError STORE_IN_USE."""
    handle = _open(path)
    if not take(handle):
        pid = os.pread(handle, 20, 0).decode(errors="replace").strip() or "unknown"
        os.close(handle)
        raise StoreError(Problem.STORE_IN_USE, f"Another server, pid {pid}, owns this store")
    os.ftruncate(handle, 0)
    os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
    return handle


def server(path: Path) -> int:
    """The number of the process that owns the store as its server; 0: there is none."""
    try:
        handle = privatefiles.open_handle(path)
    except FileNotFoundError:
        return 0
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        pid = os.pread(handle, 20, 0).strip()
        return int(pid) if pid.isdigit() else 0
    finally:
        os.close(handle)
    return 0


def open_server(path: Path) -> tuple[int, int] | None:
    """The server's process, and a handle (pidfd_open(2)), which never means another process that gets the same number.
    None: there is none. Raises PermissionError."""
    pid = server(path)
    if not pid:
        return None
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    if server(path) == pid:
        return pid, handle
    os.close(handle)                    # it has ended: the number may mean another process by now
    return None


def _clear(inside: Path) -> None:
    for path in filter(_is_file, inside.glob("*")):
        path.unlink()


def _is_file(path: Path) -> bool:
    """Whether it may be a process's file. A folder, a link or a pipe is not ours, whatever its name: it is left for
    `onecopy check` to name. Otherwise it would keep all processes out, as one that died inside and cannot be cleared
    away."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except FileNotFoundError:           # it has just left
        return False


def _listed(others: list[Inside]) -> str:
    return ", ".join(map(str, others))


def _file_name(who: str) -> str:
    return "".join(letter if letter.isprintable() and letter != "/" else "_" for letter in who)[:_LONGEST]


def _lock(path: Path) -> int:
    handle = _open(path)
    fcntl.flock(handle, fcntl.LOCK_EX)
    return handle


def _open(path: Path) -> int:
    return privatefiles.open_handle(path, os.O_RDWR | os.O_CREAT)


def partitions_in_use(root: Path) -> list[str] | None:
    """The names in `run/partitions`; None when no process has opened the store yet."""
    try:
        return privatefiles.read_text(root / "run" / "partitions").split()
    except FileNotFoundError:
        return None


def partitions_version(root: Path) -> tuple[int, ...]:
    """Another one after each change of the list. Raises OSError."""
    status = os.stat(f"{os.fspath(root)}/run/partitions")
    return status.st_mtime_ns, status.st_ino, status.st_size


def use_partitions(root: Path, names: list[str]) -> None:
    """Set the partitions that are in use."""
    path = root / "run" / "partitions"
    new = path.with_name("partitions.new")
    privatefiles.write(new, "".join(f"{name}\n" for name in sorted(names)))
    new.replace(path)


def leave_partition(root: Path, name: str) -> None:
    """Note that no process opens the partition any more. For a process that is alone in the store."""
    names = partitions_in_use(root)
    if names is not None and name in names:
        use_partitions(root, [other for other in names if other != name])
