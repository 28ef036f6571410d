"""What a standby has on disk and has not put into its places yet: two files `standby.journal.0` and `.1` in its folder.

A round that brings little (`copysource`, `quick`) costs one sync: its answer is appended to a journal, as it came, and
that is what the other machine may count on. Then octets of logs and message files are written to their places without a
sync. From time to time, in a thread, the file systems are synced, `standby.json` says how far that is, and the journal
begins again in the other file. The files stay, and are written over, and one that is too short gets zeros behind its
end, `GROW` octets at a time: a sync that changes no length takes two thirds of the time of another one, and none that
others wait for.
Whatever is left of a journal after an end is put into its places once more (`replay`):
each answer says from where to where it leads, so nothing is done out of order, and a rest that is not whole is none.

An answer that came `ahead` stays in the journal only, as the last one, until another one goes on from it: if the first
machine loses its power in that moment, it comes back without what it had not synced, and goes on otherwise. Then the
answer that leads away from the same place takes its place. When the standby is promoted instead, it counts: somebody
may have been told that it is done, by a first machine that had synced it.
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
from mboxlist.engine.disk import replace_file, sync_folder
from mboxlist.engine.logfiles import log_name
from store.partition.messagefiles import SPARE, MessageFiles, sync_file_system
from store.standby.copyformat import FileWhole, Quick
from store.standby.standbystate import StandbyState
from store.usermove.messageformat import ANSWER_OCTETS, BadMessage, Ended, Message, encode, receive

NAMES = "standby.journal.0", "standby.journal.1"
EMPTY_OCTETS = 64 << 20   # of a journal, after which it is emptied,
EMPTY_SECONDS = 5.0        # or after so long
GROW = 1 << 20
COPIED_OCTETS = 64 << 10   # of an answer: fewer are written together with its fields
_SUM = struct.Struct(">I")  # before each answer: its checksum


@define(eq=False)
class Journal:
    """The journal of one process that follows."""

    root: Path
    _file: BinaryIO | None = field(default=None, init=False)
    _number: int = field(default=0, init=False)
    _octets: int = field(default=0, init=False)
    _length: int = field(default=0, init=False)     # of the file
    _since: float = field(default=0.0, init=False)
    _emptying: threading.Thread | None = field(default=None, init=False)
    _failed: OSError | None = field(default=None, init=False)

    def append(self, answer: Message) -> None:
        """Return when the answer is on disk. Raises OSError."""
        parts = _with_sum(answer)
        if self._file is None:
            self._file = self._begin()
        handle, at = self._file.fileno(), self._octets
        if (end := at + sum(map(len, parts))) > self._length:
            self._length = end + os.pwrite(handle, bytes(GROW), end)
        for part in parts:
            _write(handle, part, at)
            at += len(part)
        os.fdatasync(handle)
        self._octets = end

    def _begin(self) -> BinaryIO:
        """The next file. One that is there is written over: so a sync changes its octets only, and not its length."""
        path = self.root / NAMES[self._number]
        try:
            file = privatefiles.open_file(path, "r+b", 0)
        except FileNotFoundError:
            file = privatefiles.open_file(path, "wb", 0)
            sync_folder(self.root)
        self._octets, self._length, self._since = 0, os.fstat(file.fileno()).st_size, time.monotonic()
        return file

    def is_due(self) -> bool:
        """Whether the journal should be emptied, and can be begun again."""
        return self._file is not None and (self._octets >= EMPTY_OCTETS or time.monotonic() - self._since
                                           >= EMPTY_SECONDS) and not (
            self._emptying is not None and self._emptying.is_alive())

    def begin_emptying(self, state: StandbyState, ahead: Message | None = None) -> None:
        """Have all that was appended in its places on disk, and this state on record, in a thread; but for the last
        answer, if it came `ahead`: that stays. Raises OSError: the last time this has failed."""
        self._join()
        if self._file is None:
            return
        old, self._file = self._file, None
        self._number = 1 - self._number
        if ahead is not None:
            self.append(ahead)
        emptying = threading.Thread(target=self._empty, args=(state, old), name="emptying")
        try:
            emptying.start()
        except RuntimeError:            # there is no thread
            self._empty(state, old)
        else:
            self._emptying = emptying

    def empty(self, state: StandbyState, ahead: Message | None = None) -> None:
        """Return when that is done. Raises OSError."""
        self.begin_emptying(state, ahead)
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


def put(root: Path, quick: Quick) -> None:
    """Write what came to its places, unsynced: message files, and octets of logs. A large message file is there
    already, since it came by itself. After an end all is written once more: a file may have its length and its time on
    disk, and not its octets. Raises OSError."""
    for file in quick.files:
        if len(file.octets) == file.size:
            _put_file(_path(root, file), file)
    put_logs(root, quick)


def _put_file(path: str, file: FileWhole) -> None:
    """Under its name at once: nobody looks for it before `standby.json` or a journal tells of it, and until it is whole
    it has another size or time. One that has the name already, whole or cut off, is replaced, since copies for reading
    are links to it."""
    new = path
    try:
        handle = privatefiles.open_handle(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    except FileExistsError:
        new = path + SPARE
        handle = privatefiles.open_handle(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        try:
            _write(handle, file.octets, 0)
            os.utime(handle, ns=(file.time, file.time))
        finally:
            os.close(handle)
        if new is not path:
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


def replay(root: Path, state: StandbyState, *, ahead: bool = True) -> StandbyState:
    """Put what the journals have into its places, on disk; the state then. Unless `ahead`, one that came so stays in a
    journal. Raises OSError."""
    begun, kept = state, None
    for quick, answer, is_sure in _in_order(root, state):
        if is_sure or ahead:
            put(root, quick)
            state = quick.after(state)
        else:
            kept = answer
    if state is not begun:
        sync_places(root, state)
        state = evolve(state, small={})         # what was no more then is asked for again
        state.save(root)
    if kept is None:
        drop(root)
    else:
        replace_file(root / NAMES[1], b"".join(_with_sum(kept)))      # what comes is appended to the other one
        (root / NAMES[0]).unlink(missing_ok=True)
        sync_folder(root)
    return state


def beyond(root: Path, state: StandbyState, *, in_place: bool = True, all_of_it: bool = False) -> Iterator[Quick]:
    """What the journals have beyond that state, in order, as far as its message files are in their places; or all of
    it. What came ahead only for `all_of_it`: a reader would see what may be gone. For others than the process that
    follows. Nothing is changed. Raises OSError."""
    for quick, _, is_sure in _in_order(root, state):
        if not (is_sure or all_of_it) or in_place and not all(_is_there(root, file) for file in quick.files):
            return
        yield quick


def ahead(root: Path, state: StandbyState) -> Quick | None:
    """The last answer, if it came ahead and nobody knows whether the first machine has it. Raises OSError."""
    return next((quick for quick, _, is_sure in _in_order(root, state) if not is_sure), None)


def _in_order(root: Path, state: StandbyState) -> Iterator[tuple[Quick, Message, bool]]:
    """The answers that lead on from that state, and whether the first machine has their logs on disk; one of which
    nobody knows comes last."""
    ends, ahead = state.ends, list[tuple[Quick, Message]]()
    for name in (*NAMES, NAMES[0]):             # each may be the older one
        for quick, answer in _answers(root / name):
            if ahead and quick.known == ahead[0][0].ends:
                yield *ahead.pop(), True
                ends = quick.known
            if quick.known == ends:
                ahead.clear()                   # the first machine has come back without it, or it is the one
                if quick.ahead:
                    ahead.append((quick, answer))
                else:
                    yield quick, answer, True
                    ends = quick.ends
    for last in ahead:
        yield *last, False


def drop(root: Path) -> None:
    """Have what is in the journals count no more. Raises OSError."""
    there = [root / name for name in NAMES if (root / name).exists()]
    for path in there:
        path.unlink()
    if there:
        sync_folder(root)


def _with_sum(answer: Message) -> list[bytes]:
    """A message as it is in a journal: in one part, or in two where that copies less."""
    head, octets = answer.head, answer.octets
    if not head:
        head, octets = encode(answer.fields, octets, ANSWER_OCTETS), b""
    first = _SUM.pack(zlib.crc32(octets, zlib.crc32(head))) + head
    return [first + octets] if len(octets) < COPIED_OCTETS else [first, octets]


def _answers(path: Path) -> Iterator[tuple[Quick, Message]]:
    """The answers that are whole; none of a file that is not there: it has been emptied, perhaps a moment ago."""
    with contextlib.ExitStack() as opened:
        try:
            file = opened.enter_context(privatefiles.open_file(path))
        except FileNotFoundError:
            return
        while len(head := file.read(_SUM.size)) == _SUM.size:
            read = _Reading(file)
            try:
                answer = receive(read, octets=ANSWER_OCTETS)
                if zlib.crc32(b"".join(read.octets)) != _SUM.unpack(head)[0]:
                    return
                yield Quick.of(answer), answer
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
