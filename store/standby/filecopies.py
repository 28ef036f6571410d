"""Message files, and the small files of the store, as they come to the standby: on disk before anything says so."""

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import BinaryIO

from attrs import define, evolve, field

from mboxlist import privatefiles
from mboxlist.engine.disk import sync_folder
from store.errors import Problem, StoreError
from store.partition.messagefiles import FEW_FOLDERS, SPARE, MessageFiles, sync_file_system
from store.standby.copyformat import FILES, FOLDERS, Listed, Sent, is_small
from store.standby.sourcepeer import SourcePeer

Progress = Callable[[str, int, int], None]      # what is done, octets of it, out of how many (0: nobody knows)


@define
class FileCopies:
    """Copies message files of one partition into the folder of that name; those that are here in another form into the
    folder `aside`, if one is named."""

    source: SourcePeer
    folder: Path
    aside: Path | None = None
    files: int = field(default=0, init=False)       # that came,
    octets: int = field(default=0, init=False)      # and how large they were
    _changed: set[str] = field(factory=set, init=False)    # folders whose names may not be on disk,
    _named: list[str] = field(factory=list, init=False)    # and the files that have got theirs here
    _unnamed: dict[str, str] | None = field(default=None, init=False)     # files, and their names once they are on disk

    def all(self, progress: Progress) -> None:
        """Have every message file that is there now. What is here already is not sent. Raises StoreError, OSError."""
        staged = self.source.staged(self.folder.name)       # what gets its place from now on is in a folder
        octets = 0
        for some, folders in chain([(staged, 0)], self.source.all_files(self.folder.name)):
            wanted = [each for each in some if not self._is_here(each)]
            octets += sum(each.size for each in wanted)
            total = octets * FOLDERS // folders if folders else 0       # digests are spread evenly over the folders
            for _ in self.fetch([evolve(each, size=0, time=0) for each in wanted]):
                progress("message files", self.octets, total)
        sync_file_system(self.folder)       # what was here, too: whoever brought that may have been cut off
        self._settled()

    def needed(self, digests: Iterable[bytes]) -> list[bytes]:
        """Have the files with these digests, on disk; those that are not there any more. Many are synced together, and
        get their names then. Raises StoreError, OSError."""
        known = []
        for digest in digests:
            try:
                status = os.stat(path := self._path(digest))
                known.append(Listed(digest, status.st_size, status.st_mtime_ns))
                self._changed.add(os.path.dirname(path))    # who brought it may have been cut off before it was on disk
            except FileNotFoundError:
                known.append(Listed(digest, 0, 0))
        volume = -1
        if len(known) > FEW_FOLDERS:
            # Open before they are written: so the sync hears of each failed write (syncfs(2)).
            self._unnamed, volume = {}, privatefiles.open_folder(self.folder)
        try:
            gone = [digest for digest, is_there in self.fetch(known) if not is_there]
            self._name(volume)
        finally:
            if volume >= 0:
                os.close(volume)
            for new in self._unnamed or ():
                with contextlib.suppress(OSError):
                    os.unlink(new)
            self._unnamed = None
        self.settle()
        return gone

    def _name(self, volume: int) -> None:
        if self._unnamed:
            sync_file_system(volume)            # else a file might have its length and its time, and not its octets
            for new, path in self._unnamed.items():
                os.replace(new, path)
                self._named.append(path)
            self._unnamed = None

    def fetch(self, known: Sequence[Listed]) -> Iterator[tuple[bytes, bool]]:
        """Have these files, unless they are here as they are `known`: each digest, and whether it was there."""
        while known:
            sent = self.source.files(self.folder.name, known[:FILES])
            for each, came in zip(known, sent, strict=False):
                if came is not None and not came.same:
                    self._keep(self._target(each.name), each.name.hex(), came)
                yield each.name, came is not None
            known = known[len(sent):]

    def settle(self) -> None:
        """Return when all that came has its name on disk. Raises OSError: then it comes again, since the next sync
        would not say that a name is not on disk (fsync(2))."""
        try:
            if len(self._changed) > FEW_FOLDERS:
                sync_file_system(self.folder)
            else:
                for folder in self._changed:
                    sync_folder(Path(folder))
        except OSError:
            for path in self._named:
                with contextlib.suppress(OSError):
                    os.unlink(path)
            raise
        finally:
            self._settled()

    def _settled(self) -> None:
        self._changed.clear()
        self._named.clear()

    def _path(self, digest: bytes) -> str:
        return MessageFiles(self.folder).path(digest)

    def _target(self, digest: bytes) -> str:
        path = self._path(digest)
        return str(self.aside / digest.hex()) if self.aside is not None and os.path.exists(path) else path

    def _is_here(self, file: Listed) -> bool:
        places = [self._path(file.name), *([str(self.aside / file.name.hex())] if self.aside is not None else [])]
        for place in places:
            with contextlib.suppress(FileNotFoundError):
                status = os.stat(place)
                if (status.st_size, status.st_mtime_ns) == (file.size, file.time):
                    return True
        return False

    def _keep(self, path: str, name: str, came: Sent) -> None:
        """Write the file, with what is still to come of it, on disk; or without its name, on disk later."""
        with self._new(path) as file:
            file.write(came.octets)
            size = len(came.octets)
            while size < came.size:
                more = self.source.piece(self.folder.name, name, size)
                if not more.octets:
                    break
                file.write(more.octets)
                size += len(more.octets)
            if size != came.size:
                raise StoreError(Problem.UNAVAILABLE, "A message file came that was not whole", name)
            file.flush()
            os.utime(file.fileno(), ns=(came.time, came.time))
        self.files += 1
        self.octets += size
        self._changed.add(os.path.dirname(path))

    @contextlib.contextmanager
    def _new(self, path: str) -> Iterator[BinaryIO]:
        if self._unnamed is None:
            with privatefiles.replacing(path, SPARE) as file:
                yield file
            self._named.append(path)
        else:
            self._unnamed[new := path + SPARE] = path
            with privatefiles.open_file(new, "wb") as file:
                yield file


def copy_small(source: SourcePeer, root: Path, folder: str) -> list[Path]:
    """Have the small files of that folder as they are there, on disk; those here that it has no more, which go when
    what follows has come (`drop`). Raises StoreError, OSError."""
    there, place = source.small(folder), root / folder
    if not there and not place.is_dir():
        return []
    privatefiles.make_folder(place, parents=True, exist_ok=True)
    for name, (size, when) in there.items():
        with contextlib.suppress(FileNotFoundError):
            status = os.stat(place / name)
            if (status.st_size, status.st_mtime_ns) == (size, when):
                continue
        try:
            _copy_small_file(source, folder, place / name, when)
        except StoreError as error:
            if error.problem is not Problem.GONE:       # it was there a moment ago
                raise
    sync_folder(place)
    return [path for path in place.iterdir() if is_small(folder, path.name.removesuffix(SPARE)) and path.is_file()
            and path.name not in there]


def _copy_small_file(source: SourcePeer, folder: str, path: Path, when: int) -> None:
    with privatefiles.replacing(path) as file:
        at = 0
        while octets := source.small_file(folder, path.name, at):
            file.write(octets)
            at += len(octets)
        file.flush()
        os.utime(file.fileno(), ns=(when, when))


def drop(paths: Iterable[Path]) -> None:
    """Remove small files that are no more."""
    for path in paths:
        path.unlink(missing_ok=True)
