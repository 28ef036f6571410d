"""What a store has on disk is in the page of its files (docs/reference/files.md)."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from tools.reference import filepage

# What is being written, or was when its process was killed; and folders in which something else's files lie: their own
# rules say what belongs there.
_PASSED_OVER = re.compile(
    r".*\.(new|part|loading)|(.*/)?\.[^/]+|partitions/[^/]+/messages|snapshots/[^/]+/(mboxlist|partitions)|"
    r"snapshots/[^/]+\.[a-z]+")


NOWHERE = set[str]()        # what the stores of servers that have ended had besides


def nowhere_described(root: Path) -> list[str]:
    """The files of the store for which the page has no line."""
    return sorted(path for path in _files(root, "") if filepage.described(path) is None)


def _files(root: Path, below: str) -> Iterator[str]:
    try:
        entries = sorted(os.scandir(root / below), key=lambda entry: entry.name)
    except OSError:                 # it has gone, or is not a folder of a store any more
        return
    for entry in entries:
        path = f"{below}/{entry.name}" if below else entry.name
        if _PASSED_OVER.fullmatch(path):
            continue
        if entry.is_symlink() and (entry.is_dir() or not path.startswith("partitions/")):   # of a copy for reading
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _files(root, path)
        else:
            yield path
