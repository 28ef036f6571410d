"""A table that a process of its own makes, outside of every environment. When it is whole, an environment takes it.

What goes into a transactional table is written twice, first to the log; and before a page is written the log must be
synced. A table that may be thrown away until it is whole needs none of that: its octets are written once, in order, and
are on disk when `Load.end` returns. Then `Env.exchange` puts it in its place.
"""

import ctypes
import errno
import gc
import json
import os
import signal
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, BinaryIO

from attrs import define
from berkeleydb import db

from mboxlist import privatefiles
from mboxlist.engine.damagemarks import LOADING
from mboxlist.engine.disk import is_disk_full

CACHE = 64 << 20                # octets of memory for the pages that are being filled
WRITE_OUT_OCTETS = 32 << 20     # after so many, the disk begins to write
LEAST = 16 << 20                # octets: with less room on the volume, that may be why something fails
PIPE = 1 << 20                  # octets in the pipe, at most
_SET_PIPE, _DEATH, _WRITE = 1031, 1, 2      # F_SETPIPE_SZ, PR_SET_PDEATHSIG, SYNC_FILE_RANGE_WRITE
_libc = ctypes.CDLL(None, use_errno=True)

Rows = Callable[[BinaryIO], Iterable[tuple[bytes, bytes]]]      # makes keys that ascend, and values, of what is written


@define(eq=False)
class Load:
    """A table that is being made. `rows` runs in the other process, and takes apart what is given to `write` here."""

    file: Path
    _pid: int
    _pipe: int
    _said: int

    @classmethod
    def begin(cls, table: Path, rows: Rows) -> "Load":
        """Begin to make it. It has the page size of the table that it will replace, and is beside that table until
        then. Raises OSError."""
        file = table.with_name(f"{table.name}{LOADING}")
        file.unlink(missing_ok=True)
        with privatefiles.open_file(table, "rb") as there:
            page = int.from_bytes(there.read(24)[20:], "little")
        reading, pipe = os.pipe()
        said, saying = os.pipe()
        parent, pid = os.getpid(), os.fork()
        if pid == 0:
            _run(lambda: _make(file, rows, reading, page), reading, saying, parent)
        os.close(reading)
        os.close(saying)
        return cls(file, pid, pipe, said)

    def write(self, *buffers: bytes | memoryview) -> None:
        """Write these octets to it. Raises OSError."""
        try:
            for buffer in buffers:
                left = memoryview(buffer).cast("B")
                while left:
                    left = left[os.write(self._pipe, left):]
        except BrokenPipeError:
            self.end()
            raise

    def end(self) -> int:
        """Return when all of it is on disk; how many rows there are. Raises OSError."""
        os.close(self._pipe)
        self._pipe = -1
        with os.fdopen(self._said, "rb", closefd=False) as answer:
            data = answer.read()
        self._leave()
        try:
            outcome = json.loads(data)
        except ValueError:
            outcome = {"code": errno.EIO, "error": "who made it has died"}
        if "error" in outcome:
            figures = os.statvfs(self.file.parent)
            if outcome["code"] == errno.EIO and figures.f_bavail * figures.f_frsize < LEAST:
                outcome["code"] = errno.ENOSPC      # as where Berkeley DB cannot write a page to have another in memory
            self.file.unlink(missing_ok=True)
            raise OSError(outcome["code"], f"a table could not be made: {outcome['error']}", str(self.file))
        return int(outcome["rows"])

    def __enter__(self) -> "Load":
        return self

    def __exit__(self, *reason: object) -> None:
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            self._leave()
            self.file.unlink(missing_ok=True)

    def _leave(self) -> None:
        for handle in (self._pipe, self._said):
            if handle >= 0:
                os.close(handle)
        os.waitpid(self._pid, 0)
        self._pid, self._pipe, self._said = 0, -1, -1


def _run(work: Callable[[], int], reading: int, saying: int, parent: int) -> None:
    """Run in the new process. This ends together with the process that made it, and has nothing else of that one: no
    lock, no socket."""
    try:
        gc.disable()                                # so objects that the parent has dropped are not closed here
        _libc.prctl(_DEATH, signal.SIGKILL)
        if os.getppid() == parent:
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL)
            first, last = sorted((reading, saying))
            os.closerange(3, first)
            os.closerange(first + 1, last)
            os.closerange(last + 1, os.sysconf("SC_OPEN_MAX"))
            os.write(saying, json.dumps(_outcome(work)).encode())
    finally:
        os._exit(0)


def _outcome(work: Callable[[], int]) -> dict[str, Any]:
    try:
        return {"rows": work()}
    except Exception as error:
        code = error.args[0] if isinstance(error, OSError) else errno.ENOSPC if is_disk_full(error) else errno.EIO
        return {"code": code, "error": str(error)}


def _make(file: Path, rows: Rows, reading: int, page: int) -> int:
    table = db.DB()
    table.set_cachesize(0, CACHE, 1)
    table.set_pagesize(page)
    table.set_flags(db.DB_CHKSUM)
    table.open(str(file), dbtype=db.DB_BTREE, flags=db.DB_CREATE | db.DB_EXCL, mode=0o600)
    handle = privatefiles.open_handle(file, os.O_RDWR)
    count = octets = 0
    put = table.put
    with os.fdopen(reading, "rb", buffering=PIPE) as stream:
        for key, value in rows(stream):
            put(key, value)
            count += 1
            octets += len(value)
            if octets > WRITE_OUT_OCTETS:             # else the disk has nothing to do until the end
                octets = 0
                _libc.sync_file_range(handle, ctypes.c_int64(0), ctypes.c_int64(0), _WRITE)
    table.close()
    os.fsync(handle)
    return count
