"""An import that root runs acts as the owner of the store, who may not read a user's Maildir or another server's mail:
it opens these as root, and does all else as the owner.

What root reads for an import belongs to whom the folder belongs that was named: no link is followed, and no second name
of somebody else's file is taken for a message.
"""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

ROOT = 0


def is_root_behind() -> bool:
    """Whether the process acts as another user and may read as root."""
    return os.getuid() == ROOT != os.geteuid()


@contextmanager
def reading() -> Iterator[None]:
    """This thread opens files as root, if it may. Nothing is made in the block."""
    if not is_root_behind():
        yield
        return
    libc, user = ctypes.CDLL(None), os.geteuid()
    libc.setfsuid(ROOT)         # of this thread alone: setfsuid(2)
    try:
        yield
    finally:
        libc.setfsuid(user)


def program_user() -> dict[str, int]:
    """For subprocess: a program that reads mail of others is started as root, if it may be."""
    return {"user": ROOT, "group": ROOT} if is_root_behind() else {}
