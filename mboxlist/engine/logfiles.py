"""The files of an environment's log: how far they are on disk, which of them stay, and copies in an archive."""

import contextlib
import errno
import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from berkeleydb import db

from mboxlist import privatefiles
from mboxlist.engine.damagemarks import FLUSHED, is_begun, log_files, logs, open_flushed
from mboxlist.engine.disk import SyncFailed, is_unanswered, replace_file, sync, sync_file, sync_folder
from mboxlist.engine.transact import Unflushed

KEPT_LOG = "kept-log"       # the file with the number of the first log file that stays
ZEROS = bytes(16 << 10)     # written beforehand at a time: whenever a part of them is written the kernel counts
                            # all of it (/proc/PID/io)
SYNCED = 1 << 20            # octets after which these are synced: others wait for the disk
TRIES = 9                   # to give it the next name, while Berkeley DB makes files itself
LEFT = 4                    # log files that must fit on the volume beside one that is written beforehand


Unsynced = tuple[int, tuple[int, int]]
"""A file of the log, open, with records that may not be on disk; those up to that place have been written, and some
after it: others may be in memory only, of transactions that are under way, also in other processes."""


class LogFlush:
    """How far the log is on disk, as far as this process knows. `statistics` are Berkeley DB's of the log. `failed` is
    called when a sync has failed, after which no sync counts; `broken` when nothing can be done before a recovery."""

    def __init__(self, folder: Path, statistics: Callable[[], Mapping[str, Any]], failed: Callable[[], None],
                 broken: Callable[[], None]) -> None:
        self._folder = folder
        self.statistics = statistics
        self._failed = failed
        self._broken = broken
        self.has_failed = False
        self._record = -1               # of how far it is on disk: an open file
        self._named = 0                 # the newest file whose name is on disk, and those of all before it
        self.known = 0, 0               # up to where it is on disk
        # Of `unsynced`: the file that it has open, number and descriptor; where the log ended, in memory, when it had
        # been written so many times; and up to where it has been written since.
        self._newest = 0, -1
        self._end, self._writes, self._at_least = (0, 0), -1, (0, 0)
        # Of `is_written`: a file, and what its octets that are written have more than the counter of all octets.
        self._more = 0, 0
        self._seen: Mapping[str, Any] = {}      # what `end` was told
        self.ahead: LogAhead | None = None

    def end(self) -> tuple[int, int]:
        """Where the next record will be: file and octet. (A cursor on the log finds the newest record in a tenth of the
        time. But it may open a file, and when no descriptor is left for that, Berkeley DB gives up the environment.)"""
        try:
            self._seen = found = self.statistics()
        except db.DBRunRecoveryError:
            self._broken()
            raise
        return int(found["cur_file"]), int(found["cur_offset"])

    def is_written(self, end: tuple[int, int]) -> bool:
        """Whether the log has been written up to there, by any process: then all of it can be read, though it may not
        be on disk. False when that is not known. It is known of a file once this was asked at a moment when all of the
        file was on disk.

        Berkeley DB (5.3) counts the octets that it has written, and looks at its counters under the lock under which it
        writes.
        """
        return self._had_written(self._seen, end) or self._had_written(self.statistics(), end)

    def _had_written(self, found: Mapping[str, Any], end: tuple[int, int]) -> bool:
        if not found:
            return False
        now = int(found["cur_file"]), int(found["cur_offset"])
        written = (int(found["w_mbytes"]) << 20) + int(found["w_bytes"])
        if now == (found["disk_file"], found["disk_offset"]):
            self._more = now[0], now[1] - written
        return now[0] == self._more[0] and end <= (now[0], written + self._more[1])

    @property
    def grown(self) -> bool:
        """Whether the log has more than what is known to be on disk."""
        return self.end() != self.known

    def sync_names(self, newest: int) -> None:
        """Return when the names of the files up to that one, which is there, are on disk. Raises OSError."""
        if newest > self._named:
            sync_folder(self._folder)
            self._named = newest

    def note(self, end: tuple[int, int]) -> None:
        """Note that everything up to there is on disk. If that cannot be written, this is no refusal."""
        if end[0] != self.known[0] and self.ahead is not None:
            self.ahead.begin()
        self.known = end
        try:                            # in place and in one sector: nobody reads half of it
            if self._record < 0:
                self._record = open_flushed(self._folder)
            os.pwrite(self._record, FLUSHED % end, 0)
        except OSError:
            pass

    def unsynced(self) -> Unsynced | None:
        """What must be synced, by any means, so that everything committed so far is on disk; then call `synced`.

        None when that does not suffice: then call `flush`. Berkeley DB itself syncs a log file that is full before it
        begins the next one. Raises OSError.
        """
        if self.has_failed:
            return None
        try:
            found = self.statistics()
        except db.DBRunRecoveryError:
            self._broken()
            raise
        file, writes = int(found["cur_file"]), int(found["wcount"])
        if file > self._named:
            return None
        if writes != self._writes:      # each write takes along all that was in memory then
            self._at_least = self._end
            self._end, self._writes = (file, int(found["cur_offset"])), writes
        if file != self._newest[0]:
            self._let_go()
            self._newest = file, privatefiles.open_handle(self._folder / log_name(file), os.O_WRONLY)
        return self._newest[1], self._at_least

    def is_named(self, file: int) -> bool:
        """Whether a sync of that log file puts what has been written to it on disk: its name is there."""
        return file <= self._named and not self.has_failed

    def synced(self, what: Unsynced, failure: OSError | None = None) -> None:
        """The sync has ended. Raises Unflushed when it has failed; see `Env.flush`."""
        if failure is not None:
            self._failed()
            raise unflushed(failure) from failure
        if what[1] > self.known:
            self.note(what[1])

    def close(self) -> None:
        """Close the files."""
        if self.ahead is not None:
            self.ahead.end()
        if self._record >= 0:
            os.close(self._record)
            self._record = -1
        self._let_go()

    def _let_go(self) -> None:
        handle, self._newest = self._newest[1], (0, -1)
        if handle >= 0:
            os.close(handle)


class LogFiles:
    """Which files of the log there are, and which of them stay. `needless` asks Berkeley DB which ones recovery does
    not need."""

    def __init__(self, folder: Path, needless: Callable[[], Iterable[bytes]]) -> None:
        self._folder = folder
        self._needless = needless

    def unneeded(self) -> list[Path]:
        """The files of the log that recovery needs no more, the oldest first."""
        return [self._folder / os.fsdecode(name) for name in sorted(self._needless())]

    def first_needed(self) -> int:
        """The number of the first file of the log that recovery needs."""
        needed = {path.name for path in self._folder.glob("log.*")} - {path.name for path in self.unneeded()}
        return min(int(name.partition(".")[2]) for name in needed)

    def kept(self) -> int | None:
        """The number of the first log file that stays, needed or not, so that a snapshot can be followed by everything
        after it; None when there is no such file. Raises OSError when the disk gives no answer."""
        try:
            return int(privatefiles.read(self._folder / KEPT_LOG)[:20])
        except ValueError:
            return None
        except OSError as error:
            if is_unanswered(error):
                raise
            return None

    def keep(self, first: int | None) -> None:
        """Keep the log from that file on, whoever drops files; on disk. None: keep only what recovery needs. Raises
        OSError."""
        path = self._folder / KEPT_LOG
        if first is None:
            path.unlink(missing_ok=True)
            sync_folder(self._folder)
        else:
            replace_file(path, b"%d\n" % first)

    def kept_volume(self) -> int:
        """Octets of the log that stay and that recovery does not need."""
        kept = self.kept()
        return 0 if kept is None else sum(path.stat().st_size for path in self.unneeded()
                                          if path.exists() and int(path.name.partition(".")[2]) >= kept)

    def drop(self, archive: Path | None = None, most: int | None = None) -> int:
        """Remove log files that neither recovery nor a snapshot (`keep`) needs; how many. With `archive` each is on
        disk there first. `most`: how many octets may stay for a snapshot; if there are more, none stays for it.

        Raises OSError; files that have not been removed then are still there at the next call.
        """
        files = self.unneeded()
        kept = self.kept()          # after the list: else a snapshot that begins now would miss what goes
        if kept is not None and (most is None or self.kept_volume() <= most):
            files = [file for file in files if int(file.name.partition(".")[2]) < kept]
        for number, file in enumerate(files):
            if archive is not None:
                keep_copy(file, archive)
            if number:                  # else a loss of power could leave the file before it, and a gap behind it
                sync_folder(self._folder)
            file.unlink(missing_ok=True)
        return len(files)


class LogAhead:
    """Has each file of the log written with zeros, whole and on disk, before Berkeley DB begins with it. Then a sync of
    the log writes octets in their place and changes nothing else of a file system: no block is found for them, nothing
    is converted, no journal is written. That is faster; and a file system that meets an error during the sync has
    nothing of the file left to lose without a word (docs/durability.md).

    The next file gets its name when it is finished, unless Berkeley DB has made one: nobody ever writes zeros into a
    file that others may be writing to. Berkeley DB takes the file that has its next name, and recovery takes one that
    begins with zeros for one that was not begun; so does `damagemarks.logs`. Where one cannot be written, or comes too
    late, the log goes on as ever.

    `end` is where the log ends, `size` octets of a file of it. `failed` is called when a sync of names has failed: a
    later one would not say that the name of a log file is not on disk.
    """

    def __init__(self, folder: Path, end: Callable[[], tuple[int, int]], size: int, failed: Callable[[], None]) -> None:
        self._folder, self._end, self._size, self._failed = folder, end, size, failed
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()

    def fill(self) -> None:
        """Write the rest of the file in which the log ends, except zeros that are there already; after a clean end all
        are. For a process that is alone in the environment, without a transaction. Raises OSError when a sync fails:
        then nobody knows what of the log is on disk."""
        number, octets = self._end()
        handle = privatefiles.open_handle(self._folder / log_name(number), os.O_RDWR)
        try:
            self._write(handle, octets)
            os.fdatasync(handle)            # zeros that recovery has written may be in memory only
        finally:
            os.close(handle)

    def begin(self) -> None:
        """Make the next file soon, in a thread of its own, if one can be begun."""
        if self._thread is None or not self._thread.is_alive():
            thread = threading.Thread(target=self.make_next, name="the next log file", daemon=True)
            with contextlib.suppress(RuntimeError):
                thread.start()
                self._thread = thread

    def end(self) -> None:
        """Return when no thread works on it any more."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def make_next(self) -> None:
        """Return when the next file is there; at once when it is there, or another process makes it. Raises nothing."""
        with contextlib.suppress(OSError, db.DBError):
            handle = privatefiles.open_folder(self._folder)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if not (self._folder / log_name(self._end()[0] + 1)).exists():
                    self._make()
                    sync(handle)
            except SyncFailed:
                self._failed()
            finally:
                os.close(handle)

    def _make(self) -> None:
        new = privatefiles.open_nameless(self._folder)
        try:
            for _ in range(TRIES if self._write(new, 0) else 0):
                with contextlib.suppress(FileExistsError):      # Berkeley DB has made it meanwhile
                    privatefiles.give_name(new, self._folder / log_name(self._end()[0] + 1))
                    return
        finally:
            os.close(new)

    def _write(self, handle: int, at: int) -> bool:
        """Write zeros from there to the end, on disk. False when not all were written, also when too little room would
        be left. Raises OSError when a sync fails."""
        volume = os.fstatvfs(handle)
        if volume.f_bavail * volume.f_frsize < (1 + LEFT) * self._size:
            return False
        while at < self._size and not self._ended.is_set():
            end = min(self._size, at + SYNCED)
            if _are_zeros(handle, at, end):
                at = end
                continue
            try:
                while at < end:
                    at += os.pwrite(handle, ZEROS[:end - at], at)
            except OSError:
                break
            os.fdatasync(handle)
        return at >= self._size


def _are_zeros(handle: int, at: int, end: int) -> bool:
    """Whether the file has these octets, all zeros, in blocks of its own: neither in a hole, nor in blocks that the
    file system has not written yet, which lseek(2) sees as holes."""
    try:
        return os.lseek(handle, at, os.SEEK_HOLE) >= end and os.pread(handle, end - at, at) == bytes(end - at)
    except OSError:                         # it ends before that
        return False


def unflushed(error: OSError) -> Unflushed:
    """The error of putting the log on disk, in the form in which those who wait hear it."""
    return Unflushed(error.errno or errno.EIO, error.strerror or str(error), error.filename)


def log_name(number: int) -> str:
    """The name of a file of the log."""
    return f"log.{number:010}"


def drop_unbegun(folder: Path) -> None:
    """Remove the next log file, if nobody has begun it: all processes have left the environment. Raises OSError."""
    for path in log_files(folder)[-1:]:
        if not is_begun(path):
            path.unlink()


def last_write(folder: Path) -> int:
    """The Unix time at which the log in that folder was last written to; now if there is none."""
    times = [int(path.stat().st_mtime) for path in logs(folder)]
    return max(times, default=int(time.time()))


def read_from_disk(folder: Path) -> None:
    """Make the next reading of the log in that folder read the disk. After a sync that failed, memory may hold octets
    that the disk does not have, and counts them as written (fsync(2)); recovery must not take them for durable. Raises
    nothing: the caller leaves the store in any case."""
    with contextlib.suppress(OSError):
        for path in folder.glob("log.*"):
            with contextlib.suppress(OSError):
                handle = privatefiles.open_handle(path, os.O_RDONLY)
                try:
                    os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
                finally:
                    os.close(handle)


def keep_copy(file: Path, folder: Path) -> None:
    """Return when a copy of the file is on disk in the folder. Raises FileExistsError for another file of that name."""
    import filecmp  # here: only an archive of logs needs it
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
