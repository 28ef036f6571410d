"""Which process is at a standby: one follows, or copies into it, and one serves what is read from it."""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

from mboxlist import privatefiles
from mboxlist.heldlocks import is_held
from store.errors import Problem
from store.filelock import exclusive

FOLLOWING, READING = "standby", "reading"       # what a process does
UNKNOWN = -1


def lock_of(root: Path, what: str) -> Path:
    """The file whose lock it holds."""
    return root / "run" / f"{what}.lock"


def number_of(root: Path, what: str) -> Path:
    """The file that has its number."""
    return root / "run" / f"{what}.pid"


@contextlib.contextmanager
def alone(root: Path, what: str = FOLLOWING) -> Iterator[None]:
    """No other process does that: copies into the standby, or promotes it; or serves what is read from it. Raises
    StoreError STORE_IN_USE."""
    privatefiles.make_folder(root / "run", parents=True, exist_ok=True)
    with exclusive(lock_of(root, what), Problem.STORE_IN_USE, f"Another process is at the standby in {root}"):
        privatefiles.write(number_of(root, what), f"{os.getpid()} {_began(os.getpid())}\n")
        yield


def process(root: Path, what: str = FOLLOWING) -> int:
    """The process that does that, if one does; 0 if none, UNKNOWN if it is not known which."""
    try:
        if not is_held(lock_of(root, what)):
            return 0
    except OSError:
        return 0
    return _noted(root, what)[0]


def send(root: Path, number: signal.Signals, what: str = FOLLOWING) -> int:
    """Send a signal to the process that does that, and never to another one that has got its number since; which
    process it was, 0 if none."""
    pid, began = _noted(root, what)
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return 0
    try:
        if _began(pid) != began:        # read after the handle was opened: that one is meant, or has ended
            return 0
        signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        return 0
    finally:
        os.close(handle)
    return pid


def _noted(root: Path, what: str) -> tuple[int, str]:
    """The number of the process that did that last, and when it began."""
    with contextlib.suppress(OSError, ValueError):
        pid, _, began = privatefiles.read(number_of(root, what)).decode().strip().partition(" ")
        return int(pid), began
    return UNKNOWN, ""


def _began(pid: int) -> str:
    """When a process began, in the kernel's count, which two of one number never have alike; of none an empty text.
    Source: proc(5), field 22 of `stat`, behind the name in brackets."""
    try:
        return privatefiles.read(Path(f"/proc/{pid}/stat")).rpartition(b")")[2].split()[19].decode()
    except (OSError, IndexError):
        return ""
