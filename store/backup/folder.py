"""A folder of backups: archives as parts with numbers, and a list of them.

    catalogue.json                          the archives, in order; the first one of each chain is full
    20260131T120000Z-0001.tar.zst           a part; each continues those before it, so that a backup that was cut off
                                            goes on with the next part
"""

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from attrs import asdict, define, evolve, field, fields, frozen

from mboxlist import privatefiles
from mboxlist.engine.disk import replace_file
from store.backup.archive import Archive, Catalogue
from store.backup.compression import GZIP, NONE, ZSTD
from store.backup.creation import PART, Form, Making
from store.errors import Problem, StoreError, disk_problem

NAME = "catalogue.json"
SUFFIXES = {ZSTD: ".tar.zst", GZIP: ".tar.gz", NONE: ".tar"}


@frozen
class Entry:
    """An archive: `chain` is the id of the full one that it continues; `complete`: the backup ends with it."""

    file: str
    id: str
    chain: str
    time: int
    octets: int = 0
    messages: int = 0
    mailboxes: int = 0
    records: int = 0
    complete: bool = True


@define(eq=False)
class Folder:
    """See the module's text."""

    path: Path
    entries: list[Entry] = field(factory=list)

    @classmethod
    def of(cls, path: Path) -> "Folder":
        """The one there. Raises StoreError CORRUPT, UNAVAILABLE."""
        try:
            data = privatefiles.read(path / NAME)
        except FileNotFoundError:
            return cls(path, _found(path))
        except OSError as error:
            raise StoreError(Problem.UNAVAILABLE, f"{path}: {error.strerror}") from None
        try:
            names = {item.name for item in fields(Entry)}
            return cls(path, [Entry(**{name: value for name, value in each.items() if name in names})
                              for each in json.loads(data)["archives"]])
        except (ValueError, TypeError, KeyError, AttributeError):
            return cls(path, _found(path))

    def chain(self) -> list[Archive]:
        """The archives of the newest backup, the full one first."""
        last = self.entries[-1].chain if self.entries else ""
        return [Archive(self.path / each.file) for each in self.entries if each.chain == last]

    def backup(self, making: Callable[[Catalogue | None], Making], form: Form, *, full: bool = False) -> list[Making]:
        """Add a backup: incremental if there is one to continue, or the rest of one that was cut off.

        Raises StoreError BUSY, DISK_FULL, UNAVAILABLE, BAD_NAME.
        """
        with self._alone():
            self.entries = self.of(self.path).entries
            return self._backup(making, form, full)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Nobody else puts a backup here; what others have left half done goes. Raises StoreError BUSY."""
        try:
            privatefiles.make_folder(self.path, exist_ok=True)
            handle = privatefiles.open_folder(self.path)
        except OSError as error:
            raise disk_problem(error) from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for left in self.path.glob("*" + PART):
                left.unlink()
            yield
        except BlockingIOError:
            raise StoreError(Problem.BUSY, f"Another backup goes to {self.path}") from None
        finally:
            os.close(handle)

    def _backup(self, making: Callable[[Catalogue | None], Making], form: Form, full: bool) -> list[Making]:
        previous = None
        if self.entries and not (full and self.entries[-1].complete):
            previous = Archive(self.path / self.entries[-1].file).catalogue()
            if previous is None:
                raise StoreError(Problem.CORRUPT, f"{self.entries[-1].file} is damaged: make a full backup elsewhere, "
                                                  "or remove it")
        made = []
        while True:
            making_one = making(previous)
            made.append(making_one)
            self._part(making_one, form)
            previous = making_one.catalogue
            if previous.complete:
                return made

    def _part(self, making: Making, form: Form) -> None:
        manifest = making.manifest
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(manifest.time))
        name = f"{stamp}-{len(manifest.since) + 1:04}{SUFFIXES[form.kind]}"
        try:
            octets = making.write_file(self.path / name, form)
            totals = making.totals
            self.entries.append(Entry(name, manifest.id, (*manifest.since, manifest.id)[0], manifest.time, octets,
                                      totals.messages, totals.mailboxes, totals.records, totals.complete))
            self._write()
        except OSError as error:
            raise disk_problem(error) from error

    def _write(self) -> None:
        text = json.dumps({"archives": [asdict(each) for each in self.entries]}, indent=1)
        replace_file(self.path / NAME, text.encode(), PART)


def archives_at(path: Path) -> list[Archive]:
    """The archive in a file, or those of the newest backup in a folder. Raises StoreError UNAVAILABLE."""
    return Folder.of(path).chain() if path.is_dir() else [Archive(path)]


def _found(path: Path) -> list[Entry]:
    """What the archives themselves say, where the list of them is lost."""
    found: list[tuple[tuple[Any, ...], Entry]] = []
    for file in sorted(path.iterdir()) if path.is_dir() else []:
        if not file.name.endswith(tuple(SUFFIXES.values())):
            continue
        archive = Archive(file)
        archive.catalogue()
        manifest, totals = archive.manifest, archive.totals
        if manifest is not None:
            chain = (*manifest.since, manifest.id)
            entry = Entry(file.name, manifest.id, chain[0], manifest.time, file.stat().st_size, complete=False)
            if totals is not None:
                entry = evolve(entry, messages=totals.messages, mailboxes=totals.mailboxes, records=totals.records,
                               complete=totals.complete)
            found.append(((manifest.time, len(chain)), entry))
    return [entry for _, entry in sorted(found, key=lambda each: each[0])]
