"""Large messages that leave by the outbox: files in `outgoing/`, which rows name, since a row has little room.

A file is on disk before the transaction that writes its row, and is removed by a sweep when no row has named it for an
hour: also when that transaction was never committed.
"""

import os
import re
import secrets
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from mboxlist import privatefiles
from store.errors import disk_problem

FOLDER = "outgoing"
WAITS = 3600                # seconds that a file may be without a row
_NAME = re.compile(r"[0-9a-f]{32}")


def keep(root: Path, octets: bytes) -> str:
    """The name of a file with these octets, which is on disk. For a thread.

    Raises StoreError DISK_FULL, UNAVAILABLE.
    """
    name = secrets.token_hex(16)
    try:
        privatefiles.make_folder(root / FOLDER, exist_ok=True)
        with privatefiles.replacing(root / FOLDER / name) as file:
            file.write(octets)
    except OSError as error:
        raise disk_problem(error) from error
    return name


def read(root: Path, name: str) -> bytes:
    """What that file has. Raises ValueError when there is none."""
    if not _NAME.fullmatch(name):
        raise ValueError("its file has no name")
    try:
        return privatefiles.read(root / FOLDER / name)
    except OSError as error:
        raise ValueError(f"its file cannot be read: {error.strerror}") from error


def sweep(root: Path, named: Callable[[], Iterable[str]], now: float | None = None) -> int:
    """Remove the files that no row names; how many."""
    before = (time.time() if now is None else now) - WAITS
    try:
        old = {entry.name for entry in os.scandir(root / FOLDER) if entry.stat(follow_symlinks=False).st_mtime < before}
    except FileNotFoundError:
        return 0
    gone = old.difference(named()) if old else set()        # files first: a row never comes an hour behind its file
    for name in gone:
        (root / FOLDER / name).unlink(missing_ok=True)
    return len(gone)
