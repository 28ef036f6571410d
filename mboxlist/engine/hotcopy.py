"""Copies of an environment while others write to it, and environments made of such copies.

A copy is made in this order (Berkeley DB Programmer's Reference Guide, "Hot backup"): first the databases, page by
page, as they happen to be on disk; then a position in the log is taken; then the log, from the first file that recovery
needed when the copy began to that position. Whatever a page lacked is in that log, since a log record is on disk before
the page that it is about: catastrophic recovery makes of the copy what the environment was at that position.

A page must not be half old and half new. The kernel does not promise that a read sees a write of several memory pages
whole. So each page is read again a while later (`Copying.copy_again`), when a write that was under way has ended. If
the page is not the same then, the first read may have met a write half way: the page is copied again, and compared once
more.
`DB_ENV->dbbackup` is not used: it waits forever beside another process that writes (5.3.28).
"""

import contextlib
import hashlib
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from attrs import define, field, frozen
from berkeleydb import db

from mboxlist import privatefiles
from mboxlist.engine.btree import Table
from mboxlist.engine.damagemarks import is_begun, logs
from mboxlist.engine.disk import sync_file, sync_folder
from mboxlist.engine.kv import LOG_FILE, Env
from mboxlist.engine.logfiles import log_name

BLOCK = 1 << 20             # octets that are read at a time: a multiple of every page size
PAGES = tuple(512 << power for power in range(8))       # the sizes that a page can have
PAUSE = 0.02                # seconds, at least, between two reads of a page: the caller waits
ROUNDS = 500                # at most, in each of which a page may have changed
RECOVERY_CACHE = 64 << 20

Position = tuple[int, int]      # in a log: file and octet
Extent = tuple[int, int]        # of a file: where it begins, octets


@frozen
class Copied:
    """A file of a copy."""

    name: str
    size: int
    digest: str


@define
class Copying:
    """The copy of one environment, under way, into an empty folder."""

    env: Env
    target: Path
    first: int = 0                                          # log file
    _unsure: dict[str, list[Extent]] = field(factory=dict)     # by database: what must be read again

    def databases(self) -> Iterator[int]:
        """Copy the databases; gives numbers of octets while they are copied. Raises OSError."""
        self.first = self.env.logs.first_needed()
        for path in sorted(self.env.folder.glob("*.db")):
            unsure = self._unsure[path.name] = []
            for extent in _copy_pages(path, self.target / path.name):
                unsure.append(extent)
                yield extent[1]

    def copy_again(self) -> bool:
        """Read again the pages that are not known to be whole; whether all are whole now. Call it at least PAUSE after
        `databases`, and after the last call. Raises OSError."""
        for name, places in self._unsure.items():
            self._unsure[name] = _copy_again(self.env.folder / name, self.target / name, places)
        return not any(self._unsure.values())

    def log(self, end: Position) -> list[Copied]:
        """Copy the log up to that position, which is on disk; all files of the copy, on disk. Raises OSError."""
        for number in range(self.first, end[0] + 1):
            name = log_name(number)
            _copy_start(self.env.folder / name, self.target / name, end[1] if number == end[0] else None)
        found = []
        for path in sorted(self.target.iterdir()):
            sync_file(path)
            found.append(Copied(path.name, path.stat().st_size, digest(path)))
        sync_folder(self.target)
        return found


def log_number(name: str) -> int:
    """The number in the name of a file of the log; 0 for other files."""
    head, _, number = name.partition(".")
    return int(number) if head == "log" and number.isdecimal() else 0


def digest(path: Path) -> str:
    """The digest of a file's content. Raises OSError."""
    with privatefiles.open_file(path, "rb") as file:
        found = hashlib.blake2b(digest_size=32)
        while block := file.read(BLOCK):
            found.update(block)
        return found.hexdigest()


def _copy_pages(source: Path, target: Path) -> Iterator[Extent]:
    with (privatefiles.open_file(source, "rb", buffering=0) as old,
          privatefiles.open_file(target, "xb", buffering=0) as new):
        at = 0
        while block := os.pread(old.fileno(), BLOCK, at):
            new.write(block)
            yield at, len(block)
            at += len(block)


def _copy_again(source: Path, target: Path, extents: list[Extent]) -> list[Extent]:
    """Compare these parts; the pages that were not the same, which have been taken again."""
    changed = []
    with (privatefiles.open_file(source, "rb", buffering=0) as old,
          privatefiles.open_file(target, "r+b", buffering=0) as new):
        page = _page_size(os.pread(old.fileno(), 24, 0))
        for at, size in extents:
            now, then = os.pread(old.fileno(), size, at), os.pread(new.fileno(), size, at)
            if now == then:
                continue
            for start in range(0, len(now), page):      # recovery removes pages that are gone
                one = now[start:start + page]
                if one != then[start:start + page]:
                    os.pwrite(new.fileno(), one, at + start)
                    changed.append((at + start, len(one)))
    return changed


def _page_size(head: bytes) -> int:
    """The page size in the metadata page of a database (in the byte order of the machine)."""
    size = int.from_bytes(head[20:24], sys.byteorder)
    return size if size in PAGES else max(PAGES)


def _copy_start(source: Path, target: Path, size: int | None) -> None:
    """Copy a file, or its first octets. Raises OSError."""
    with privatefiles.open_file(source, "rb") as old, privatefiles.open_file(target, "xb") as new:
        left = os.fstat(old.fileno()).st_size if size is None else size
        while left and (block := old.read(min(left, BLOCK))):
            new.write(block)
            left -= len(block)
        if left:
            raise OSError(f"{source} ends {left} octets early")


# Making an environment of a copy

@frozen
class Logs:
    """The log that was put beside the databases of a copy: its last file; whether that is a later file than the copy's
    own, or the same one with more in it; and the file, if any, that was found and does not continue it."""

    last: int
    later: bool
    passed_over: tuple[str, ...] = ()


def fill(copy: Path, names: Iterable[str], target: Path) -> None:
    """Copy files of a copy into an empty folder. Raises OSError."""
    for name in names:
        privatefiles.copy(copy / name, target / name)


def add_logs(target: Path, end: Position, folders: Iterable[Path], most: int | None = None) -> Logs:
    """Put the log that follows a copy beside it: the rest of its last file, and the files after that without a gap, up
    to number `most`. Each is taken from the first of `folders` that has it.

    A file that does not begin as the copy's last one does belongs to another life of the environment, which was put
    back since. It is not used, nor is what follows. Raises OSError.
    """
    places = [folder for folder in folders if folder.is_dir()]
    own = target / log_name(end[0])
    longer = _first(places, own.name)
    limit = end[0] if most is None else most
    passed: list[str] = []
    if longer is None or limit < end[0] or not _begins(longer, own):
        if longer is not None and limit >= end[0] and longer.stat().st_size >= end[1]:
            passed.append(str(longer))
        return Logs(end[0], False, tuple(passed))
    later = longer.stat().st_size > own.stat().st_size
    privatefiles.copy(longer, own)
    number = end[0]
    while (most is None or number < most) and (path := _first(places, log_name(number + 1))) is not None and (
            is_begun(path)):
        number += 1
        privatefiles.copy(path, target / path.name)
        later = True
    for place in places:
        passed += [str(path) for path in logs(place) if log_number(path.name) > number]
    return Logs(number, later, tuple(passed))


def _first(places: Iterable[Path], name: str) -> Path | None:
    return next((place / name for place in places if (place / name).is_file()), None)


def _begins(longer: Path, start: Path) -> bool:
    """Whether the first file begins with the content of the second."""
    with privatefiles.open_file(longer, "rb") as one, privatefiles.open_file(start, "rb") as other:
        while block := other.read(BLOCK):
            if one.read(len(block)) != block:
                return False
    return True


def recover(folder: Path, until: int | None = None, logs: Path | None = None) -> None:
    """Make a copy consistent, by catastrophic recovery: with everything that its log has, or with what was committed up
    to that Unix time. Nobody else may use it. Afterwards it has no shared memory, and opens as any other. Raises
    Failure.

    `logs`: where its log is, in a folder of its own. Recovery writes behind the end of the log, so a log that goes on
    elsewhere is copied first. If recovery is done again later with more log, it finds the tables as they must be.
    Source: Berkeley DB 5.3 Programmer's Reference Guide, "Using Recovery and Hot Backups to maintain a hot failover".
    """
    env = db.DBEnv()
    try:
        if logs is not None:
            env.set_lg_dir(str(logs.absolute()))
        env.set_cachesize(0, RECOVERY_CACHE, 1)
        env.set_lg_max(LOG_FILE)
        env.set_tx_max(1000)
        if until is not None:
            env.set_tx_timestamp(until)
        env.open(str(folder), db.DB_CREATE | db.DB_INIT_MPOOL | db.DB_INIT_LOG | db.DB_INIT_TXN | db.DB_INIT_LOCK |
                 db.DB_THREAD | db.DB_PRIVATE | db.DB_RECOVER_FATAL, 0o600)
    finally:
        env.close()
    for path in folder.iterdir():
        sync_file(path)
    sync_folder(folder)


def faults(folder: Path) -> list[str]:
    """What is wrong with the databases in a folder that nobody uses, after `recover`: their structure is looked at, and
    every row is read."""
    found = []
    for path in sorted(folder.glob("*.db")):
        try:
            db.DB().verify(str(path))
        except db.DBError as error:
            found.append(f"{path.name}: {error}")
    return found


class Still:
    """The databases of an environment that nobody writes to any more, in a folder after `recover`, for reading. There
    are no transactions, locks or logs, and it makes no file in the folder. Any number of processes may read.

    `cache` is octets of memory. Raises Failure (of `transact`).
    """

    def __init__(self, folder: Path, cache: int) -> None:
        self._tables: list[Table] = []
        self._env = db.DBEnv()
        self._env.set_cachesize(0, cache, 1)
        self._env.open(str(folder), db.DB_CREATE | db.DB_INIT_MPOOL | db.DB_PRIVATE | db.DB_THREAD, 0o600)

    def table(self, name: str) -> Table:
        """Open the table `name`; if that fails, all is closed. Raises Failure."""
        handle = db.DB(self._env)
        try:
            handle.open(name, dbtype=db.DB_BTREE, flags=db.DB_RDONLY | db.DB_THREAD)
        except db.DBError:
            handle.close()
            self.close()
            raise
        self._tables.append(Table(handle, lambda: None, name))
        return self._tables[-1]

    def close(self) -> None:
        """Close the databases; nobody reads any more. Damaged ones are closed as well."""
        for close in (*(table.close for table in self._tables), self._env.close):
            with contextlib.suppress(db.DBError):
                close()
        self._tables.clear()
