"""Where the portable copies of mailboxes (`idxfile`) are, below a partition's `users/`, and who may touch them.

    0c/9e/alice/store.idx               alice's INBOX; the folder is `Partition.user_folder`
    0c/9e/alice/Archive/2026/store.idx  her mailbox Archive/2026
    public/news/store.idx               the public mailbox news
    deleted/17/store.idx                the mailbox with the id 17, which was deleted and can still be restored
    epoch                               how many unclean ends there were: see `store/partition/marks.py`

Several processes may write the same file. Who does holds the lock of the mailbox's id, and reads the mailbox when it
has it, so that the last to write has the newest. A name has a lock, too: it is held while a file is given that name,
and while one looks whose file has it and takes it away.
"""

import contextlib
import logging
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from mboxlist import privatefiles
from mboxlist.engine.disk import sync_folder
from mboxlist.names import PUBLIC, MailboxName
from mboxlist.setaside import make_way, set_aside
from store.errors import StoreError, disk_problem
from store.filelock import lock_octet
from store.partition.partition import Partition
from store.userarea import idxreading
from store.userarea.idxfile import NAME, Head

DELETED = "deleted"
TRIES = 10
_NAMES = 1 << 40                        # the locks of names begin here; those of mailboxes are below

T = TypeVar("T")

log = logging.getLogger(__name__)


def place(partition: Partition, name: MailboxName) -> Path:
    """Where the file of the mailbox of that name belongs."""
    top = partition.user_folder(name.owner) if name.owner else partition.folder / "users" / PUBLIC[:-1]
    return top / NAME if name.is_inbox() else top / name.path / NAME


def place_of_deleted(partition: Partition, mailbox: int) -> Path:
    """Where the file of a deleted mailbox belongs until the mailbox is purged."""
    return partition.folder / "users" / DELETED / str(mailbox) / NAME


def head_of(path: Path) -> Head | None:
    """What the file says of its mailbox; None when there is none, or it cannot be read."""
    try:
        return idxreading.read_head(path)
    except StoreError:
        return None


def owner_of(path: Path) -> int | None:
    """The id of the mailbox whose file that is; None when there is none, or it cannot be read."""
    head = head_of(path)
    return None if head is None else head.id


def give_name(partition: Partition, temporary: Path, path: Path, mailbox: int,
              may_replace: Callable[[Head], bool] = lambda head: True) -> bool:
    """Put the file of a mailbox in its place, if it `may_replace` the one that is there; whether it has.

    If the file of another mailbox is there, which had the name before, that is where deleted ones are until whoever
    gave it another name has written it. Raises OSError, StoreError.
    """
    with Locks(partition) as locks:
        locks.take_name(path)
        there = head_of(path)
        if there is not None and there.id == mailbox and not may_replace(there):
            return False
        if there is not None and there.id != mailbox:
            aside = place_of_deleted(partition, there.id)
            locks.take_name(aside)
            if (older := head_of(aside)) is None or older.id != there.id or older.written < there.written:
                in_folder(partition, aside.parent, lambda: os.replace(path, aside), sync=False)
        if there is None:
            make_way(partition.folder, path)
        os.replace(temporary, path)
    return True


def remove_file(partition: Partition, path: Path, mailbox: int) -> bool:
    """Take the file away if it is that mailbox's, and the folders that are empty then; whether it was.

    Raises OSError, StoreError UNAVAILABLE.
    """
    with Locks(partition) as locks:
        locks.take_name(path)
        if owner_of(path) != mailbox:
            return False
        path.unlink(missing_ok=True)
    remove_empty_folders(partition, path.parent)
    return True


def remove_empty_folders(partition: Partition, folder: Path) -> None:
    """Take the folder away if it is empty, and those above it."""
    top = partition.folder / "users"
    while folder != top:
        try:
            folder.rmdir()
        except OSError:             # not empty
            break
        folder = folder.parent


def in_folder(partition: Partition, folder: Path, work: Callable[[], T], *, sync: bool) -> T:
    """The result of `work`, which makes a file in the folder. The folder is made (with `sync`, on disk), and again if
    another process takes it away meanwhile, as it is empty.

    Raises what `work` raises, and StoreError DISK_FULL, UNAVAILABLE.
    """
    for left in reversed(range(TRIES)):
        try:
            _make_folders(folder, partition.folder / "users", sync)
            return work()
        except FileNotFoundError as error:
            if not left:
                raise disk_problem(error) from error
        except OSError as error:
            raise disk_problem(error) from error
        except StoreError:
            if not left or folder.is_dir():
                raise
    raise AssertionError("unreachable")


def _make_folders(folder: Path, top: Path, sync: bool) -> None:
    """Make the folder and those above it, up to `top`; with `sync`, each with its name on disk."""
    missing = []
    while folder != top and not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for path in reversed(missing):
        with contextlib.suppress(FileExistsError):
            privatefiles.make_folder(path)
        if not path.is_dir():
            log.error("%s was not a folder: it was set aside, and is %s now", path,
                      set_aside(top.parent, os.path.relpath(path, top.parent)))
            privatefiles.make_folder(path, exist_ok=True)
        if sync:
            sync_folder(path.parent)


class Locks:
    """Locks on octets of `index/portable.lock` (`lock_octet`), which end with the `with` or with the process.

    Raises StoreError UNAVAILABLE.
    """

    def __init__(self, partition: Partition) -> None:
        self._path = partition.folder / "index" / "portable.lock"
        self._handle = -1

    def __enter__(self) -> "Locks":
        try:
            self._handle = privatefiles.open_handle(self._path, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise disk_problem(error) from error
        return self

    def __exit__(self, *reason: object) -> None:
        os.close(self._handle)

    def take(self, offset: int, *, wait: bool) -> bool:
        """Lock one octet; without `wait`, False when another has it."""
        return lock_octet(self._handle, offset, wait=wait)

    def take_name(self, path: Path) -> None:
        """Lock the name of a file."""
        self.take(_NAMES + zlib.crc32(os.fsencode(path)), wait=True)
