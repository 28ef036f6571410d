"""Folders of tests in which stores were, and how they go."""

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from glob import glob
from pathlib import Path

TOGETHER = 16           # a disk that hears of each free block takes some 2 ms for a folder, with its parent locked


@contextmanager
def disk_folder() -> Iterator[Path]:
    """A folder on a disk, until the end."""
    with tempfile.TemporaryDirectory(prefix="onecopy-", dir="/var/tmp") as folder:
        yield Path(folder)
        with ThreadPoolExecutor(TOGETHER) as pool:
            remove_empty_folders(Path(folder), pool.map)


def remove_empty_folders(folder: Path, mapped: Callable[..., Iterable[None]] = map) -> None:
    """Those of the stores in it, as far as they hold nothing: whoever removes a store looks into each."""
    def remove(each: str) -> None:
        with suppress(OSError):
            os.rmdir(each)

    for messages in folder.glob("*/partitions/*/messages"):
        list(mapped(remove, sorted(glob(f"{messages}/?/??"), key=lambda path: path[-2:])))      # all parents in turn
