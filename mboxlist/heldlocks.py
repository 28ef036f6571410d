"""Locks of files that a process holds alone for long (flock(2)), and that others look at. A killed process cannot leave
one behind."""

import fcntl
import os
import time
from pathlib import Path

from mboxlist import privatefiles

LOOKER = 1.0                    # seconds, at most, for which one that only looks whether a lock is held may hold it
STEP = 0.01


def take(handle: int) -> bool:
    """Hold the lock of that file alone, for long; whether nobody else does. To look whether a lock is held is to share
    it for a moment (`is_held`), which is waited for. Raises OSError."""
    deadline = time.monotonic() + LOOKER
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            try:
                fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)      # who holds it holds it alone, or looks
            except BlockingIOError:
                return False
            fcntl.flock(handle, fcntl.LOCK_UN)
            if time.monotonic() > deadline:
                return False
        time.sleep(STEP)


def is_held(path: Path) -> bool:
    """Whether a process holds the lock of that file. Raises FileNotFoundError, OSError."""
    handle = privatefiles.open_handle(path)
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)      # shared: two who look do not see each other
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False
