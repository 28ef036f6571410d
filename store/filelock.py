"""One process at a time, by the lock of a file or folder (flock(2)), which a killed process cannot leave behind."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from mboxlist import privatefiles
from store.errors import Problem, StoreError


@contextlib.contextmanager
def exclusive(path: Path, problem: Problem, otherwise: str, *, folder: bool = False) -> Iterator[None]:
    """No other process is in a block with that file, which is made if there is none, or with that folder.

    Raises StoreError with that problem and that text when one is, at once; OSError.
    """
    how = os.O_RDONLY | os.O_DIRECTORY if folder else os.O_RDWR | os.O_CREAT
    handle = privatefiles.open_handle(path, how)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreError(problem, otherwise) from None
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
