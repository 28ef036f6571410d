"""Berkeley DB behind a small boundary: environments; tables are in `btree`, transactions in `transact`.

A commit hands its part of the log to the system, or fails and has done nothing; it does not sync. Before a change is
acknowledged, `Env.flush` is called, once for all that was committed so far. Locks are Berkeley DB's own, so that any
number of processes share an environment.

Source for the calls: Berkeley DB 5.3 Programmer's Reference Guide, "Transactional Data Store Applications".
"""

import contextlib
import ctypes
import errno
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from berkeleydb import db

from mboxlist import privatefiles
from mboxlist.engine import generations, regions
from mboxlist.engine.btree import Table, Txn
from mboxlist.engine.damagemarks import (
    UNLOGGED,
    begin,
    cut_at,
    cut_zeros,
    end_of_log,
    file_id,
    is_open,
    is_untouched,
    known_tables,
    note_newest,
    suspect,
    was_cut,
    write_tables,
)
from mboxlist.engine.disk import SyncFailed, is_disk_full, sync_folder
from mboxlist.engine.freezegate import WriteFreeze
from mboxlist.engine.generations import LogEnd, Marks
from mboxlist.engine.logfiles import LogAhead, LogFiles, LogFlush, drop_unbegun, read_from_disk, unflushed
from mboxlist.engine.secondcopy import STATE_AT
from mboxlist.engine.statistics import Statistics
from mboxlist.engine.transact import Deadlock, Unflushed, transact

LOCK_WAIT = 5_000_000       # microseconds after which waiting for a lock counts as a deadlock
LOG_FILE = 16 << 20         # octets of one log file
LATEST = 1 << 32, 0         # a place in the log that never comes
CHECKPOINT = 16 << 10       # octets of log that a checkpoint writes, at most
LOG_BUFFER = 4 << 20        # octets of log that may wait for the next flush in memory
GENERATION_SECONDS = 1.0    # for which a checkpoint tries to raise the generation
LOG_NAMES = 1 << 20         # octets of memory for the names of tables
LOCKERS, TRANSACTIONS = 2000, 1000      # at once, at least

_PARTS = db.DB_CREATE | db.DB_INIT_MPOOL | db.DB_INIT_LOCK | db.DB_INIT_LOG | db.DB_INIT_TXN | db.DB_THREAD


class NeedsRecovery(Exception):
    """The environment was damaged by a process that died in it; all must leave it and recovery must run."""


class Damaged(Exception):
    """What is on disk of an environment cannot be used as it is: see `damage`."""


class BadPages(Damaged):
    """A table has pages that are not what they were, or is another table; nothing else seems to be wrong."""


class LogCut(Damaged):
    """The log is damaged, and recovery has stopped there."""


class OlderTables(Damaged):
    """Some tables are of an earlier time than the others."""


class OlderEnvironment(Damaged):
    """The whole environment is of an earlier time than the one that was there last."""


class Env:
    """One Berkeley DB environment: a folder with its tables and its log.

    `cache` is octets of memory. `locks` is how many pages can be locked at once: a transaction may need one lock for
    each message. `broken` is called when nothing more can be done in the environment before it has been recovered.
    During a `write_freeze` no transaction begins. `recover` is for the one process that opens it first, and calls
    `opened` when it is ready; the others join. `marks` are the files outside that have its generation, too
    (`generations`). Raises NeedsRecovery when a joined environment must first be recovered, Damaged when it cannot be
    recovered, OSError when there is no room for its memory.
    """

    def __init__(self, folder: Path, *, cache: int, locks: int, recover: bool, broken: Callable[[], None],
                 write_freeze: WriteFreeze | None = None, marks: Callable[[], Iterable[Path]] = tuple) -> None:
        self.broken = broken
        self._write_freeze = write_freeze
        self.second = None if write_freeze is None else write_freeze.second
        self.folder = folder
        self.tables: list[Table] = []
        self._recover = recover
        self._marks = Marks(marks)
        self._raised = None if recover else (0, 0)      # where the log ended then; None: not to be raised yet
        self._marked = 0, 0                 # where the log ended when the marks were written
        self._known = known_tables(folder) if recover else {}
        untouched = recover and is_untouched(folder)
        self._ending = ending = end_of_log(folder) if recover and not untouched else ("", b"")
        form = " ".join(map(str, (db.DB_VERSION_STRING, cache, locks, LOCKERS, TRANSACTIONS, LOG_FILE, LOG_BUFFER,
                                  LOG_NAMES, regions.LOCK_LISTS, regions.CACHE_MUTEXES)))
        kept = untouched and regions.is_kept(folder, form)
        if recover:
            begin(folder)
            cut_zeros(folder, ending)
            regions.begin(folder, form)
            regions.configure(folder)
        self._env = self._made(cache, locks)
        self.log = LogFlush(folder, self._env.log_stat, self._fail, self._break)
        self.logs = LogFiles(folder, lambda: self._env.log_archive())
        if not (kept and self._joined(cache, locks)):
            if untouched:
                cut_zeros(folder, end_of_log(folder))
            self._open()
        if recover:
            if was_cut(folder, ending, self.log_end()):
                raise self._damaged("the log has been cut off where it is damaged")
            if not untouched:
                from mboxlist.engine.pages import look  # here: it loads numpy, which many commands do not need
                if wrong := look(folder):
                    raise self._damaged(wrong, BadPages)
            older, wholly = generations.look(folder, self._marks, untouched=untouched)
            if older:
                raise self._damaged(older, OlderEnvironment if wholly else OlderTables)

    def _open(self) -> None:
        try:
            self._env.open(str(self.folder), _PARTS | (db.DB_RECOVER if self._recover else 0), 0o600)
        except db.DBError as error:
            if not self._recover and isinstance(error, db.DBRunRecoveryError):
                raise NeedsRecovery(str(self.folder)) from error
            if not self._recover or is_disk_full(error):
                raise
            raise self._damaged(error) from error
        if self._recover:
            regions.reserve(self.folder)

    @staticmethod
    def _made(cache: int, locks: int) -> Any:
        env = db.DBEnv()
        env.set_cachesize(cache >> 30, cache & ((1 << 30) - 1), 1)
        env.set_lk_max_locks(locks)
        env.set_lk_max_objects(locks)
        env.set_lk_max_lockers(LOCKERS)
        env.set_tx_max(TRANSACTIONS)
        env.set_lg_max(LOG_FILE)
        env.set_lg_bsize(LOG_BUFFER)
        env.set_lg_regionmax(LOG_NAMES)
        env.set_lk_detect(db.DB_LOCK_MINWRITE)
        env.set_timeout(LOCK_WAIT, db.DB_SET_LOCK_TIMEOUT)
        env.set_flags(db.DB_TXN_WRITE_NOSYNC, 1)
        return env

    def _joined(self, cache: int, locks: int) -> bool:
        """Whether the memory that was kept could be joined, and nothing in it is held; if not, the environment must be
        opened."""
        try:
            self._env.open(str(self.folder), _PARTS, 0o600)
            if not self._env.lock_stat()["nlocks"] and not self._env.txn_stat()["nactive"]:
                return True
        except db.DBError:
            pass
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._env))     # not closed: see `_damaged`
        self._env = self._made(cache, locks)
        self.log.statistics = self._env.log_stat
        return False

    def _damaged(self, error: object, kind: type[Damaged] = Damaged) -> Damaged:
        """Drop the environment without closing it: Berkeley DB may wait for ever for what is broken."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._env))
        for table in self.tables:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(table))
        try:
            cut = cut_at(self.folder, self._ending, self.log_end())
        except db.DBError:                          # the environment is not open, or broken
            cut = cut_at(self.folder, self._ending, LATEST)
        return (kind if cut is None else LogCut)(f"{self.folder}: {error}")

    def opened(self) -> None:
        """Note that all tables are open and could be read: what the next start can expect is put on record."""
        self._raise_generation(generations.raise_environment, sync=False)
        self.mark_end()                 # also when others had locked tables: it may be another log
        self._ending = "", b""
        names = {table.name for table in self.tables}
        write_tables(self.folder, {name: file_id(self.folder / name) for name in sorted(names)})
        is_open(self.folder)

    def _raise_generation(self, how: Callable[[Sequence[Table], int, Txn], int], *, sync: bool) -> None:
        """Raise the generation, on disk, and then write the marks. If others have tables locked, it is given up."""
        new, least = 0, self._marks.read()
        with contextlib.suppress(*Deadlock):
            new = transact(self, lambda txn: how(self.tables, least, txn), seconds=GENERATION_SECONDS)
        self.flush()
        if new:
            self._marks.write(new, sync=sync)
            self.mark_end()
        self._raised = self.log_end()

    def _break(self) -> None:
        """Within `except`: nothing more can be done here. The first error of Berkeley DB is left for the next start."""
        error = sys.exc_info()[1]
        while error is not None and "fatal region error" in str(error):     # only follows from an earlier error
            error = error.__context__
        if isinstance(error, db.DBError):
            suspect(self.folder, str(error))
        self.broken()

    def table(self, name: str, *, page: int = 8192, glances: bool = False) -> Table:
        """Open the table `name`, making it if there is none; `page` is its page size in octets; `glances`: it allows
        `Table.glance`."""
        table = Table(self._handle(name, page, glances), self._break, name, glances)
        self.tables.append(table)
        return table

    def exchange(self, table: Table, file: Path) -> None:
        """Replace the table by that file, which was made outside of every environment, and is on disk: `bulk`.

        For the one process that recovers the environment, while nobody uses the table. If the caller cannot go on from
        the end of this, it must begin again: the log goes on with a table that it has not made. Raises OSError,
        Failure.
        """
        privatefiles.touch(self.folder / UNLOGGED)
        table.close()
        file.replace(self.folder / table.name)
        sync_folder(self.folder)
        table.use(self._handle(table.name, 0, table.glances))
        self.checkpoint()                           # recovery need not look at the table that was there before

    def _handle(self, name: str, page: int, glances: bool) -> Any:
        handle = db.DB(self._env)
        if page:
            handle.set_pagesize(page)
        handle.set_flags(db.DB_CHKSUM)              # of a table that is made: a bad page is never taken for a good one
        flags = db.DB_AUTO_COMMIT | db.DB_THREAD | (db.DB_READ_UNCOMMITTED if glances else 0)
        try:
            flags |= 0 if name in self._known or not page else db.DB_CREATE
            handle.open(name, dbtype=db.DB_BTREE, flags=flags, mode=0o600)
        except db.DBError as error:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(handle))
            if not self._recover or is_disk_full(error):
                raise
            raise self._damaged(error) from error
        return handle

    def begin(self, *, wait: bool = True, reads: bool = False) -> Txn:
        """A new transaction. If it may not `wait`, a lock that is not free raises one of `Deadlock` at once. One that
        only `reads` begins during a write freeze, too. Raises Quiesced, OSError."""
        while True:
            try:                                        # not `_watched`: this is called often
                txn = self._env.txn_begin() if wait else self._env.txn_begin(None, db.DB_TXN_NOWAIT)
            except db.DBRunRecoveryError:
                self._break()
                raise
            try:
                if self._write_freeze is None or reads or not self._write_freeze.shut:
                    return txn
            except BaseException:
                txn.abort()
                raise
            txn.abort()
            self._write_freeze.wait()

    @property
    def quiesced(self) -> bool:
        """Whether there is a write freeze: a transaction that changes anything would wait."""
        return self._write_freeze is not None and self._write_freeze.shut

    @property
    def is_free(self) -> bool:
        """Whether changes wait for no standby now: see `WriteFreeze.is_free`."""
        return self._write_freeze is not None and self._write_freeze.is_free

    @property
    def at_once(self) -> bool:
        """Whether this thread must not wait for locks: see `WriteFreeze.at_once`."""
        return self._write_freeze is not None and self._write_freeze.at_once

    def active(self) -> int:
        """How many transactions are under way, in all processes."""
        return int(self._env.txn_stat()["nactive"])

    def flush(self, *, here: bool = False) -> None:
        """Return when everything committed so far is on disk; unless `here`, also on the disk of a standby in
        synchronous mode. Raises Unflushed.

        After a sync that failed nobody knows what is on disk (fsync(2)), and Berkeley DB would only try again: then the
        environment is `broken`. If there was no room to write, it can be tried again.
        """
        second, ticket = self.second, 0
        if second is not None and second.shared[STATE_AT] and not here and not second.is_exempt() and not self.is_free:
            ticket = second.ask()
        if self.log.has_failed:
            raise Unflushed(errno.EIO, f"a sync of the log in {self.folder} has failed")
        try:
            end = self.log.end()
            self._env.log_flush()
        except db.DBError as error:
            full = is_disk_full(error)
            if not full or "fsync" in str(error):
                self._fail()
            raise Unflushed(errno.ENOSPC if full else errno.EIO, str(error)) from error
        try:
            self.log.sync_names(end[0])             # a new log file: its name must be on disk as well
        except OSError as error:
            if isinstance(error, SyncFailed):
                self._fail()
            raise unflushed(error) from error
        self.log.note(end)
        if ticket and second is not None:
            second.wait(ticket)

    def flush_new(self) -> bool:
        """As `flush`, if the log has grown since the last flush of this process; whether it has. Raises Unflushed."""
        grown = self.log.grown
        if grown:
            self.flush()
        return grown

    def mark_end(self) -> None:
        """Write to the marks how far the log is on disk, if this process knows more than last time."""
        end = self.log.known
        if end != self._marked and (there := LogEnd.of(self.folder, end)) is not None:
            self._marks.write_end(there)
            self._marked = end

    def write_log_ahead(self, *, alone: bool) -> None:
        """From now on, write each file of the log beforehand, see `LogAhead`. If nobody else is in the environment
        (`alone`), and no transaction is under way, also the rest of the present file; when that is not on disk the
        environment is `broken`."""
        if self.log.ahead is None:
            self.log.ahead = LogAhead(self.folder, self.log_end, self._env.log_stat()["lg_size"], self._fail)
        try:
            if alone:
                self.log.ahead.fill()
        except OSError:
            self._fail()
        self.log.ahead.begin()

    def logged(self) -> int:
        """Octets that have been written to the log since the environment was made, also to files that are gone."""
        file, octets = self.log_end()
        return (file - 1) * LOG_FILE + octets

    def statistics(self) -> Statistics:
        """What has been counted. Waits for no lock of a table."""
        with self._watched():
            return Statistics.of(self._env)

    def checkpoint(self, volume: int = 0, *, held: bool = False) -> None:
        """Write changed pages to the tables, so that recovery has less to do and old logs can go. With `volume`, only
        if so many octets of log, or more, have been written since the last one. During a write freeze only the caller
        that has `held` the writes does that."""
        if not held and self.quiesced:
            return
        try:
            if not volume and not held and self._raised not in (None, self.log_end()):
                self._raise_generation(generations.raise_all, sync=True)
            self._name_log_file()
            there = self.log_end()
            self._env.txn_checkpoint(volume >> 10, 0, 0)
        except db.DBError as error:
            if not is_disk_full(error) or "fsync" in str(error):    # Berkeley DB would only sync its tables again
                self._fail()
            raise
        if not volume:                              # so much of the log is on disk, and its name is
            try:
                sync_folder(self.folder)
            except SyncFailed:
                self._fail()
                raise
            note_newest(self.folder, there)
            if self._raised is not None:
                self._raised = self.log_end()

    def _name_log_file(self) -> None:
        """Put the name of the log file that a checkpoint writes to on disk before the checkpoint writes pages: a crash
        must not leave pages of which the log knows nothing. Raises OSError."""
        file, at = self.log_end()
        if self._env.log_stat()["lg_size"] - at < CHECKPOINT:
            while self.log_end()[0] == file:
                self._env.log_printf(b"-" * 2000)           # all that one call takes
        self.flush()

    def met(self, error: db.DBError) -> None:
        """A transaction met this error. A failed sync is one of the log: a file of it was full, see `flush`."""
        if isinstance(error, db.DBRunRecoveryError):
            self._break()
        elif "fsync" in str(error):
            self._fail()

    def _fail(self) -> None:
        self.log.has_failed = True
        read_from_disk(self.folder)
        self.broken()

    def detect_deadlocks(self) -> int:
        """End waits for locks that are part of a deadlock, or take longer than LOCK_WAIT; how many.

        Berkeley DB looks for a deadlock when a lock that is asked for is not free; this looks at how long a wait takes.
        """
        with self._watched():
            rejected: int = self._env.lock_detect(db.DB_LOCK_MINWRITE)
        return rejected

    def drop_logs(self, archive: Path | None = None, most: int | None = None) -> int:
        """See `LogFiles.drop`; during a write freeze none is dropped."""
        return 0 if self.quiesced else self.logs.drop(archive, most)

    def log_end(self) -> tuple[int, int]:
        """Where the next record of the log will be: file and octet."""
        return self.log.end()

    @contextmanager
    def _watched(self) -> Iterator[None]:
        try:
            yield
        except db.DBRunRecoveryError:
            self._break()
            raise

    def close(self, *, clean: bool = False) -> None:
        """Leave the environment. Every transaction must have ended. `clean`: nobody else is in it, and there has been a
        checkpoint.

        Then the log is cut where it ends: its newest file has its full length, and the next recovery would write zeros
        over what is behind the end. A file that has been written beforehand (`LogAhead`) stays: the next start joins
        the shared memory and recovers nothing, or else cuts the log itself.
        """
        for table in self.tables:
            table.close()
        self.tables.clear()
        self.log.close()
        number, octets = self.log_end() if clean and self.log.ahead is None else (0, 0)
        self._env.close()
        if clean:
            with contextlib.suppress(OSError):          # else it is overwritten later, and the memory is made again
                if number:
                    self._cut_log(number, octets)
                regions.keep(self.folder)

    def _cut_log(self, number: int, octets: int) -> None:
        newest = self.folder / f"log.{number:010}"
        if newest.stat().st_size > octets:
            handle = privatefiles.open_handle(newest, os.O_WRONLY)
            try:
                os.ftruncate(handle, octets)
            finally:
                os.close(handle)
        drop_unbegun(self.folder)


class AtRest(Env):
    """An environment that nobody has open, and that the last process left clean: its tables are read as files. Nothing
    is made or written, and no transaction begins. The caller makes sure that nobody opens the environment meanwhile."""

    def __init__(self, folder: Path) -> None:
        self.broken = lambda: None
        self.folder = folder
        self.tables = []

    def table(self, name: str, *, page: int = 8192, glances: bool = False) -> Table:
        """See Env: there are no locks for which a glance could wait."""
        return super().table(name, page=page)

    def _handle(self, name: str, page: int, glances: bool) -> Any:
        handle = db.DB()
        handle.open(str(self.folder / name), dbtype=db.DB_BTREE, flags=db.DB_RDONLY)
        return handle

    def begin(self, *, wait: bool = True, reads: bool = False) -> Txn:
        """There is none."""
        raise AssertionError(f"{self.folder} is only read")

    def close(self, *, clean: bool = False) -> None:
        """Close the tables."""
        for table in self.tables:
            table.close()
        self.tables.clear()
