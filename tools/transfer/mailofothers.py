"""Mail in folders that others may write to, read for an import.

No symbolic link is followed. An import that root runs acts as the owner of the store, who may not read users' Maildirs:
it opens these as root, and does all else as the owner. What root opens must belong to whom the folder belongs that was
named, so that nobody has a second name of somebody else's file taken for mail.
"""

import ctypes
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from errno import EPERM
from pathlib import Path
from typing import BinaryIO

from attrs import define

from mboxlist.privatefiles import LINK, Folder
from tools.transfer.sourcevalues import Unreadable, Warn

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


def program_user() -> int | None:
    """For subprocess, user and group: a program that reads mail of others is started as root, if it may be."""
    return ROOT if is_root_behind() else None


@define(eq=False)
class MailTree:
    """A folder and what is below it. Names are relative to it, "" is the folder itself. Raises OSError."""

    path: Path
    _top: Folder
    _owner: int

    @classmethod
    def at(cls, path: Path) -> "MailTree":
        """The folder of that path. Raises Unreadable."""
        try:
            with reading():
                top = Folder.at(path)
        except (FileNotFoundError, NotADirectoryError):
            raise Unreadable(f"{path}: there is no such folder") from None
        except OSError as error:
            raise Unreadable(f"{path}: {error.strerror}") from error
        return cls(path, top, os.fstat(top.handle).st_uid)

    @classmethod
    def beside(cls, path: Path) -> "MailTree":
        """The folder of a file that was named, for that alone. Raises Unreadable."""
        found = cls.at(path.parent)
        try:
            with reading():
                found._owner = found._top.status(path.name).st_uid
        except OSError as error:
            found.close()
            raise Unreadable(f"{path}: {error.strerror}") from error
        return found

    def close(self) -> None:
        """Let go of it."""
        self._top.close()

    def shown(self, name: str) -> str:
        """The path of something in it, for people."""
        return os.fsencode(self.path / name).decode("utf-8", "replace")

    def open(self, name: str) -> BinaryIO:
        """A file."""
        with reading():
            file = self._top.open(name)
        if is_root_behind() and os.fstat(file.fileno()).st_uid != self._owner:
            file.close()
            raise OSError(EPERM, "it does not belong to the owner of the folder that was named", self.shown(name))
        return file

    def read(self, name: str) -> bytes:
        """All of a file."""
        with self.open(name) as file:
            return file.read()

    def is_folder(self, name: str) -> bool:
        """Whether there is a folder of that name."""
        with reading():
            return self._top.is_folder(name)

    @contextmanager
    def _folder(self, name: str) -> Iterator[Folder]:
        with reading():
            found = self._top.folder(name) if name else self._top.again()
            with found:
                yield found

    def names(self, name: str) -> list[str]:
        """What is in a folder, in order."""
        with self._folder(name) as folder:
            return folder.names()

    def folders(self, name: str) -> list[str]:
        """The folders in a folder, in order; none where it cannot be read."""
        try:
            with self._folder(name) as folder:
                return folder.folders()
        except OSError:
            return []

    def files(self, name: str, warn: Warn, *, folders: bool = False) -> list[tuple[str, os.stat_result]]:
        """The files in a folder, in order, without those whose names begin with a dot; what cannot be taken for a file
        is named, unless it is one of the `folders` that may be there."""
        found = []
        try:
            with self._folder(name) as folder:
                for each in folder.names():
                    if each.startswith("."):
                        continue
                    try:
                        status = folder.status(each)
                    except OSError as error:        # gone, or renamed for its flags: the next run sees it
                        warn(f"{self.shown(os.path.join(name, each))}: {error.strerror}")
                        continue
                    if stat.S_ISREG(status.st_mode):
                        found.append((each, status))
                    elif not (folders and stat.S_ISDIR(status.st_mode)):
                        what = LINK if stat.S_ISLNK(status.st_mode) else "not a file"
                        warn(f"{self.shown(os.path.join(name, each))}: {what}")
        except FileNotFoundError:
            return []
        except OSError as error:
            warn(f"{self.shown(name)}: {error.strerror}")
        return found
