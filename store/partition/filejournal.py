"""The file journal of a process: what it has received is on disk here before the message files themselves are.

To sync a new file the file system must write its own journal, too: 2 ms on a disk that syncs octets in place in 0.3.
So a process that serves a store writes each message of up to 128 KiB (`messagereading.SPILL`) to
`staging/journal-<serial>`: a file of one length that was written before, so that a sync of it changes nothing else of
the file system; one sync is for all messages that wait at that moment. Meanwhile the message is written to its file in
`staging/`, too, which is not synced. All message files are synced together (syncfs(2),
`MessageFiles.drop_staged_names`) each five seconds, or when half of the journal is full. Then its octets may be written
over. A message for which there is no room takes the long way: its own file is synced. A journal that is half full
sooner grows, since syncfs(2) writes more than message files: the shared memory of the databases, too.

After an end that was not clean `replay` writes what the journals have to the files in `staging/` once more, before
anything else looks at these. It writes to a name that is there, and makes none: whose staged name is gone, its file
was on disk before (`drop_staged_names`), or nobody wants it. It does not ask whether the file has the octets already:
memory may have what the disk has not, when a write has failed.

Who reads a store that nobody may write to, or has not recovered (a copy for reading, a volume that takes no writes, a
copied store that Spark reads), has `LeftMessages`: what a journal has counts there in the place of the file, which may
be empty, cut off, or full of zeros.

The format. A page of 4,096 octets: `MAGIC` and a secret of 32. Then records, each from the beginning of a page on:
serial, octets of the message, octets of its trace header, and a keyed digest (BLAKE2b by the secret, of these three,
the message's own digest, and the trace header); then the message. Records are found by looking at each page, since
older ones are written over in part. Hence the secret: what a stranger puts into a message cannot look like a record.
No page has octets of two records, so that a write that is torn harms only the record that it is about.
"""

import errno
import hashlib
import logging
import os
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_bytes

from attrs import define, field, frozen

from mboxlist import privatefiles
from mboxlist.engine.disk import sync_folder
from mboxlist.heldlocks import is_held, take
from mboxlist.setaside import set_aside
from store.errors import Problem, StoreError, disk_problem
from store.partition.messagefiles import MessageFiles, remove_name, sync_file_system
from store.partition.messagereading import MID_OCTETS
from store.partition.staged import Staged

log = logging.getLogger(__name__)

OCTETS = 2 << 20            # of a journal at first,
MOST_OCTETS = 64 << 20      # and when it has grown
LEFT = 10                   # journals of that size for which a volume must have room
SOON = 5.0                  # seconds between two syncs of all message files: it grows when they are fewer
PREFIX = "journal-"
MAGIC = b"onecopy file journal 1\n"
PAGE = 4096                 # octets that a file system writes whole
_SECRET = 32
_FIXED = struct.Struct("<QQQ")      # serial, octets of the message, octets of its trace header
_HEAD = _FIXED.size + MID_OCTETS
_ZEROS = bytes(1 << 20)


@frozen
class _Kept:
    """A message in the journal whose file may not be on disk yet: its number, from 1 on, and where its record begins.
    """

    number: int
    serial: int
    at: int
    octets: int


@define(eq=False)
class FileJournal:
    """The file journal of this process for a partition. The thread of the event loop appends; any other thread settles.
    """

    files: MessageFiles
    path: Path
    handle: int
    octets: int
    _secret: bytes = field(repr=False)
    _volume: int = field(repr=False)            # opened before the first message: it hears of all failures
    given_up: bool = False                      # nothing is appended any more
    _next: int = PAGE                           # where the next record comes if there is room
    _number: int = 0                            # of the last message
    _settled: float = 0.0                       # when the last sync of all began
    _kept: deque[_Kept] = field(factory=deque, repr=False)
    _doubtful: int = 0          # up to this number message files may have been written when a sync of all failed
    _settling: threading.Lock = field(factory=threading.Lock, repr=False)

    @classmethod
    def make(cls, files: MessageFiles, serial: int, octets: int = OCTETS) -> "FileJournal":
        """Make a journal, on disk, with that arrival serial in its name. For a thread. Raises StoreError DISK_FULL,
        UNAVAILABLE."""
        path = files.staging / f"{PREFIX}{serial:016x}"
        _require_room(files, octets)
        handle, volume, secret = -1, -1, token_bytes(_SECRET)
        try:
            handle = privatefiles.open_handle(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
            take(handle)
            _write(handle, (MAGIC + secret).ljust(PAGE, b"\0"), 0)
            _write_zeros(handle, PAGE, octets)
            sync_folder(files.staging)
            volume = privatefiles.open_folder(files.staging)
        except OSError as error:
            if handle >= 0:
                os.close(handle)
                with suppress(OSError):
                    remove_name(os.fspath(path))
            raise disk_problem(error) from error
        return cls(files, path, handle, octets, secret, volume)

    @property
    def holds(self) -> bool:
        """Whether it has messages whose files may not be on disk."""
        return bool(self._kept)

    @property
    def half_full(self) -> bool:
        """Whether it is time to `settle`."""
        kept = self._kept
        try:
            used = self._next - kept[0].at
        except IndexError:
            return False
        return (used if used > 0 else used + self.octets) > self.octets // 2

    def append(self, staged: Staged, begin: Callable[[], object] = lambda: None) -> bool:
        """Write the message to the journal, and to its file. The message is on disk when `handle` has been synced;
        `begin` may start that sync, and the file is written meanwhile. False: the message is not in the journal, and
        its file must be synced. Raises StoreError DISK_FULL, UNAVAILABLE when its file cannot be written."""
        octets = staged.in_memory()
        if octets is None or self.given_up:
            return False
        pages = -(-(_HEAD + len(octets)) // PAGE) * PAGE
        at = self._room(pages)
        if not at:
            return False
        try:
            _write(self.handle, _head(self._secret, staged.serial, octets, staged.trace, staged.digest) + octets, at)
        except OSError as error:
            log.error("%s cannot be written (%s): message files are synced one by one", self.path, error.strerror)
            self.given_up = True
            return False
        self._next = at + pages
        staged.written = True       # its serial is nobody else's, whatever comes: a start would write this to that file
        begin()
        staged.unsynced()
        self._number += 1           # only now: a `settle` meanwhile does not sync this file
        self._kept.append(_Kept(self._number, staged.serial, at, len(octets)))
        return True

    def _room(self, octets: int) -> int:
        """Where that many octets have room; 0: nowhere."""
        try:
            first = self._kept[0].at
        except IndexError:              # all is free
            return self._next if self._next + octets <= self.octets else PAGE if PAGE + octets <= self.octets else 0
        if self._next <= first:
            return self._next if self._next + octets <= first else 0
        if self._next + octets <= self.octets:
            return self._next
        return PAGE if PAGE + octets <= first else 0

    def grow(self) -> None:
        """Become twice as large. For a thread. Raises StoreError DISK_FULL, UNAVAILABLE."""
        octets = min(2 * self.octets, MOST_OCTETS)
        if octets > self.octets:
            _require_room(self.files, octets)
            try:
                # Of each failed write a descriptor hears once (fsync(2)): of one to a message that of the journal must.
                handle = privatefiles.open_handle(self.path, os.O_WRONLY)
                try:
                    _write_zeros(handle, self.octets, octets)
                finally:
                    os.close(handle)
            except OSError as error:
                raise disk_problem(error) from error
            self.octets = octets

    @property
    def settled_lately(self) -> bool:
        """Whether `settle` began so short a time ago that the journal is too small."""
        return time.monotonic() - self._settled < SOON

    def settle(self, give_names: Callable[[], None] = lambda: None) -> None:
        """Return when all message files that had been written before are on disk, with their names. For a thread.
        `give_names` is called before each sync, and gives again the names that a failed sync may have lost. Raises
        OSError: then the journal keeps what it has. Before the next sync it writes to the files once more what had been
        written when a sync failed."""
        with self._settling:
            if self.handle < 0:
                raise OSError(errno.EBADF, "the file journal is closed")
            last, self._settled = self._number, time.monotonic()
            for again in (False, True):
                try:
                    self._write_again(last)
                    give_names()
                    sync_file_system(self._volume)
                    break
                except OSError as error:
                    self._doubtful = self._number + 1       # the one that is being written, too
                    self.files.failed_volume_syncs += 1
                    if again:
                        raise
                    log.error("message files of %s cannot be synced: %s", self.files.folder.parent, error.strerror)
            while self._kept and self._kept[0].number <= last:
                self._kept.popleft()

    def _write_again(self, last: int) -> None:
        """Write these files again. After a write that has failed, memory has what the disk has not, and the kernel does
        not write it again (fsync(2))."""
        if not self._kept or self._kept[0].number > self._doubtful:
            return
        for kept in [each for each in tuple(self._kept) if each.number <= min(last, self._doubtful)]:
            _put(self.files.staged_path(kept.serial), os.pread(self.handle, kept.octets, kept.at + _HEAD))

    def close(self) -> None:
        """Close the journal, and remove its file unless a start may need it. A second call does nothing."""
        with self._settling:        # who settles uses what is closed here
            if self.handle < 0:
                return
            if not self._kept:
                with suppress(OSError):
                    remove_name(os.fspath(self.path))
            os.close(self.handle)
            os.close(self._volume)
            self.handle, self.given_up = -1, True       # another file may get its descriptor


def is_journal(name: str) -> bool:
    """Whether that is the name of a journal."""
    return name.startswith(PREFIX)


def replay(staging: Path) -> int:
    """Put on disk the message files that journals in that folder have, and remove the journals; how many files there
    were. For the process that opens the partition first. A journal that cannot be read to its end is set aside. Raises
    OSError."""
    if not (paths := _journals(staging)):
        return 0
    volume, done, count = privatefiles.open_folder(staging), dict[Path, list[OSError]](), 0
    try:
        for path in paths:
            with _opened(path) as handle:
                if take(handle):            # else a process has it
                    done[path] = []
                    for record in _records(handle, done[path]):
                        count += _put(f"{staging}/{record.serial:016x}", record.message)
        sync_file_system(volume)
    finally:
        os.close(volume)
    for path, failures in done.items():
        if failures:                # it may become readable, on another disk or later
            log.error("%s cannot be read at %d places (%s): messages may be damaged; it is %s now", path, len(failures),
                      failures[0].strerror, set_aside(staging.parent, f"{staging.name}/{path.name}"))
        else:
            path.unlink()
    if count:
        log.info("%s: %d message files were written once more", staging, count)
    return count


@frozen(eq=False)
class _Record:
    """A message in a journal, at that place: its serial, the octets of its file, and the digest of its content."""

    at: int
    serial: int
    message: bytes
    digest: bytes


def _records(handle: int, failures: list[OSError]) -> Iterator[_Record]:
    """The records that are whole. Those that were written over are left out, and so are those that cannot be read:
    these are counted as failures."""
    size, secret = os.fstat(handle).st_size, _secret_of(handle, failures)
    at = PAGE
    while secret and at < size:
        record = _record(handle, secret, at, size, failures)
        if record is not None:
            yield record
        at += PAGE if record is None else -(-(_HEAD + len(record.message)) // PAGE) * PAGE


def _secret_of(handle: int, failures: list[OSError]) -> bytes:
    """b"": the journal was not made to its end."""
    first = _read(handle, PAGE, 0, failures)
    return first[len(MAGIC):][:_SECRET] if first.startswith(MAGIC) else b""


def _record(handle: int, secret: bytes, at: int, size: int, failures: list[OSError]) -> _Record | None:
    """The record at that place; None if there is no whole one."""
    head = _read(handle, _HEAD, at, failures)
    serial, octets, trace = _FIXED.unpack(head[:_FIXED.size]) if len(head) == _HEAD else (0, 0, 0)
    if not (trace <= octets and 0 < octets <= size - at - _HEAD):
        return None
    message = _read(handle, octets, at + _HEAD, failures)
    digest = hashlib.blake2b(memoryview(message)[trace:], digest_size=MID_OCTETS).digest()
    whole = len(message) == octets and head == _head(secret, serial, message, trace, digest)
    return _Record(at, serial, message, digest) if whole else None


def _read(handle: int, octets: int, at: int, failures: list[OSError]) -> bytes:
    try:
        return os.pread(handle, octets, at)
    except OSError as error:
        failures.append(error)
        return b""


def _head(secret: bytes, serial: int, octets: bytes, trace: int, digest: bytes) -> bytes:
    """What stands before a message in the journal."""
    fixed = _FIXED.pack(serial, len(octets), trace)
    return fixed + hashlib.blake2b(fixed + digest + octets[:trace], key=secret, digest_size=MID_OCTETS).digest()


def _put(path: str, octets: bytes) -> bool:
    """Write the message file, unsynced, if that name exists; whether it does."""
    try:
        handle = privatefiles.open_handle(path, os.O_WRONLY)
    except FileNotFoundError:
        return False
    try:
        _write(handle, octets, 0)
        os.ftruncate(handle, len(octets))
    finally:
        os.close(handle)
    return True


@frozen(eq=False)
class LeftMessages:
    """The messages in file journals of a partition that no process holds: see the module's text. They are looked for
    once. A record is looked at again when it is read, since a process of another host may hold the journal and write
    over it."""

    _found: dict[int, tuple[Path, int]]         # by serial: the journal, and the place in it
    _serials: dict[bytes, int]                  # by digest

    @classmethod
    def of(cls, staging: Path) -> "LeftMessages | None":
        """The left messages of that folder; None if there are none."""
        found, serials = dict[int, tuple[Path, int]](), dict[bytes, int]()
        for path in _journals(staging):
            failures: list[OSError] = []
            try:
                if not is_held(path):
                    with _opened(path) as handle:
                        for record in _records(handle, failures):
                            found[record.serial], serials[record.digest] = (path, record.at), record.serial
            except FileNotFoundError:               # its process has just ended
                continue
            except OSError as error:
                failures.append(error)
            if failures:
                log.error("%s cannot be read at %d places (%s): messages may be damaged", path, len(failures),
                          failures[0].strerror)
        return cls(found, serials) if found else None

    def has(self, serial: int) -> bool:
        """Whether the message of that arrival serial is there."""
        return serial in self._found

    def message(self, serial: int) -> bytes | None:
        """The octets of that message's file; None: there are none."""
        record = self._read(serial)
        return None if record is None else record.message

    def of_content(self, digest: bytes) -> bytes | None:
        """The octets of the file of that content."""
        serial = self._serials.get(digest)
        return None if serial is None else self.message(serial)

    def digest(self, serial: int) -> bytes | None:
        """The digest of that message's content."""
        record = self._read(serial)
        return None if record is None else record.digest

    def open(self, serial: int) -> int:
        """A descriptor of a file in memory with those octets; -1: there are none. Raises OSError."""
        octets = self.message(serial)
        if octets is None:
            return -1
        handle = os.memfd_create("onecopy-message", os.MFD_CLOEXEC)
        try:
            _write(handle, octets, 0)
        except OSError:
            os.close(handle)
            raise
        return handle

    def _read(self, serial: int) -> _Record | None:
        path, at = self._found.get(serial, (None, 0))
        if path is None:
            return None
        try:
            with _opened(path) as handle:
                record = _record(handle, _secret_of(handle, []), at, os.fstat(handle).st_size, [])
        except FileNotFoundError:           # somebody has opened the store for writing: the files have it all
            return None
        return record if record is not None and record.serial == serial else None


def _journals(staging: Path) -> list[Path]:
    return sorted(path for path in staging.iterdir() if is_journal(path.name)) if staging.is_dir() else []


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    handle = privatefiles.open_regular(path)
    try:
        yield handle
    finally:
        os.close(handle)


def _require_room(files: MessageFiles, octets: int) -> None:
    if files.volume()[0] < LEFT * octets:
        raise StoreError(Problem.DISK_FULL, detail=f"there is no room for a file journal of {octets} octets")


def _write_zeros(handle: int, begin: int, end: int) -> None:
    for at in range(begin, end, len(_ZEROS)):       # in pieces: a message that comes meanwhile waits for one of them
        _write(handle, _ZEROS[:end - at], at)
        os.fsync(handle)
        # What is in memory of it is in large pages, of which the kernel counts all for each message.
        os.posix_fadvise(handle, at, len(_ZEROS), os.POSIX_FADV_DONTNEED)


def _write(handle: int, octets: bytes, at: int) -> None:
    written = os.pwrite(handle, octets, at)
    while written < len(octets):
        written += os.pwrite(handle, memoryview(octets)[written:], at + written)
