"""The message files against their digests: what the disk gave back wrong, lost, or has and nobody knows.

A partition is gone through folder by folder, 4,096 of them, each with as many files. It runs beside the servers: what
looks wrong is looked at again, since a file may have been purged, or have come, meanwhile. Pages of files that were not
in the system's memory are let go at once, so that what clients read stays there; pages that were are read from there.
"""

import contextlib
import ctypes
import errno
import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from attrs import define, evolve, field, frozen

from mboxlist.engine.btree import Txn
from mboxlist.engine.transact import transact
from mboxlist.setaside import stands_in_the_way
from store.check.filecheck import is_file, repair_of_strangers
from store.check.layout import REPAIR
from store.errors import Problem, StoreError
from store.partition.messagereading import MID_OCTETS, digest_in, is_intact
from store.partition.partition import Partition
from store.tables.references import MessageRecord
from store.values import RESTORE, SWEEP, Finding

FOLDERS = 16 * 256
MOST_OCTETS = 1 << 20       # that are read at a time,
LEAST_OCTETS = 4096         # with a low rate
_READS = 10                 # in a second, with a rate so low that it counts
_IOPRIO_SET = {"x86_64": (251, 252), "aarch64": (30, 31)}      # system call numbers of ioprio_set(2), ioprio_get(2)
_IDLE = 3 << 13             # IOPRIO_CLASS_IDLE
_THIS_THREAD = (1, 0)       # IOPRIO_WHO_PROCESS, 0
_LOOKS = 3                  # at a file that goes and comes again all the time
_MISSING = "its file is missing"
_NO_FILE = "it is not a file"
_libc = ctypes.CDLL(None, use_errno=True)


@define
class Pace:
    """No more than `rate` octets a second (0: as many as there are), on the average since it was made."""

    rate: int = 0
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    octets: int = field(default=0, init=False)
    _begun: float | None = field(default=None, init=False)

    @property
    def read_octets(self) -> int:
        """How many to read at a time, so that no sleep is long."""
        return min(MOST_OCTETS, max(LEAST_OCTETS, self.rate // _READS)) if self.rate else MOST_OCTETS

    def count(self, octets: int) -> None:
        """So many were read: wait until they may have been."""
        now = self.clock()
        if self._begun is None:
            self._begun = now
        self.octets += octets
        ahead = self.octets / self.rate - (now - self._begun) if self.rate else 0
        if ahead > 0:
            self.sleep(ahead)


@frozen
class Folder:
    """What was found in one of the 4,096 folders; `number` counts them from 0."""

    number: int
    files: int
    findings: list[Finding]

    @property
    def name(self) -> str:
        """The digits that the digests in it begin with."""
        return f"{self.number:03x}"


class Stopped(Exception):
    """`stop` said so; the folder that was begun is not done."""


def scrub(partition: Partition, pace: Pace, *, first: int = 0, sweep: bool = False,
          stop: Callable[[], bool] = lambda: False) -> Iterator[Folder]:
    """Read every message file from the folder `first` on; a `Folder` for each that is done.

    `sweep` removes the files that nobody knows. `stop` is asked between two reads. Raises Stopped.
    """
    buffer = memoryview(bytearray(pace.read_octets))
    for number in range(first, FOLDERS):
        yield _folder(partition, number, _Reader(partition, pace, buffer, stop), sweep)


@define
class Scrubbed:
    """What a scrub of several partitions has found so far. `stopped`: the place from which another one goes on."""

    folders: int = 0
    files: int = 0
    findings: list[Finding] = field(factory=list)
    stopped: str | None = None
    _told: set[Finding] = field(factory=set, init=False)        # what concerns many folders is told once

    def add(self, folder: Folder) -> Folder:
        """One more; what is new of what was found in it."""
        new = [finding for finding in folder.findings if finding not in self._told]
        self._told.update(finding for finding in new if finding.repair == REPAIR)
        self.folders += 1
        self.files += folder.files
        self.findings += new
        return evolve(folder, findings=new)


def scrub_all(partitions: Sequence[Partition], pace: Pace, found: Scrubbed, *, first: int, sweep: bool,
              stop: Callable[[], bool]) -> Iterator[Folder]:
    """Scrub these partitions, the first one from the folder `first` on; what is found is added to `found`."""
    for partition in partitions:
        try:
            for folder in scrub(partition, pace, first=first, sweep=sweep, stop=stop):
                first = folder.number + 1
                yield found.add(folder)
        except Stopped:
            found.stopped = f"{partition.name}/{first:03x}"
            return
        first = 0


def _folder(partition: Partition, number: int, reader: "_Reader", sweep: bool) -> Folder:
    start = (number << 4).to_bytes(2, "big")
    end = (number + 1 << 4).to_bytes(2, "big") if number + 1 < FOLDERS else None
    records = dict(partition.refs.all(start=start, end=end))
    findings = [found for digest, record in records.items() if (found := reader.examine(digest, record)) is not None]
    name = f"{number:03x}"
    place, strange = partition.files.folder / name[0] / name[1:], []
    try:
        with os.scandir(place) as entries:
            strange = sorted(entry.path for entry in entries if digest_in(entry.name) not in records)
    except OSError as error:
        findings = [_of_folder(partition, place, error), *(found for found in findings if found.what != _MISSING)]
    findings += [found for path in strange if (found := _unknown(partition, path, sweep)) is not None]
    return Folder(number, len(records), findings)


def _of_folder(partition: Partition, place: Path, error: OSError) -> Finding:
    """Of a folder that cannot be listed: for all that are lost with one above them, that one."""
    missing = place
    for above in (place.parent, partition.files.folder):
        missing = missing if above.is_dir() else above
    if not os.path.lexists(missing):
        return Finding("the folder is missing", str(missing), REPAIR)
    if not missing.is_dir():
        return Finding("it is not a folder", str(missing), REPAIR)
    return Finding(f"the folder cannot be read: {error.strerror}", str(place), RESTORE)


def _unknown(partition: Partition, path: str, sweep: bool) -> Finding | None:
    """A file without a row: it is looked at again, and removed by `sweep`, while its row is locked; unless it may be
    all that is left of a message."""
    digest, repair = digest_in(os.path.basename(path)), repair_of_strangers(partition)
    sweep = sweep and repair == SWEEP

    def work(txn: Txn) -> Finding | None:
        if partition.refs.find_to_change(digest, txn) is not None:
            return None                             # it came meanwhile
        if not os.path.lexists(path):
            return None                             # it was purged meanwhile
        if not is_file(path):
            return Finding(_NO_FILE, path, REPAIR)
        if sweep:
            os.unlink(path)
        return Finding("nothing is known of this file" + (": it was removed" if sweep else ""), path, repair)

    return transact(partition.env, work, reads=not sweep)


@frozen
class _Reader:
    """Reads message files, and says what is wrong with them."""

    partition: Partition
    pace: Pace
    buffer: memoryview
    stop: Callable[[], bool]

    def examine(self, digest: bytes, record: MessageRecord) -> Finding | None:
        """What is wrong with the message file. Raises Stopped."""
        for _ in range(_LOOKS):
            wrong = self._wrong(digest, record)
            now = self.partition.refs.find(digest, raw=True) if wrong else None
            if wrong is None or now is None:
                return None             # or it was purged meanwhile
            if wrong == _MISSING and now.references <= self.partition.removed.counts()[digest]:
                return None             # as a purge leaves it that was cut off; or it was expunged
            if wrong == _NO_FILE:
                return Finding(wrong, self.partition.files.path(digest), REPAIR)
            if now.serial == record.serial:
                return Finding(wrong, f"message {digest.hex()}", RESTORE)
            record = now                # purged, and come again
        return None

    def _wrong(self, own_digest: bytes, record: MessageRecord) -> str | None:
        try:
            record = self.partition.refs.complete(own_digest, record)
            file = self.partition.files.open(own_digest, record.serial, 0, record.size)
        except StoreError as refusal:
            if stands_in_the_way(Path(self.partition.files.path(own_digest))):
                return _NO_FILE
            return _MISSING if refusal.problem is Problem.CORRUPT else f"its file cannot be opened: {refusal.detail}"
        with file:
            status = os.fstat(file.fileno)
            if not stat.S_ISREG(status.st_mode):
                return _NO_FILE
            size = status.st_size
            if size != record.size:
                return f"its file has {size} octets instead of {record.size}"
            try:
                digest, trace = self._digest_of(file.fileno, record.trace), file.read(0, record.trace)
            except OSError as error:
                return f"its file cannot be read: {error.strerror}"
            except StoreError as error:
                return f"its file cannot be read: {error.detail}"
        if digest != own_digest:
            return "its file does not agree with its digest"
        return None if is_intact(trace) else "its trace header does not agree with the sum in it"

    def _digest_of(self, fileno: int, trace: int) -> bytes:
        digest = hashlib.blake2b(digest_size=MID_OCTETS)
        os.posix_fadvise(fileno, 0, 0, os.POSIX_FADV_RANDOM)        # no reading ahead: it would look as if in memory
        offset = trace
        while True:
            if self.stop():
                raise Stopped
            count = _read(fileno, self.buffer, offset)
            if not count:
                return digest.digest()
            digest.update(self.buffer[:count])
            offset += count
            self.pace.count(count)


def _read(fileno: int, buffer: memoryview, offset: int) -> int:
    """Octets into the buffer; how many. What had to be fetched from the disk does not stay in memory."""
    try:
        return os.preadv(fileno, [buffer], offset, os.RWF_NOWAIT)
    except OSError as error:
        if error.errno not in (errno.EAGAIN, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
            raise
    count = os.preadv(fileno, [buffer], offset)
    os.posix_fadvise(fileno, offset, count, os.POSIX_FADV_DONTNEED)
    return count


@contextlib.contextmanager
def low_priority() -> Iterator[None]:
    """The disk serves this thread when nobody else wants it, where the system knows such a thing."""
    calls = _IOPRIO_SET.get(os.uname().machine)
    before = _libc.syscall(calls[1], *_THIS_THREAD) if calls else -1
    if calls and before >= 0:
        _libc.syscall(calls[0], *_THIS_THREAD, _IDLE)
    try:
        yield
    finally:
        if calls and before >= 0:
            _libc.syscall(calls[0], *_THIS_THREAD, before)
