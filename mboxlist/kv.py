"""Berkeley DB behind a small boundary: environments, tables, transactions. Nothing else imports `berkeleydb`.

Commits do not sync: whoever must answer for a change calls `Env.flush` once for all that was committed so far. Locks
are Berkeley DB's own, so that any number of processes share an environment; a deadlock raises `Deadlock`, and the
function that met it is run again (`transact`).

Source for the calls: Berkeley DB 5.3 Programmer's Reference Guide, "Transactional Data Store Applications".
"""

import ctypes
import errno
import filecmp
import itertools
import os
import random
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from berkeleydb import db

from mboxlist.disk import is_disk_full, sync_folder
from mboxlist.statistics import Statistics

Deadlock = (db.DBLockDeadlockError, db.DBLockNotGrantedError)
Failure = db.DBError
Txn = Any                   # a berkeleydb DBTxn: `commit()` and `abort()`

TRIES = 50                  # how often a transaction that met a deadlock is run
PAUSE = 0.002               # seconds, at most, before it is run again; twice as long each time where time is limited,
LONGEST_PAUSE = 0.05        # up to this
LOCK_WAIT = 5_000_000       # microseconds after which waiting for a lock counts as a deadlock
LOG_FILE = 16 << 20         # octets of one log file
LOG_BUFFER = 4 << 20        # octets of log that may wait for the next flush in memory

CACHE_REGION = "__db.003"
KEEP_SIZE = 1               # FALLOC_FL_KEEP_SIZE of fallocate(2)

_RMW: int = db.DB_RMW

T = TypeVar("T")

_libc = ctypes.CDLL(None, use_errno=True)


class NeedsRecovery(Exception):
    """The environment was damaged by a process that died in it; all must leave it and recovery must run."""


class Env:
    """One Berkeley DB environment: a folder with its tables and its log.

    `cache` is octets of memory; `locks` how many pages can be locked at once: a transaction may need one for each
    message. `broken` is called when nothing more can be done in the environment before it has been recovered.
    `recover` is for the one process that opens it first; the others join.
    Raises NeedsRecovery when joining what must first be recovered, OSError when there is no room for its memory.
    """

    def __init__(self, folder: Path, *, cache: int, locks: int, recover: bool, broken: Callable[[], None]) -> None:
        self.broken = broken
        self._folder = folder
        self._tables: list[Table] = []
        self._log_files = 0
        self._failed = False                # to sync the log
        self._env = env = db.DBEnv()
        env.set_cachesize(cache >> 30, cache & ((1 << 30) - 1), 1)
        env.set_lk_max_locks(locks)
        env.set_lk_max_objects(locks)
        env.set_lk_max_lockers(2000)
        env.set_tx_max(1000)
        env.set_lg_max(LOG_FILE)
        env.set_lg_bsize(LOG_BUFFER)
        env.set_lg_regionmax(1 << 20)
        env.set_lk_detect(db.DB_LOCK_MINWRITE)
        env.set_timeout(LOCK_WAIT, db.DB_SET_LOCK_TIMEOUT)
        env.set_flags(db.DB_TXN_NOSYNC, 1)
        flags = db.DB_CREATE | db.DB_INIT_MPOOL | db.DB_INIT_LOCK | db.DB_INIT_LOG | db.DB_INIT_TXN | db.DB_THREAD
        try:
            env.open(str(folder), flags | (db.DB_RECOVER if recover else 0), 0o600)
        except db.DBRunRecoveryError as error:
            raise NeedsRecovery(str(folder)) from error
        if recover:
            _reserve(folder, cache)

    def table(self, name: str, *, page: int = 8192, glances: bool = False) -> "Table":
        """Open the table `name`, making it if there is none; `page` is its page size in octets; `glances`: it allows
        `Table.glance`."""
        handle = db.DB(self._env)
        handle.set_pagesize(page)
        flags = db.DB_CREATE | db.DB_AUTO_COMMIT | db.DB_THREAD | (db.DB_READ_UNCOMMITTED if glances else 0)
        handle.open(name, dbtype=db.DB_BTREE, flags=flags, mode=0o600)
        table = Table(handle, self.broken)
        self._tables.append(table)
        return table

    def begin(self, *, wait: bool = True) -> Txn:
        """A new transaction. Unless it may `wait`, a lock that is not free raises one of `Deadlock` at once."""
        try:                                        # not `_watched`: this is called often
            return self._env.txn_begin() if wait else self._env.txn_begin(None, db.DB_TXN_NOWAIT)
        except db.DBRunRecoveryError:
            self.broken()
            raise

    def flush(self) -> None:
        """Return when everything committed so far is on disk. Raises OSError.

        After a sync that failed nobody knows what is on disk (fsync(2)), and Berkeley DB would only try again: then the
        environment is `broken`. When there was no room to write, it can be tried again.
        """
        if self._failed:
            raise OSError(errno.EIO, f"a sync of the log in {self._folder} has failed")
        try:
            self._env.log_flush()
        except db.DBError as error:
            full = is_disk_full(error)
            if not full or "fsync" in str(error):
                self._fail()
            raise OSError(errno.ENOSPC if full else errno.EIO, str(error)) from error
        newest = self._folder.stat().st_mtime_ns
        if newest != self._log_files:               # a new log file: its name must be on disk as well
            sync_folder(self._folder)
            self._log_files = newest

    def logged(self) -> int:
        """Octets that have been written to the log since the environment was made, also to files that are no more."""
        found = self._env.log_stat()
        return int((found["cur_file"] - 1) * LOG_FILE + found["cur_offset"])

    def statistics(self) -> Statistics:
        """What has been counted. Waits for no lock of a table."""
        with self._watched():
            return Statistics.of(self._env)

    def checkpoint(self, volume: int = 0) -> None:
        """Write changed pages to the tables, so that recovery has less to do and old logs can go; with `volume` only if
        so many octets of log, or more, have been written since the last one."""
        try:
            self._env.txn_checkpoint(volume >> 10, 0, 0)
        except db.DBError as error:
            if not is_disk_full(error):
                self._fail()
            raise

    def met(self, error: db.DBError) -> None:
        """A transaction met this error. A sync that failed is one of the log: a file of it was full, see `flush`."""
        if isinstance(error, db.DBRunRecoveryError):
            self.broken()
        elif "fsync" in str(error):
            self._fail()

    def _fail(self) -> None:
        self._failed = True
        self.broken()

    def detect_deadlocks(self) -> int:
        """Have waits for a lock end that are part of a deadlock, or take longer than LOCK_WAIT; how many.

        Berkeley DB looks for a deadlock when a lock is asked for and not free; the time a wait takes is looked at here.
        """
        with self._watched():
            rejected: int = self._env.lock_detect(db.DB_LOCK_MINWRITE)
        return rejected

    def unneeded_logs(self) -> list[Path]:
        """The files of the log that recovery needs no more, the oldest first."""
        return [self._folder / os.fsdecode(name) for name in sorted(self._env.log_archive())]

    def drop_logs(self, archive: Path | None = None) -> int:
        """Remove log files that recovery needs no more; how many. With `archive` each is on disk there first.

        Raises OSError; what has not been removed then is there at the next call.
        """
        files = self.unneeded_logs()
        for file in files:
            if archive is not None:
                _archive(file, archive)
            file.unlink(missing_ok=True)
        return len(files)

    @contextmanager
    def _watched(self) -> Iterator[None]:
        try:
            yield
        except db.DBRunRecoveryError:
            self.broken()
            raise

    def close(self) -> None:
        """Leave the environment. Every transaction must have ended."""
        for table in self._tables:
            table.close()
        self._tables.clear()
        self._env.close()


class Table:
    """An ordered table of octet strings."""

    __slots__ = ("_broken", "_db", "_get", "_put")

    def __init__(self, handle: Any, broken: Callable[[], None]) -> None:
        self._db = handle
        self._broken = broken
        self._get = handle.get          # these two are called for every record of everything
        self._put = handle.put

    def get(self, key: bytes, txn: Txn = None) -> bytes | None:
        """The value under `key`, or None."""
        try:
            value: bytes | None = self._get(key, None, txn)
        except db.DBRunRecoveryError:
            self._broken()
            raise
        return value

    def glance(self, key: bytes) -> bytes | None:
        """The value under `key` as it is at this moment, committed or not. Waits for no lock.

        For hints only: who acts on it looks again in a transaction.
        """
        try:
            value: bytes | None = self._get(key, None, None, db.DB_READ_UNCOMMITTED)
        except db.DBRunRecoveryError:
            self._broken()
            raise
        return value

    def get_to_change(self, key: bytes, txn: Txn) -> bytes | None:
        """The value under `key`, locked for writing from now to the end of the transaction."""
        value: bytes | None = self._get(key, None, txn, _RMW)
        return value

    def put(self, key: bytes, value: bytes, txn: Txn) -> None:
        """Set the value under `key`."""
        self._put(key, value, txn)

    def delete(self, key: bytes, txn: Txn) -> bool:
        """Remove `key`; whether it was there."""
        try:
            self._db.delete(key, txn)
        except db.DBNotFoundError:
            return False
        return True

    def scan(self, start: bytes = b"", end: bytes | None = None, txn: Txn = None, *, hold: bool = False
             ) -> Iterator[tuple[bytes, bytes]]:
        """Keys and values from `start` up to, not including, `end`, in order of key.

        No row stays locked once the scan has passed it, unless `hold` asks for that. Close the iterator if it is left
        early.
        """
        try:
            with closing(self._db.cursor(txn, 0 if txn is None or hold else db.DB_READ_COMMITTED)) as cursor:
                row = cursor.set_range(start)
                while row is not None and (end is None or row[0] < end):
                    yield row
                    row = cursor.next()
        except db.DBRunRecoveryError:
            self._broken()
            raise

    def scan_to_change(self, start: bytes, end: bytes, txn: Txn) -> Iterator[tuple[bytes, bytes]]:
        """The same; every row that was looked at is locked for writing from now to the end of the transaction."""
        with closing(self._db.cursor(txn)) as cursor:
            row = cursor.set_range(start, _RMW)
            while row is not None and row[0] < end:
                yield row
                row = cursor.next(_RMW)

    def close(self) -> None:
        """Let go of the table."""
        self._db.close()


def transact(env: Env, work: Callable[[Txn], T], *, seconds: float | None = None) -> T:
    """The result of `work` in a transaction that is committed (not flushed). `work` may run more than once.

    It waits for locks; with `seconds` it does not, but tries again until so much time has passed, and at least twice.
    Raises one of `Deadlock` when it does not get them.
    """
    deadline = None if seconds is None else time.monotonic() + seconds
    pause = PAUSE
    for tried in itertools.count(1):
        txn = env.begin(wait=seconds is None)
        try:
            result = work(txn)
        except Deadlock:
            txn.abort()
            if tried == TRIES if deadline is None else tried > 1 and time.monotonic() + pause > deadline:
                raise
            time.sleep(random.uniform(0, pause))        # or the same ones meet again
            if deadline is not None:
                pause = min(2 * pause, LONGEST_PAUSE)
        except db.DBRunRecoveryError:
            env.broken()
            raise
        except BaseException as error:
            if isinstance(error, db.DBError):
                env.met(error)
            txn.abort()
            raise
        else:
            try:
                txn.commit()
            except db.DBError as error:
                env.met(error)
                raise
            return result
    raise AssertionError("unreachable")


def salvage(file: Path) -> Iterator[tuple[bytes, bytes]]:
    """The rows of a table that has lost its environment, in order, as far as they can be read. Raises Failure."""
    handle = db.DB()
    try:
        handle.open(str(file), dbtype=db.DB_BTREE, flags=db.DB_RDONLY)
        with closing(handle.cursor()) as cursor:
            row = cursor.first()
            while row is not None:
                yield row
                row = cursor.next()
    finally:
        handle.close()


def _reserve(folder: Path, cache: int) -> None:
    """Have disk blocks for all of the shared memory: touching a hole of a mapped file on a full disk is SIGBUS.

    The cache's region is made small and grows, up to a quarter more than the cache that was asked for.
    """
    for region in sorted(folder.glob("__db.*")):
        handle = os.open(region, os.O_RDWR | os.O_CLOEXEC)
        try:
            os.posix_fallocate(handle, 0, os.fstat(handle).st_size)
            if region.name == CACHE_REGION and _libc.fallocate(handle, KEEP_SIZE, ctypes.c_int64(0), ctypes.c_int64(
                    cache + cache // 4 + (1 << 20))) != 0 and ctypes.get_errno() != errno.EOPNOTSUPP:
                raise OSError(ctypes.get_errno(), f"no room for the cache in {region}")
        finally:
            os.close(handle)


def _archive(file: Path, folder: Path) -> None:
    """Return when a copy of the file is on disk in the folder. Raises FileExistsError for another file of that name."""
    folder.mkdir(parents=True, mode=0o700, exist_ok=True)
    copy = folder / file.name
    if copy.exists():
        if not filecmp.cmp(file, copy, shallow=False):
            raise FileExistsError(errno.EEXIST, "another log of that name has been archived", str(copy))
    else:
        part = folder / f"{file.name}.part"
        shutil.copyfile(file, part)
        handle = os.open(part, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
        part.rename(copy)
    sync_folder(folder)
