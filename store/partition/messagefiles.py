"""Message files: one immutable file for each message, named by the digest of its content.

A message that is being received is a `Staged` (`store/partition/staged.py`). Its file is `staging/<arrival serial>`.
Once its transaction is on disk, the file gets its second name, `messages/3/fa/<mid>`. The first name goes when a later
sync of the whole file system has put the second one on disk (`drop_staged_names`). So at every moment a name is on
disk, and no delivery has to sync a folder of its own. A reader looks under both names.

The name in `staging/` is on disk before the message comes: many empty files are made at a time, beforehand
(`make_ready`), so that a message only has to sync its own octets. When none is left, the message makes its file itself,
and the folder is synced, too.
"""

import ctypes
import logging
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Protocol

from mboxlist import privatefiles
from mboxlist.engine.disk import sync_file, sync_folder
from mboxlist.setaside import make_way, stands_in_the_way
from store.errors import Problem, StoreError, disk_problem
from store.partition.messagereading import ReadableFiles

log = logging.getLogger(__name__)

FEW_READY = 64              # when fewer files are ready more are made; one MULTIAPPEND takes many
SPARE = ".new"              # the end of the name of a file that is about to replace another one
FEW_FOLDERS = 8             # are synced one by one; for more of them the whole file system is synced
_libc = ctypes.CDLL(None, use_errno=True)


class Receiving(Protocol):
    """A message that is being received: a `Staged`."""

    serial: int


class Journal(Protocol):
    """A journal that has messages on disk whose files may not be there yet: a `filejournal.FileJournal`."""

    @property
    def holds(self) -> bool:
        """Whether there are any."""

    def settle(self, give_names: Callable[[], None]) -> None:
        """Return when all files that were written before are on disk, with their names. `give_names` is called before
        each sync; a sync that fails is counted (`failed_volume_syncs`). Raises OSError."""

    def close(self) -> None:
        """Let go of it."""


class MessageFiles(ReadableFiles):
    """The message files of one partition; `messagereading` reads them. `committed` says whether the databases refer to
    the file with that digest and serial. It is asked before a message that has come whole is removed."""

    def __init__(self, partition: Path, committed: Callable[[bytes, int], bool] = lambda digest, serial: False) -> None:
        super().__init__(partition)
        self.committed = committed
        # Serial and digest of a file that has got its name, and how many syncs of all files had failed before.
        self._placed: deque[tuple[int, bytes, int]] = deque()
        self.receiving: set[weakref.ref[Receiving]] = set()    # while one of these exists, its file is in use
        self._ready: deque[int] = deque()       # serials whose empty files are on disk
        self.few_ready = True           # more should be made ready
        self.journal: Journal | None = None     # this process's
        self._names = -1                # an open descriptor of `staging/`
        self._syncing = threading.Lock()            # of `staging/`: the kernel reports an error to only one caller
        self.failed_syncs = 0           # of names: whoever gave one before that may have lost it
        self.came_again = set[bytes]()  # digests of what this process has put back: whoever refers to it names it again
        self.failed_volume_syncs = 0    # of all: a name that a message was given before the last one may be lost

    def make_folders(self) -> None:
        """Make all 16 x 256 folders, so that no delivery makes, and must sync, a folder. Some may be there."""
        outer = [self._staging, self._folder, *(f"{self._folder}/{first}" for first in "0123456789abcdef")]
        for path in chain(outer, self.folders()):
            with suppress(FileExistsError):
                privatefiles.make_folder(path)

    def make_lost_folders(self) -> None:
        """Make the folders that a copy of the store has left out, since nothing is in them. Raises OSError."""
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

    def sync_names(self, since: int) -> None:
        """Return when the names in `staging/` are on disk that were given since `failed_syncs` was `since`. For a
        thread. Raises StoreError DISK_FULL, UNAVAILABLE; also when another sync of them has failed meanwhile, which
        this sync would not report (fsync(2))."""
        with self._syncing:
            try:
                if self._names < 0:
                    self._names = privatefiles.open_folder(self.staging)
            except OSError as error:
                raise disk_problem(error) from error
            try:
                os.fsync(self._names)
            except OSError as error:
                self.failed_syncs += 1
                raise disk_problem(error) from error
            if since != self.failed_syncs:
                raise StoreError(Problem.UNAVAILABLE, detail=f"{self._staging}: a sync of its names has failed")

    @property
    def ready(self) -> int:
        """How many messages can come before more files must be made."""
        return len(self._ready)

    def make_ready(self, serials: Iterable[int]) -> None:
        """Make files for messages to come. For a thread. Raises StoreError DISK_FULL, UNAVAILABLE."""
        made, wanted, since = list[int](), list(serials), self.failed_syncs
        try:
            for serial, _ in zip(wanted, privatefiles.make_empty(map(self.staged_path, wanted)), strict=True):
                made.append(serial)
            self.sync_names(since)
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
        """Take back the serial of a file that was made ready and has not been used."""
        self._ready.append(serial)

    def close(self) -> None:
        """Close the folder, and remove the files that were made ready."""
        while (serial := self.take_ready()) is not None:
            remove_name(self.staged_path(serial))
        if self.journal is not None:
            self.journal.close()
            self.journal = None
        if self._names >= 0:
            os.close(self._names)
            self._names = -1

    def place(self, serial: int, digest: bytes, *, own: bool = True) -> None:
        """Give a committed message its second name. This needs no sync: the staged name is still there, and is removed
        later. If the message is not this process's `own`, it stays: only the process whose journal has the message
        knows when it may go."""
        staged, final, since = self.staged_path(serial), self.path(digest), self.failed_volume_syncs
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
            elif not os.path.samefile(staged, final):   # left by a crash; this file is the one that was committed now
                spare = staged + SPARE
                remove_name(spare)                          # of a recovery that was cut off
                os.link(staged, spare)
                os.replace(spare, final)
        if own:
            self._placed.append((serial, digest, since))

    def let_go(self, serial: int) -> None:
        """Note that nothing refers to that staged file. Its name is removed together with those of files that have
        their second name. So until then nobody can tell the two cases apart, also not by the work that they cost."""
        self._placed.append((serial, b"", 0))

    def _make_folder(self, final: str) -> bool:
        """Make the folder of a message file if it is missing; whether it was missing. Some programs that copy a store
        leave out empty folders."""
        folder = os.path.dirname(final)
        if os.path.isdir(folder):
            return False
        for each in (os.path.dirname(folder), folder):
            with suppress(FileExistsError):
                privatefiles.make_folder(each)
        return True

    def put_back(self, digest: bytes, serial: int, lost: int) -> None:
        """Put a message in the place of a file that was lost or cut off, whose serial was `lost`. It is on disk when
        this returns, whatever becomes of its own staged name: without that name a file journal cannot help. Raises
        StoreError."""
        final, staged = self.path(digest), self.staged_path(serial)
        self.came_again.add(digest)
        try:
            sync_file(Path(staged))
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
        """Remove the file's name, and with a serial its staged name, too. After a crash a name may be there again,
        unless `sync_removed` has been called. Raises OSError."""
        path = self.path(digest)
        try:
            os.unlink(path)
        except FileNotFoundError:
            _remove_again(path)
        if serial is not None:
            remove_name(self.staged_path(serial))

    def sync_removed(self, digests: Collection[bytes]) -> None:
        """Return when the names that `remove` has removed are gone from the disk, too. (A staged name may stay; but
        when nobody knows its serial, the next start sweeps it.) For a thread. Raises OSError."""
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
        """Put on disk the names that `place` gave, with the files that only a journal has there. Then remove the staged
        names, and those that were let go; how many. For a thread: it syncs. Raises OSError: then all stay. When a sync
        has failed, the names that were given before or during it are given again before the next sync, which would not
        report that they are not on disk (fsync(2))."""
        # Taken before the sync: what `place` adds meanwhile, in another thread, may not be covered by it.
        placed = list[tuple[int, bytes, int]]()
        with suppress(IndexError):          # a thread that settles a full journal takes some, too
            for _ in range(len(self._placed)):
                placed.append(self._placed.popleft())
        journal, give_names = self.journal, partial(self._give_names, placed)
        try:
            if journal is not None and (placed or journal.holds):
                journal.settle(give_names)
            elif placed:
                give_names()
                sync_file_system(self.folder)
        except OSError:
            self.failed_volume_syncs += 1
            self._placed.extend(placed)
            raise
        for serial, _, _ in placed:
            remove_name(self.staged_path(serial))
        return len(placed)

    def _give_names(self, placed: Iterable[tuple[int, bytes, int]]) -> None:
        """Remove those of these names that a failed sync may have lost, and give them again, so that the folders are
        written again. Raises OSError: the next call then gives the names that this one has only removed."""
        for serial, digest, since in placed:
            if not digest or since == self.failed_volume_syncs:     # it was let go, and has no other name; or is safe
                continue
            staged, final = self.staged_path(serial), self.path(digest)
            with suppress(FileNotFoundError):       # it has been purged, and so has its staged name
                if os.path.lexists(final):
                    if not os.path.samefile(staged, final):
                        continue
                    remove_name(final)
                os.link(staged, final)

    def recover(self, mid_of: Callable[[int], bytes | None]) -> None:
        """After a crash: finish what was committed, and sweep the rest. `mid_of` gives the digest of a committed
        serial. Files that do not belong to a store stay: they are for `store/check/layout.py`."""
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
        """Serials of the files in `staging/` that nothing in this process uses, and that were not written to for `age`
        seconds."""
        before = time.time() - age
        serials = [int(entry.name, 16) for entry in os.scandir(self.staging) if _is_serial(entry.name)
                   and entry.is_file(follow_symlinks=False) and _modified(entry) <= before]
        receiving = [staged.serial for alive in tuple(self.receiving) if (staged := alive()) is not None]
        return sorted({*serials} - {*(serial for serial, _, _ in self._placed), *self._ready, *receiving})

    def discard(self, serial: int) -> None:
        """Remove a staged file that was not committed."""
        remove_name(self.staged_path(serial))
        log.info("swept %s: it had not been committed", self.staged_path(serial))

    def volume(self) -> tuple[int, int]:
        """How many octets of the volume are free for us, and how many are used. Raises StoreError UNAVAILABLE."""
        try:
            figures = os.statvfs(self.folder)
        except OSError as error:
            raise disk_problem(error) from error
        return figures.f_bavail * figures.f_frsize, (figures.f_blocks - figures.f_bfree) * figures.f_frsize


class Volume:
    """A file system to which files are written that will be put on disk together. It is opened before they are written,
    so that `sync` reports every write that has failed since (syncfs(2))."""

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


def _remove_again(path: str) -> None:
    """Give the name to an empty file, and remove it, so that the next sync writes its folder. The earlier removal may
    have met a sync that failed, and a sync with nothing to write reports nothing (fsync(2)). Raises OSError. After a
    crash in between the empty file is there; it is no message to anybody, and is removed with its record."""
    try:
        os.close(privatefiles.open_handle(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    except FileNotFoundError:       # the folder is missing, too
        return
    remove_name(path)


def remove_name(path: str) -> None:
    try:                        # `suppress` costs a tenth of it
        os.unlink(path)
    except FileNotFoundError:
        pass


def _modified(entry: "os.DirEntry[str]") -> float:
    try:
        return entry.stat().st_mtime
    except FileNotFoundError:
        return time.time()


def _is_serial(name: str) -> bool:
    return len(name) == 16 and all(letter in "0123456789abcdef" for letter in name)
