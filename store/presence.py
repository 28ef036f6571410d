"""Which processes have a store open: who is the first (and runs recovery), who is the last, and who is the server.

All of it hangs on flock(2), so that nothing is left behind by a process that was killed. Coming and going happen one at
a time, behind a door; whoever is inside holds the lock of a file of its own.
"""

import fcntl
import itertools
import os
from pathlib import Path

from store.errors import Problem, StoreError

_numbers = itertools.count()


class Presence:
    """This process's place in a store. `alone`: no other process was in it when this one came.

    The door stays shut until `settled`. Raises StoreError STORE_IN_USE when `server` is asked for and another process
    is the server.
    """

    def __init__(self, folder: Path, server: bool) -> None:
        self._folder = folder / "inside"
        self._folder.mkdir(parents=True, mode=0o700, exist_ok=True)
        self._door_path = folder / "door.lock"
        self._server = claim(folder / "server.pid") if server else -1
        self._door = _lock(self._door_path)
        self.alone = not self._others()
        self._own = self._folder / f"{os.getpid()}.{next(_numbers)}"
        self._inside = _lock(self._own)

    def settled(self) -> None:
        """The store is open: let the next ones in."""
        os.close(self._door)
        self._door = -1

    def leaving(self) -> bool:
        """Shut the door in order to leave; whether this is the last process inside."""
        if self._door < 0:
            self._door = _lock(self._door_path)
        return not self._others()

    def leave(self) -> None:
        """Be out of it."""
        self._own.unlink(missing_ok=True)
        for handle in (self._inside, self._server, self._door):
            if handle >= 0:
                os.close(handle)
        self._inside = self._server = self._door = -1

    def _others(self) -> list[str]:
        """Those inside beside this one; what the dead left is cleared away."""
        alive = []
        for path in self._folder.iterdir():
            if path == getattr(self, "_own", None):
                continue
            handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
            except BlockingIOError:
                alive.append(path.name)
            finally:
                os.close(handle)
        return alive


def claim(path: Path) -> int:
    """Own the store as its server for as long as the descriptor is open. Raises StoreError STORE_IN_USE."""
    handle = _open(path)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pid = os.pread(handle, 20, 0).decode(errors="replace").strip() or "unknown"
        os.close(handle)
        raise StoreError(Problem.STORE_IN_USE, f"Another server, pid {pid}, owns this store") from None
    os.ftruncate(handle, 0)
    os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
    return handle


def _lock(path: Path) -> int:
    handle = _open(path)
    fcntl.flock(handle, fcntl.LOCK_EX)
    return handle


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
