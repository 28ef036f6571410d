"""File systems for the servers: each has its own, as one that others use too would make them wait for each other."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mboxlist import privatefiles
from tools.exits import Failure

MADE = ("mkfs.ext4", "-q", "-F", "-m", "0", "-E", "lazy_itable_init=0,lazy_journal_init=0")
REACHED = "servers run as users of their own"


@contextmanager
def disk(folder: Path, size: int) -> Iterator[str]:
    """A folder that is made, on a journaled ext4 of its own of so many octets if the machine can. Gives what it is on,
    for people.

    The file that it is in has no name any more once it is mounted: whatever ends this program, nothing is left.
    """
    privatefiles.make_folder(folder)
    image = folder.with_suffix(".image")
    try:
        privatefiles.touch(image)
        with privatefiles.open_file(image, "r+b") as file:
            file.truncate(size)
        mounted = _does(*MADE, str(image)) and _does("mount", "-o", "loop,noatime", str(image), str(folder))
    finally:
        image.unlink(missing_ok=True)
    try:
        privatefiles.share(folder, 0o711, REACHED)
        yield "a journaled ext4 of its own in a file" if mounted else "the file system of the temporary folder"
    finally:
        if mounted:
            unmount(folder)


def in_memory(folder: Path) -> None:
    """A new folder in memory, for what need not outlive a restart. Raises Failure."""
    privatefiles.make_folder(folder)
    if not _does("mount", "-t", "tmpfs", "-o", "size=256m,mode=755", "tmpfs", str(folder)):
        raise Failure("cannot mount a tmpfs", 1)


def beside(programs: Path, folder: Path) -> Path:
    """The programs of an unpacked package under a name that every user can reach. Raises Failure."""
    privatefiles.make_folder(folder)
    if not _does("mount", "--bind", str(programs), str(folder)):
        raise Failure(f"cannot mount {programs} elsewhere", 1)
    return folder


def unmount(folder: Path) -> None:
    """Have it there no more, even if somebody still has a file in it open."""
    _does("umount", "--lazy", str(folder))


def _does(*words: str) -> bool:
    return subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode == 0
