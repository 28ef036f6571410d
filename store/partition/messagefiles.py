"""Message files: one immutable file a message, named by the digest of its content.

A message being received is a `Staged` (`store/partition/staged.py`). Its file is `staging/<arrival serial>`; once its
transaction is on disk the file gets its second name, `messages/3/fa/<mid>`. The first goes when a later sync of the
whole file system has put the second on disk (`drop_staged_names`): so a name is on disk at every moment, and no
delivery has to sync a folder of its own. A reader looks under both names.

The name in `staging/` is on disk before the message comes: empty files are made ahead, many at a time (`make_ready`),
so that a message only has to sync its own octets. When none is left it makes its file itself, and the folder is synced
too.
"""

import ctypes
import logging
import os
import time
import weakref
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Protocol

from mboxlist import privatefiles
from mboxlist.engine.disk import sync_folder
from mboxlist.setaside import make_way, stands_in_the_way
from store.errors import Problem, StoreError, disk_problem

log = logging.getLogger(__name__)

MID_OCTETS = 32             # BLAKE2b, 256 bits
FEW_READY = 32              # files that are ready: below that more are made
SPILL = 128 * 1024          # octets kept in memory before the file is made, and between writes to it
READING = os.O_RDONLY | os.O_NONBLOCK       # a pipe that stands in the place of a file has nobody wait
SPARE = ".new"              # ends a name that a file has while it takes the place of another
FEW_FOLDERS = 8             # that are synced one by one; more of them are synced with all of the file system
_libc = ctypes.CDLL(None, use_errno=True)


class Receiving(Protocol):
    """A message that is being received: a `Staged`."""

    serial: int


class MessageFiles:
    """The message files of one partition: `messages/` and `staging/`. `committed` says whether the databases refer to
    the file with that digest and serial: a message that has come whole is not removed before it has been asked."""

    def __init__(self, partition: Path, committed: Callable[[bytes, int], bool] = lambda digest, serial: False) -> None:
        self.committed = committed
        self.folder = partition / "messages"
        self.staging = partition / "staging"
        self._folder, self._staging = str(self.folder), str(self.staging)   # a Path costs more than opening the file
        self._placed: deque[int] = deque()
        self.receiving: set[weakref.ref[Receiving]] = set()    # while one lives its file is not left over
        self._ready: deque[int] = deque()       # serials whose empty files are on disk
        self.few_ready = True           # more should be made ready
        self._names = -1                # an open descriptor of `staging/`

    def make_folders(self) -> None:
        """All 16 x 256 folders, so that no delivery makes, and must sync, one. Some may be there."""
        outer = [self._staging, self._folder, *(f"{self._folder}/{first}" for first in "0123456789abcdef")]
        for path in chain(outer, self.folders()):
            with suppress(FileExistsError):
                privatefiles.make_folder(path)

    def make_lost_folders(self) -> None:
        """Make those that a copy of the store leaves out, since nothing is in them. Raises OSError."""
        there = {self._staging, self._folder} if self.staging.is_dir() and self.folder.is_dir() else set()
        for first in "0123456789abcdef" if there else "":
            with suppress(FileNotFoundError):       # listed: looking at each of 4,096 would read as many from the disk
                there.update(f"{self._folder}/{first}/{name}" for name in os.listdir(f"{self._folder}/{first}"))
        if there.issuperset((self._staging, *self.folders())):
            return
        self.make_folders()
        sync_file_system(self.folder)

    def folders(self) -> Iterator[str]:
        """Where all the folders are, or should be."""
        for first in "0123456789abcdef":
            for second in range(256):
                yield f"{self._folder}/{first}/{second:02x}"

    def path(self, digest: bytes) -> str:
        """Where the file of that digest is, or will be."""
        name = digest.hex()
        return f"{self._folder}/{name[0]}/{name[1:3]}/{name}"

    def staged_path(self, serial: int) -> str:
        """Where the message of that arrival serial is before it has its place."""
        return f"{self._staging}/{serial:016x}"

    def locate(self, digest: bytes, serial: int) -> Path | None:
        """Where the file is now."""
        final = self.path(digest)
        return next((Path(path) for path in (final, self.staged_path(serial), final) if os.path.exists(path)), None)

    def open(self, digest: bytes, serial: int, header_length: int, size: int, head: bytes = b"") -> "MessageFile":
        """The message for reading; see `MessageFile`. Raises StoreError CORRUPT when its file is missing, UNAVAILABLE.
        """
        final = self.path(digest)
        for look in range(3):           # it may get its place between the first two looks
            path = self.staged_path(serial) if look == 1 else final
            try:
                return MessageFile(privatefiles.open_handle(path, READING), header_length, size, head)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise disk_problem(error) from error
        if not os.path.isdir(self._folder):         # the volume is not mounted
            raise StoreError(Problem.UNAVAILABLE, detail=f"{self._folder} is missing")
        raise StoreError(Problem.CORRUPT, "The message cannot be read", f"message file {digest.hex()} is missing")

    def beginnings(self, digests: Iterable[bytes], serials: Iterable[int],
                   ends: Iterable[int]) -> Iterator[bytes | None]:
        """Of each message file so many octets; None for one that cannot be read or does not have so many.

        A file costs the three system calls and next to nothing else: this is what a search in many files waits for.
        """
        return map(self.beginning, digests, serials, ends)

    def beginning(self, digest: bytes, serial: int, end: int) -> bytes | None:
        """`beginnings` of one."""
        name = digest.hex()
        try:
            handle = privatefiles.open_handle(f"{self._folder}/{name[0]}/{name[1:3]}/{name}", READING)
        except FileNotFoundError:
            return self._beginning(digest, serial, end)
        except OSError:
            return None
        try:
            data = os.read(handle, end)
        except OSError:
            return None
        finally:
            os.close(handle)
        return data if len(data) == end else None

    def _beginning(self, digest: bytes, serial: int, end: int) -> bytes | None:
        try:
            with self.open(digest, serial, 0, end) as file:
                return file.read(0, end)
        except StoreError:
            return None

    def sync_names(self) -> None:
        """Return when the names in `staging/` are on disk. For a thread."""
        try:
            if self._names < 0:
                self._names = privatefiles.open_folder(self.staging)
            os.fsync(self._names)
        except OSError as error:
            raise disk_problem(error) from error

    @property
    def ready(self) -> int:
        """How many messages can come before more files must be made."""
        return len(self._ready)

    def make_ready(self, serials: Iterable[int]) -> None:
        """Make files for messages to come. For a thread. Raises StoreError DISK_FULL, UNAVAILABLE."""
        made = []
        try:
            for serial in serials:
                os.close(privatefiles.open_handle(self.staged_path(serial), os.O_WRONLY | os.O_CREAT | os.O_EXCL))
                made.append(serial)
            self.sync_names()
        except (OSError, StoreError) as error:
            for serial in made:
                remove_name(self.staged_path(serial))
            if isinstance(error, OSError):
                raise disk_problem(error) from error
            raise
        self._ready.extend(made)
        self.few_ready = False

    def take_ready(self) -> int | None:
        """The serial of a file that was made ready, if there is one."""
        self.few_ready = len(self._ready) <= FEW_READY
        try:
            return self._ready.popleft()
        except IndexError:
            return None

    def give_back(self, serial: int) -> None:
        """The file that was made ready has not been used."""
        self._ready.append(serial)

    def close(self) -> None:
        """Let go of the folder, and of the files that were made ready."""
        while (serial := self.take_ready()) is not None:
            remove_name(self.staged_path(serial))
        if self._names >= 0:
            os.close(self._names)
            self._names = -1

    def place(self, serial: int, digest: bytes) -> None:
        """Give a committed message its name; needs no sync, the staged name is still there."""
        staged, final = self.staged_path(serial), self.path(digest)
        try:
            os.link(staged, final)
        except FileNotFoundError:
            if not self._make_folder(final):
                raise
            os.link(staged, final)
        except FileExistsError:
            if stands_in_the_way(Path(final)):
                make_way(self.folder.parent, Path(final))
                os.link(staged, final)
            elif not os.path.samefile(staged, final):   # left by a crash; what was committed now is this one
                spare = staged + SPARE
                remove_name(spare)                          # of a recovery that was cut off
                os.link(staged, spare)
                os.replace(spare, final)
        self._placed.append(serial)

    def let_go(self, serial: int) -> None:
        """Nothing refers to that staged file: its name goes together with those of files that have their place. Until
        then nobody can tell the two apart, not by what they take of the machine either."""
        self._placed.append(serial)

    def _make_folder(self, final: str) -> bool:
        """Make the folder of a message file if it is missing, whether it was: not every program that copies a store
        copies folders without files."""
        folder = os.path.dirname(final)
        if os.path.isdir(folder):
            return False
        for each in (os.path.dirname(folder), folder):
            with suppress(FileExistsError):
                privatefiles.make_folder(each)
        return True

    def is_whole(self, digest: bytes, serial: int, octets: int) -> bool:
        """Whether the file that a reader would open is there, and has so many octets."""
        final = self.path(digest)
        for path in (final, self.staged_path(serial), final):
            try:
                return os.stat(path).st_size == octets
            except OSError:
                continue
        return False

    def will_need(self, digest: bytes) -> None:
        """Somebody will soon read that file, if it is there: have the system read it into memory meanwhile."""
        try:
            handle = privatefiles.open_handle(self.path(digest))
        except OSError:
            return
        try:
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_WILLNEED)
        except OSError:
            pass
        finally:
            os.close(handle)

    def put_back(self, digest: bytes, serial: int, lost: int) -> None:
        """Have a synced message in place of a file that was lost or cut off, whose serial was `lost`; on disk when this
        returns. Raises StoreError."""
        final, staged = self.path(digest), self.staged_path(serial)
        try:
            remove_name(staged + SPARE)
            os.link(staged, staged + SPARE)
            if self._make_folder(final):
                sync_folder(self.folder)
                sync_folder(Path(final).parents[1])
            make_way(self.folder.parent, Path(final))
            os.replace(staged + SPARE, final)
            sync_folder(Path(final).parent)
            if lost != serial:
                remove_name(self.staged_path(lost))         # or the next start would give it the name again
        except OSError as error:
            raise disk_problem(error) from error

    def staged(self) -> frozenset[int]:
        """The serials of the files in `staging/`. Raises OSError."""
        return frozenset(int(name, 16) for name in os.listdir(self._staging) if _is_serial(name))

    def remove(self, digest: bytes, serial: int | None) -> None:
        """Take the name away, and with a serial the staged one as well. After a crash it may be there again, unless
        `sync_removed` has been called. Raises OSError."""
        remove_name(self.path(digest))
        if serial is not None:
            remove_name(self.staged_path(serial))

    def sync_removed(self, digests: Collection[bytes]) -> None:
        """Return when the names that `remove` has taken away are not on disk any more. (A staged one may be, but when
        nobody knows its serial the next start sweeps it.) For a thread. Raises OSError."""
        folders: dict[str, None] = {}
        for digest in digests:
            folders[os.path.dirname(self.path(digest))] = None
            if len(folders) > FEW_FOLDERS:
                sync_file_system(self.folder)
                return
        for folder in folders:
            with suppress(FileNotFoundError):       # somebody has removed it, with all that was in it
                sync_folder(Path(folder))

    def drop_staged_names(self) -> int:
        """Put the names that `place` gave on disk and take the staged ones away, and those that were let go; how many.
        For a thread: it syncs."""
        # Taken before the sync: what `place` adds meanwhile, in another thread, may not be covered by it.
        serials = [self._placed.popleft() for _ in range(len(self._placed))]
        if serials:
            sync_file_system(self.folder)
            for serial in serials:
                remove_name(self.staged_path(serial))
        return len(serials)

    def recover(self, mid_of: Callable[[int], bytes | None]) -> None:
        """After a crash: finish what was committed, sweep the rest. `mid_of` gives the digest of a committed serial.
        What is not of the store stays: it is for `store/check/layout.py`."""
        with os.scandir(self._staging) as entries:
            files = sorted(entry.name for entry in entries if entry.is_file(follow_symlinks=False))
        for name in files:
            if name.endswith(SPARE) and _is_serial(name.removesuffix(SPARE)):
                remove_name(f"{self._staging}/{name}")
        for serial in (int(name, 16) for name in files if _is_serial(name)):
            digest, path = mid_of(serial), self.staged_path(serial)
            if digest is None:
                if os.stat(path).st_size:
                    log.info("swept %s: it had not been committed", path)
                remove_name(path)
            else:
                try:
                    self.place(serial, digest)
                except OSError as error:        # readers find it where it is
                    log.error("%s has no place: %s: %s", path, self.path(digest), error.strerror)

    def left(self, age: float) -> list[int]:
        """Serials of the files in `staging/` that nothing in this process takes care of; not written to for `age`
        seconds."""
        before = time.time() - age
        serials = [int(entry.name, 16) for entry in os.scandir(self.staging) if _is_serial(entry.name)
                   and entry.is_file(follow_symlinks=False) and _modified(entry) <= before]
        receiving = [staged.serial for alive in tuple(self.receiving) if (staged := alive()) is not None]
        return sorted({*serials} - {*self._placed, *self._ready, *receiving})

    def discard(self, serial: int) -> None:
        """Remove a staged file that was not committed."""
        remove_name(self.staged_path(serial))
        log.info("swept %s: it had not been committed", self.staged_path(serial))

    def volume(self) -> tuple[int, int]:
        """Octets of the volume that are free for us, and that are used. Raises StoreError UNAVAILABLE."""
        try:
            figures = os.statvfs(self.folder)
        except OSError as error:
            raise disk_problem(error) from error
        return figures.f_bavail * figures.f_frsize, (figures.f_blocks - figures.f_bfree) * figures.f_frsize


class MessageFile:
    """A message open for reading: `head`, and then its file from `start` on, `size` octets in all.

    Offsets are those of the message, not of its file. A context manager.
    """

    __slots__ = ("fileno", "head", "size", "start")

    def __init__(self, fileno: int, start: int, size: int, head: bytes = b"") -> None:
        self.fileno = fileno
        self.start = start
        self.size = size
        self.head = head

    @property
    def end(self) -> int:
        """How many octets the file has, at least, that has all of the message."""
        return self.start + self.size - len(self.head)

    def read(self, offset: int, count: int) -> bytes:
        """Up to `count` octets from `offset` on; fewer only at the end.

        Raises StoreError CORRUPT for a short file, UNAVAILABLE.
        """
        count = min(count, self.size - offset)
        if count <= 0:
            return b""
        data = self.head[offset:offset + count]
        start = self.start + offset - len(self.head)
        while len(data) < count:
            try:
                more = os.pread(self.fileno, count - len(data), start + len(data))
            except IsADirectoryError as error:
                raise StoreError(Problem.CORRUPT, "The message cannot be read", "it is no file") from error
            except OSError as error:
                raise disk_problem(error) from error
            if not more:
                raise StoreError(Problem.CORRUPT, "The message cannot be read", "a message file is shorter than it was")
            data = data + more if data else more
        return data

    def pieces(self) -> Iterator[bytes]:
        """All of it, some at a time. Raises StoreError CORRUPT, UNAVAILABLE."""
        for at in range(0, self.size, SPILL):
            yield self.read(at, SPILL)

    def close(self) -> None:
        """Let go of the file."""
        if self.fileno >= 0:
            os.close(self.fileno)
            self.fileno = -1

    def __enter__(self) -> "MessageFile":
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()


class Volume:
    """A file system to which files are written that are to be on disk together. It is opened before they are written:
    so `sync` learns of every write that has failed since (syncfs(2))."""

    def __init__(self, folder: Path) -> None:
        try:
            self._handle = privatefiles.open_folder(folder)
        except OSError as error:
            raise disk_problem(error) from error
        weakref.finalize(self, os.close, self._handle)

    def sync(self) -> None:
        """Return when everything is on disk. For a thread. Raises StoreError DISK_FULL, UNAVAILABLE."""
        try:
            sync_file_system(self._handle)
        except OSError as error:
            raise disk_problem(error) from error


def sync_file_system(folder: Path | int) -> None:
    """Return when everything written to the file system of `folder` (or of what is open) is on disk (syncfs(2)).
    Raises OSError."""
    handle = folder if isinstance(folder, int) else privatefiles.open_folder(folder)
    try:
        if _libc.syncfs(handle) != 0:
            raise OSError(ctypes.get_errno(), "syncfs")
    finally:
        if handle is not folder:
            os.close(handle)


def remove_name(path: str) -> None:
    try:                        # `suppress` costs a tenth of it
        os.unlink(path)
    except FileNotFoundError:
        pass


def digest_in(name: str) -> bytes:
    """The digest that is the name of a message file; what no digest is for any other name."""
    try:
        digest = bytes.fromhex(name)
    except ValueError:
        return b""
    return digest if len(digest) == MID_OCTETS and digest.hex() == name else b""    # it takes blanks and capitals


def _modified(entry: "os.DirEntry[str]") -> float:
    try:
        return entry.stat().st_mtime
    except FileNotFoundError:
        return time.time()


def _is_serial(name: str) -> bool:
    return len(name) == 16 and all(letter in "0123456789abcdef" for letter in name)
