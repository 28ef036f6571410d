"""What costs a start and a login much, and proves nothing: made small in processes of tests.

Thousands of tests make a store, or log in. Whoever opens a store makes the shared memory of its databases anew, and
Berkeley DB overwrites what is left of the newest log file.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from glob import glob

import mboxlist.engine.hotcopy
from mboxlist.engine import kv, regions
from store import opening
from store.accounts import builtin, passwords
from store.partition.messagefiles import MessageFiles
from store.values import Secret

FULL_COST = passwords._LOG_N
_PATH, _FOLDERS = MessageFiles.path, MessageFiles.folders


def make() -> None:
    """In this process, and in those that are forked from it."""
    passwords._LOG_N = 10               # the cheapest that `verify_password` takes
    builtin.NOBODY = passwords.hash_password(Secret(b"nobody"))         # of unknown users, who cost as much
    kv.LOG_FILE = mboxlist.engine.hotcopy.LOG_FILE = 2 << 20
    kv.LOG_BUFFER = 256 << 10
    regions.LOCK_LISTS, regions.CACHE_MUTEXES = 251, 61
    opening.LIST_CACHE = 1 << 20


def few_folders(set_attribute: Callable[[type, str, object], object] = setattr) -> None:
    """A partition's 4,096 folders of message files are made when they are needed: to make them, look into them, and
    remove them is four fifths of what a test of a store costs."""
    def path(files: MessageFiles, digest: bytes) -> str:
        found = _PATH(files, digest)
        with suppress(OSError):         # what is done there says what is wrong
            os.makedirs(os.path.dirname(found), 0o700, exist_ok=True)
        return found

    def folders(files: MessageFiles) -> Iterator[str]:
        return iter(sorted(glob(f"{files._folder}/?/??")))

    set_attribute(MessageFiles, "path", path)
    set_attribute(MessageFiles, "folders", folders)


def folders_for(*, few: bool) -> None:
    """The folders of all stores from now on: few of them, or all."""
    if few:
        few_folders()
    else:
        MessageFiles.path, MessageFiles.folders = _PATH, _FOLDERS       # type: ignore[method-assign]
