"""Which process is at a standby: one follows, or copies into it, and one serves what is read from it."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from mboxlist import privatefiles
from store.errors import Problem, StoreError
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
        privatefiles.write(number_of(root, what), f"{os.getpid()}\n")
        yield


def process(root: Path, what: str = FOLLOWING) -> int:
    """The process that does that, if one does; 0 if none, UNKNOWN if it is not known which."""
    try:
        with exclusive(lock_of(root, what), Problem.STORE_IN_USE, ""):
            return 0
    except StoreError:
        with contextlib.suppress(OSError, ValueError):
            return int(privatefiles.read(number_of(root, what)))
        return UNKNOWN
    except OSError:
        return 0
