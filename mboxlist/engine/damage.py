"""For an environment that cannot be used as it is: finds out what is whole, and makes it again from that.

Whatever in Berkeley DB may hang or die because of damaged files runs in a process of its own (`apart`).
"""

import contextlib
import errno
import faulthandler
import gc
import json
import os
import select
import signal
from collections.abc import Callable, Container, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from attrs import define, field
from berkeleydb import db

from mboxlist import privatefiles
from mboxlist.engine import generations, regions
from mboxlist.engine.damagemarks import (
    LOADING,
    NEWEST,
    OURS,
    TABLES,
    UNLOGGED,
    end_of_log,
    file_id,
    has_whole_tables,
    known_tables,
    log_files,
    logs,
    mark_clean,
    missing,
    newest,
    tables,
    was_cut,
)
from mboxlist.engine.disk import sync_folder
from mboxlist.engine.pages import bad_pages, have_checksums

CACHE = 32 << 20
LONGEST = 900               # seconds that a look may take
LEAST = CACHE + (16 << 20)  # octets: with less room on the volume, that may be why something fails
_ENVIRONMENT = db.DB_CREATE | db.DB_INIT_MPOOL | db.DB_INIT_LOCK | db.DB_INIT_LOG | db.DB_INIT_TXN | db.DB_THREAD


@define
class Mended:
    """What has become of an environment. `lost`: tables that are gone. `logs_lost`: changes that were only in the log
    may be missing. `exact`: nothing is missing. `aside` is where the old environment is now."""

    aside: Path
    exact: bool = False
    logs_lost: bool = False
    lost: dict[str, str] = field(factory=dict)
    source: str = ""


def apart(work: Callable[[], Any], folder: Path) -> Any:
    """The result of `work`, JSON, run in a process of its own; None when that dies, fails, or takes too long.

    Raises OSError when it fails and the volume of `folder` is full. Then Berkeley DB reports many things, or dies; and
    what cannot be written must not count as damaged.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            faulthandler.disable()              # this process may die: that is what it is for
            gc.disable()                        # so an environment that the parent has dropped is not closed here
            os.close(reading)
            with os.fdopen(writing, "w", closefd=False) as out:
                json.dump(work(), out)
        except BaseException as error:
            with contextlib.suppress(BaseException):
                os.write(2, f"{error}\n".encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as result:
        data, ready = b"", select.poll()        # select(2) knows no descriptor from 1,024 on
        ready.register(result, select.POLLIN)
        while ready.poll(LONGEST * 1000) and (more := os.read(reading, 1 << 16)):
            data += more
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    try:
        return json.loads(data)
    except ValueError:
        figures = os.statvfs(folder)
        if figures.f_bavail * figures.f_frsize < LEAST:
            raise OSError(errno.ENOSPC, "no room to make an environment again", str(folder)) from None
        return None


def _recover(folder: Path, *, fatal: bool) -> Any:
    regions.configure(folder)       # with a damaged one nothing could be opened
    env = db.DBEnv()
    env.set_cachesize(0, CACHE, 1)
    env.set_lk_max_locks(20_000)
    env.set_lk_max_objects(20_000)
    env.open(str(folder), _ENVIRONMENT | (db.DB_RECOVER_FATAL if fatal else db.DB_RECOVER), 0o600)
    return env


def _verified(folder: Path, *, deep: bool) -> dict[str, str]:
    every = sorted(tables(folder), key=lambda path: path.stat().st_size, reverse=True)
    with ThreadPoolExecutor(2) as readers:          # nearly all of the work is done outside of Python
        return {path.name: wrong for path, wrong in zip(
            every, readers.map(lambda table: _wrong(table, deep=deep), every), strict=True) if wrong}


def _wrong(table: Path, *, deep: bool) -> str:
    wrong = bad_pages(table)
    if not wrong and (deep or not have_checksums(table)):
        try:
            db.DB().verify(str(table))
        except db.DBError as error:
            wrong = str(error)
    return wrong


def look_through(folder: Path, *, recover: bool = True, fatal: bool = False, deep: bool = True
                 ) -> dict[str, str] | None:
    """What is wrong, by table, after recovery; "" stands for the log. None when recovery fails. Reads everything.

    Unless it looks `deep`, pages that agree with their checksums count as right, as at any start. To look also at how
    pages hang together takes six times as long.
    """
    def work() -> dict[str, str]:
        before = end_of_log(folder)
        end = (0, 0)
        if recover:
            env = _recover(folder, fatal=fatal)
            status = env.log_stat()
            end = status["cur_file"], status["cur_offset"]
            env.close()
        found = _verified(folder, deep=deep)
        known = known_tables(folder)
        found = {**generations.older_tables(folder, known, recovered=recover), **found}
        found |= {name: "is missing" for name in known if not (folder / name).is_file()}
        found |= {name: "is not the table that was there" for name, identity in known.items()
                  if name not in found and file_id(folder / name) != identity}
        if recover and was_cut(folder, before, end):
            found[""] = "the log has been cut off where it is damaged"
        return found

    result: dict[str, str] | None = apart(work, folder)
    return result


def has_all_logs(folder: Path) -> bool:
    """Whether the log is there from the very first record to the last one that is on record."""
    there = [int(path.name[4:]) for path in logs(folder)]
    return bool(there) and there == list(range(1, there[-1] + 1)) and not (folder / UNLOGGED).exists() and (
        there[-1] >= newest(folder)[0]) and not any(what.startswith("log.") for what in missing(folder))


def set_aside(folder: Path, aside: Path) -> None:
    """Move the whole environment there. In its place is an empty folder, with the files that are not the database's."""
    if folder.is_dir():
        folder.rename(aside)
    else:
        privatefiles.make_folder(aside)
    privatefiles.make_folder(folder)
    for path in aside.iterdir():
        if path.is_file() and not path.is_symlink() and path.suffix not in (".db", LOADING) and (
                path.name not in OURS) and not path.name.startswith(("log.", "__db.")):
            privatefiles.copy(path, folder / path.name)
    sync_folder(folder.parent)


def bring(aside: Path, folder: Path, paths: Iterable[Path], *, shared: Container[str] = ()) -> None:
    """Copy these files into an environment that has nothing else. Files of `shared` names get a second name instead,
    where that is possible."""
    for path in {*tables(folder), *log_files(folder), *folder.glob("__db.*"), *folder.glob(f"*{LOADING}")}:
        path.unlink()
    for path in paths:
        if path.name in shared:
            with contextlib.suppress(OSError):
                os.link(path, folder / path.name)
                continue
        privatefiles.copy(path, folder / path.name)
    for name in (TABLES, NEWEST):
        with contextlib.suppress(OSError):
            privatefiles.copy(aside / name, folder / name)


def mend(folder: Path, aside: Path, *, cut: bool = False, deep: bool = True, shared: Container[str] = (),
         older: bool = False) -> Mended:
    """Make an environment from what is whole of the one that was set aside. `cut`: its log has been cut off already.
    `deep`: see `look_through`; without its whole log tables are always looked at so. `shared` tables are of no more use
    in what was set aside, once there are the new ones. `older`: it has been recovered, and its log lacks what came
    since. Raises OSError."""
    done = Mended(aside)
    cut = cut or older
    whole = has_whole_tables(aside) and not older
    if has_all_logs(aside) and not cut:
        bring(aside, folder, logs(aside))
        if look_through(folder, fatal=True) == {}:
            return _done(done, folder, "its own log, from the beginning", exact=True, clean=True)
    there = tables(aside)
    with_log = bool(logs(aside)) and not cut and not any(what.startswith("log.") for what in missing(aside))
    bad: dict[str, str] | None = None
    verified: dict[str, str] | None = None
    for _ in range(2 if with_log else 0):
        bring(aside, folder, [*logs(aside), *(path for path in there if path.name not in (bad or {}))], shared=shared)
        wrong = look_through(folder, deep=deep)
        if wrong is not None and "" not in wrong:
            done.lost = {**wrong, **(bad or {})}
            return _done(done, folder, "its tables and its log", exact=not done.lost, clean=True)
        verified = _verified_apart(aside) if verified is None else verified
        bad = {**_older_apart(aside), **verified}       # a log may fail because it belongs to newer tables
    bad = _verified_apart(aside) if verified is None else verified
    bring(aside, folder, [path for path in there if path.name not in bad])
    if apart(lambda: _forget_log(folder), folder) is None:
        bad = {path.name: "cannot be used without its log" for path in there}
        bring(aside, folder, [])
    done.lost = bad | {name: "is missing" for name in known_tables(aside) if not (aside / name).is_file()}
    done.logs_lost = not whole
    kept = "its tables, which are older" if older else "its tables, without the log"
    source = kept if any(path.name not in bad for path in there) else "nothing"
    return _done(done, folder, source, exact=whole and not done.lost)


def _verified_apart(folder: Path) -> dict[str, str]:
    found = look_through(folder, recover=False)
    return found if found is not None else {path.name: "cannot be read" for path in tables(folder)}


def _older_apart(folder: Path) -> dict[str, str]:
    """Tables that are older than the others, or that a checkpoint has not written as it has them."""
    found: dict[str, str] | None = apart(lambda: generations.older_tables(folder, known_tables(folder)), folder)
    return found or {}


def _done(done: Mended, folder: Path, source: str, *, exact: bool = False, clean: bool = False) -> Mended:
    """`clean`: the environment has been recovered and looked through; who opens it need not do that again."""
    done.source, done.exact = source, exact
    for name in done.lost:
        (folder / name).unlink(missing_ok=True)
    for path in folder.glob("__db.*"):
        path.unlink()
    for name in (TABLES, NEWEST):                       # the process that opens it writes them again
        (folder / name).unlink(missing_ok=True)
    if clean:
        mark_clean(folder)
    sync_folder(folder)
    return done


def _forget_log(folder: Path) -> bool:
    """Make the tables begin with a new log."""
    env = db.DBEnv()
    env.open(str(folder), db.DB_CREATE | db.DB_INIT_MPOOL | db.DB_PRIVATE, 0o600)
    for path in tables(folder):
        env.lsn_reset(str(path))
    env.close()
    return True
