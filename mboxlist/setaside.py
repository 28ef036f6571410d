"""What stands where something else of the store belongs is set aside: moved, as it is, to a folder beside, and named.
Nothing of it is opened, no link is followed, and nothing is replaced that has been set aside before."""

import os
import stat
import time
from contextlib import suppress
from pathlib import Path, PurePosixPath

from mboxlist.privatefiles import Folder

ASIDE = "set-aside"         # a folder in the store, and in each partition: in it is a folder for each time


def set_aside(top: Path, below: str) -> Path:
    """Move what has that path below `top` to the same path below `top/set-aside/<time>/`, on disk: where it is now.

    `top` and that folder are on one file system: it is the store or a partition. Raises OSError.
    """
    place = PurePosixPath(ASIDE, time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()), PurePosixPath(below).parent)
    with Folder.at(top) as folder, folder.make(place) as aside:
        name, number = PurePosixPath(below).name, 1
        while is_there(aside, name):
            number += 1
            name = f"{PurePosixPath(below).name}.{number}"
        folder.rename(below, place / name)
        aside.sync()
        with suppress(OSError), folder.folder(PurePosixPath(below).parent) as before:
            before.sync()
    return top / place / name


def make_way(top: Path, path: Path) -> None:
    """Have nothing but a file at that path in the store or partition `top`: what else there is is set aside, which is
    logged. Raises OSError."""
    if stands_in_the_way(path):
        import logging  # here: it is rare, and short commands do without
        logging.getLogger(__name__).error("%s was not a file: it was set aside, and is %s now", path,
                                          set_aside(top, os.path.relpath(path, top)))


def is_there(folder: Folder, name: str) -> bool:
    """Whether anything has that name in the folder, if only a link that leads nowhere."""
    try:
        folder.status(name)
    except FileNotFoundError:
        return False
    return True


def stands_in_the_way(path: Path) -> bool:
    """Whether there is something at that path that is no file: a file can be replaced, and this cannot, or would be
    read as something that it is not."""
    try:
        return not stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False
