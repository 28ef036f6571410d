"""What a standby has on disk and has not put into its places yet: two files `standby.journal.0` and `.1` in its folder.

A round that brings little (`copysource`, `quick`) costs one sync: its answer is appended to a journal, as it came, and
that is what the other machine may count on. Then octets of logs and message files are written to their places without a
sync. From time to time, in a thread, the file systems are synced, `standby.json` says how far that is, and the journal
begins again in the other file. The files stay, and are written over: a sync that changes no length is a cheap one.
Whatever is left of a journal after an end is put into its places once more (`replay`):
each answer says from where to where it leads, so nothing is done out of order, and a rest that is not whole is none.
"""

import contextlib
import os
import struct
import threading
import time
import zlib
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

from attrs import define, evolve, field

from mboxlist import privatefiles
from mboxlist.engine.disk import sync_folder
from mboxlist.engine.logfiles import log_name
from store.partition.messagefiles import SPARE, MessageFiles, sync_file_system
from store.standby.copyformat import FileWhole, Quick
from store.standby.standbystate import StandbyState
from store.usermove.messageformat import BadMessage, Ended, Message, encode, receive

NAMES = "standby.journal.0", "standby.journal.1"
EMPTY_OCTETS = 16 << 20    # of a journal, after which it is emptied,
EMPTY_SECONDS = 5.0        # or after so long
_SUM = struct.Struct(">I")  # before each answer: its checksum


@define(eq=False)
class Journal:
    """That of one process that follows."""

    root: Path
    _file: BinaryIO | None = field(default=None, init=False)
    _number: int = field(default=0, init=False)
    _octets: int = field(default=0, init=False)
    _since: float = field(default=0.0, init=False)
    _emptying: threading.Thread | None = field(default=None, init=False)
    _failed: OSError | None = field(default=None, init=False)

    def append(self, answer: Message) -> None:
        """Return when the answer is on disk. Raises OSError."""
        octets = answer.head + answer.octets if answer.head else encode(answer.fields, answer.octets)
        if self._file is None:
            self._file = self._begin()
        left = memoryview(_SUM.pack(zlib.crc32(octets)) + octets)
        while left:
            left = left[self._file.write(left):]
        os.fdatasync(self._file.fileno())
        self._octets += len(octets)

    def _begin(self) -> BinaryIO:
        """The next file. One that is there is written over: so a sync changes its octets only, and not its length."""
        path = self.root / NAMES[self._number]
        try:
            file = privatefiles.open_file(path, "r+b", 0)
        except FileNotFoundError:
            file = privatefiles.open_file(path, "wb", 0)
            sync_folder(self.root)
        self._octets, self._since = 0, time.monotonic()
        return file

    def is_due(self) -> bool:
        """Whether it should be emptied, and can be begun."""
        return self._file is not None and (self._octets >= EMPTY_OCTETS or time.monotonic() - self._since
                                           >= EMPTY_SECONDS) and not (
            self._emptying is not None and self._emptying.is_alive())

    def begin_emptying(self, state: StandbyState) -> None:
        """Have all that was appended in its places on disk, and this state on record, in a thread. Raises OSError: the
        last time this has failed."""
        self._join()
        if self._file is None:
            return
        old, self._file = self._file, None
        self._number = 1 - self._number
        self._emptying = threading.Thread(target=self._empty, args=(state, old), name="emptying")
        self._emptying.start()

    def empty(self, state: StandbyState) -> None:
        """Return when that is done. Raises OSError."""
        self.begin_emptying(state)
        self._join()

    def _empty(self, state: StandbyState, old: BinaryIO) -> None:
        try:
            sync_places(self.root, state)
            state.save(self.root)
            old.seek(0)                 # it begins with no answer any more; if that is lost, its answers are too old
            old.write(bytes(_SUM.size))
            old.close()
        except OSError as error:
            self._failed = error

    def _join(self) -> None:
        if self._emptying is not None:
            self._emptying.join()
            self._emptying = None
        if self._failed is not None:
            failed, self._failed = self._failed, None
            raise failed

    def close(self) -> None:
        """What has not been emptied stays for the next process."""
        with contextlib.suppress(OSError):
            self._join()
        if self._file is not None:
            self._file.close()
            self._file = None


def put(root: Path, quick: Quick, *, again: bool = False) -> None:
    """Write what came to its places, unsynced: message files, and octets of logs; `again`: after an end, when some may
    be there. A large message file is there already, since it came by itself. Raises OSError."""
    for file in quick.files:
        if len(file.octets) == file.size and not (again and _is_there(root, file)):
            _put_file(_path(root, file), file)
    put_logs(root, quick)


def _put_file(path: str, file: FileWhole) -> None:
    """As `privatefiles.replacing` does, in half as many calls of the system."""
    new = path + SPARE
    try:
        handle = privatefiles.open_handle(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            _write(handle, file.octets, 0)
            os.utime(handle, ns=(file.time, file.time))
        finally:
            os.close(handle)
        os.replace(new, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(new)
        raise


def _path(root: Path, file: FileWhole) -> str:
    return _files(root, file.partition).path(file.digest)


@lru_cache(64)
def _files(root: Path, partition: str) -> MessageFiles:
    """To ask for paths: a Path costs more than a file."""
    return MessageFiles(root / "partitions" / partition)


def _is_there(root: Path, file: FileWhole) -> bool:
    with contextlib.suppress(FileNotFoundError):
        status = os.stat(_path(root, file))
        return (status.st_size, status.st_mtime_ns) == (file.size, file.time)
    return False


def put_logs(root: Path, quick: Quick) -> None:
    """Write the octets of logs that came to their places below that folder, unsynced. Raises OSError."""
    for each in quick.logs:
        path = f"{root}/{each.environment}/{log_name(each.file)}"
        try:
            handle = privatefiles.open_handle(path, os.O_WRONLY)
        except FileNotFoundError:
            handle = privatefiles.open_handle(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            if os.fstat(handle).st_size != each.at:
                os.ftruncate(handle, each.at)
            _write(handle, each.octets, each.at)
        finally:
            os.close(handle)


def _write(handle: int, octets: bytes, at: int) -> None:
    written = os.pwrite(handle, octets, at)
    while written < len(octets):
        written += os.pwrite(handle, memoryview(octets)[written:], at + written)


def sync_places(root: Path, state: StandbyState) -> None:
    """Return when all files of the standby are on disk. Raises OSError."""
    for name in state.ends:
        sync_file_system(root / name)


def replay(root: Path, state: StandbyState) -> StandbyState:
    """Put what the journals have into its places, on disk; the state then. Raises OSError."""
    begun = state
    for name in (*NAMES, NAMES[0]):             # each may be the older one
        for quick in _answers(root / name) if (root / name).exists() else ():
            if quick.known == state.ends:
                put(root, quick, again=True)
                state = quick.after(state)
    if state is not begun:
        sync_places(root, state)
        state = evolve(state, small={})         # what was no more then is asked for again
        state.save(root)
    drop(root)
    return state


def beyond(root: Path, state: StandbyState, *, in_place: bool = True) -> Iterator[Quick]:
    """What the journals have beyond that state, in order, as far as its message files are in their places; or all of
    it. For others than the process that follows. Nothing is changed. Raises OSError."""
    for name in (*NAMES, NAMES[0]):
        try:
            for quick in _answers(root / name):
                if quick.known == state.ends:
                    if in_place and not all(_is_there(root, file) for file in quick.files):
                        return
                    yield quick
                    state = quick.after(state)
        except FileNotFoundError:               # emptied: there, or a moment ago
            continue


def drop(root: Path) -> None:
    """What is in the journals counts no more. Raises OSError."""
    there = [root / name for name in NAMES if (root / name).exists()]
    for path in there:
        path.unlink()
    if there:
        sync_folder(root)


def _answers(path: Path) -> Iterator[Quick]:
    """Those that are whole."""
    with privatefiles.open_file(path) as file:
        while len(head := file.read(_SUM.size)) == _SUM.size:
            read = _Reading(file)
            try:
                answer = receive(read)
                if zlib.crc32(b"".join(read.octets)) != _SUM.unpack(head)[0]:
                    return
                yield Quick.of(answer)
            except (BadMessage, Ended):
                return


@define(eq=False)
class _Reading:
    """Reads a file, and keeps what it has read."""

    file: BinaryIO
    octets: list[bytes] = field(factory=list)

    def __call__(self, count: int) -> bytes:
        found = self.file.read(count)
        self.octets.append(found)
        return found
