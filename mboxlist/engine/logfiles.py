"""The files of an environment's log: how far they are on disk, and copies of them in an archive."""

import contextlib
import errno
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from attrs import frozen

from mboxlist import privatefiles
from mboxlist.engine.damagemarks import Flushed
from mboxlist.engine.disk import sync_file, sync_folder


@frozen
class Unsynced:
    """A file of the log, open, with records that may not be on disk; those up to the place `end` have been written, and
    some after it: others may be in memory only, of transactions that are under way, also in other processes."""

    handle: int
    end: tuple[int, int]


class LogFlush:
    """How far the log is on disk, as far as this process knows. `statistics` are Berkeley DB's of the log."""

    def __init__(self, folder: Path, statistics: Callable[[], Mapping[str, Any]]) -> None:
        self._folder = folder
        self._statistics = statistics
        self._record = Flushed(folder)
        self._names = 0                 # when the folder had changed last as its names were synced
        self._known = 0, 0
        # Of `unsynced`: the file that it has open, number and descriptor; where the log ended, in memory, when it had
        # been written so many times; and up to where it has been written since.
        self._newest = 0, -1
        self._end, self._writes, self._at_least = (0, 0), -1, (0, 0)

    def end(self) -> tuple[int, int]:
        """Where the next record will be: file and octet."""
        found = self._statistics()
        return int(found["cur_file"]), int(found["cur_offset"])

    @property
    def grown(self) -> bool:
        """Whether there is more than what is known to be on disk."""
        return self.end() != self._known

    def sync_names(self) -> None:
        """Return when the names of new files are on disk. Raises OSError."""
        newest = self._folder.stat().st_mtime_ns
        if newest != self._names:
            sync_folder(self._folder)
            self._names = newest

    def note(self, end: tuple[int, int]) -> None:
        """All up to there is on disk. Nothing about the record of it turns that into a refusal."""
        self._known = end
        with contextlib.suppress(OSError):
            self._record.write(end)

    def unsynced(self) -> Unsynced | None:
        """See `Env.unsynced`. Raises OSError."""
        if self._folder.stat().st_mtime_ns != self._names:
            return None
        found = self._statistics()
        file, writes = int(found["cur_file"]), int(found["wcount"])
        if writes != self._writes:      # each write takes along all that was in memory then
            self._at_least = self._end
            self._end, self._writes = (file, int(found["cur_offset"])), writes
        if file != self._newest[0]:
            self._let_go()
            self._newest = file, privatefiles.open_handle(self._folder / f"log.{file:010}", os.O_WRONLY)
        return Unsynced(self._newest[1], self._at_least)

    def synced(self, what: Unsynced) -> None:
        """The sync has ended well."""
        if what.end > self._known:
            self.note(what.end)

    def close(self) -> None:
        """Let go of the files."""
        self._record.close()
        self._let_go()

    def _let_go(self) -> None:
        handle, self._newest = self._newest[1], (0, -1)
        if handle >= 0:
            os.close(handle)


def last_write(folder: Path) -> int:
    """The Unix time at which the log in that folder was last written to; now if there is none."""
    times = [int(path.stat().st_mtime) for path in folder.glob("log.*")]
    return max(times, default=int(time.time()))


def read_from_disk(folder: Path) -> None:
    """Have the log in that folder read from its disk next: after a sync that failed, memory may hold what the disk does
    not, and calls it written (fsync(2)); recovery must not take it for durable."""
    for path in folder.glob("log.*"):
        with contextlib.suppress(OSError):
            handle = privatefiles.open_handle(path, os.O_RDONLY)
            try:
                os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(handle)


def keep_copy(file: Path, folder: Path) -> None:
    """Return when a copy of the file is on disk in the folder. Raises FileExistsError for another file of that name."""
    import filecmp  # here: who archives no log does without
    privatefiles.make_folder(folder, parents=True, exist_ok=True)
    copy = folder / file.name
    if copy.exists():
        if not filecmp.cmp(file, copy, shallow=False):
            raise FileExistsError(errno.EEXIST, "another log of that name has been archived", str(copy))
    else:
        part = folder / f"{file.name}.part"
        privatefiles.copy(file, part)
        sync_file(part)
        part.rename(copy)
    sync_folder(folder)
