"""A store that is damaged mends itself when its first process opens it.

Each environment is opened as after any end. Where something is missing that was there, where recovery fails, or where
an earlier process has met something that Berkeley DB could not read, the environment is set aside whole, as
`<folder>.damaged-<time>`, and made again: from its own log, if that goes back to the beginning; from the newest
snapshot and the log since; from those of its tables that are whole. What is still missing then comes from the user area
and the message files (`startrebuild`). What was found and done is in `<root>/recovered/<time>.json`.

Until all of it is on disk `<root>/mending` says what was set aside, and where: a start that comes upon it begins the
work anew from there, so nobody takes what is half made for a store.
"""

import json
import logging
import os
import shutil
import stat
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from attrs import asdict, define, field

from mboxlist.engine import damagemarks
from mboxlist.engine.damage import Mended
from mboxlist.engine.disk import sync_folder
from mboxlist.engine.kv import BadPages, Damaged, Failure, LogCut
from store.errors import Problem, StoreError
from store.partition.marks import mark_behind, read_epoch
from store.recovery.emptying import adopt, make_folders
from store.settings import Settings
from store.snapshots.taking import Snapshot
from store.store import Store

log = logging.getLogger(__name__)

REPORTS = "recovered"
MENDING = "mending"         # the file in the store's folder that is there while environments are made anew
LIST = "mboxlist"           # the folder of the list's environment
MAIN = frozenset({"index.db", "state.db", "messages.db", "mailboxes.db", "users.db"})     # better older than none
EXPENDABLE = frozenset({"cache.db"})        # comes from message files; nothing of it changes before the store is open
PAST_THE_END = "BDB2509"    # what Berkeley DB says of tables that are newer than the log
KEPT = 2                    # damaged environments that are kept, of each
FEWER = 6                   # times that a snapshot is tried with fewer files of the log
TIME = "%Y%m%dT%H%M%SZ"

T = TypeVar("T")


@define
class Event:
    """What happened to one environment. `lost`: tables that could not be used, and why; `missing`: what is not there
    any more, for people; `exact`: nothing is."""

    environment: str
    found: str
    source: str = ""
    exact: bool = False
    logs_lost: bool = False
    lost: dict[str, str] = field(factory=dict)
    aside: str = ""
    missing: list[str] = field(factory=list)


@define
class Recovery:
    """For the one process that opens the store first; `dry`: nothing is changed. `adopted`: by partition the names that
    files of `staging/` got."""

    root: Path
    settings: Settings
    began: float = field(factory=time.time)
    events: dict[str, Event] = field(factory=dict)
    adopted: dict[str, list[list[Path]]] = field(factory=dict)
    notes: list[str] = field(factory=list)
    begun: dict[str, dict[str, Any]] = field(factory=dict)      # by environment: aside, found, cut
    over: bool = False                                          # the store is open

    def __attrs_post_init__(self) -> None:
        try:
            self.begun = json.loads((self.root / MENDING).read_text())
        except FileNotFoundError:
            self.begun = {}
        except (OSError, ValueError) as error:
            raise StoreError(Problem.UNAVAILABLE, f"{self.root / MENDING} cannot be read: {error}") from error

    def opened(self, environment: str, open: Callable[[], T]) -> T:
        """What `open` gives, once the environment can be used. Raises what `open` raises, StoreError UNAVAILABLE."""
        folder = self.root / environment
        allow(folder, self.notes)
        begun = self._cut_off(environment)
        deep = begun is not None or bool(damagemarks.marks(folder))
        found, cut = (str(begun["found"]), bool(begun["cut"])) if begun else (self.wrong(environment), False)
        for _ in range(2):
            if not found:
                try:
                    return open()
                except LogCut as error:
                    found, cut, deep = str(error), True, True
                except (Damaged, Failure) as error:
                    found, cut, deep = str(error), PAST_THE_END in str(error), not isinstance(error, BadPages)
            aside = self.root / begun["aside"] if begun else None
            self._mend(environment, found.replace(f"{folder}: ", ""), cut, aside, deep=deep)
            found, begun = "", None
        return open()

    def _cut_off(self, environment: str) -> dict[str, Any] | None:
        """What an earlier start had begun to do about the environment, if it had been set aside."""
        begun = self.begun.get(environment)
        if begun is None or not (self.root / begun["aside"]).is_dir():
            return None
        log.error("%s was being made anew when an earlier start was cut off: that begins once more", environment)
        return begun

    def _begin(self, environment: str, aside: Path, found: str, cut: bool) -> None:
        """Have the next start know, on disk, in case that this one does not come to its end. In an open store it is
        about a partition that is being rebuilt, and that begins anew by itself."""
        if self.over:
            return
        self.begun = {**self.begun, environment: {
            "aside": str(aside.relative_to(self.root)), "found": found, "cut": cut}}    # the store may be moved
        new = self.root / f"{MENDING}.new"
        with new.open("w") as file:
            json.dump(self.begun, file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.root / MENDING)
        sync_folder(self.root)

    def ended(self) -> None:
        """Everything is on disk. Raises OSError."""
        self.over = True
        if self.begun:
            (self.root / MENDING).unlink(missing_ok=True)
            sync_folder(self.root)

    def wrong(self, environment: str) -> str:
        """What can be seen to be wrong without opening it; "" if nothing."""
        folder = self.root / environment
        if not folder.is_dir():
            return "it is missing"
        if self._was_used(environment) and not damagemarks.tables(folder) and not damagemarks.logs(folder):
            return "it is empty"
        missing = ", ".join(damagemarks.missing(folder))
        marked = damagemarks.marks(folder)
        if missing or not marked:
            return missing
        from mboxlist.engine import damage  # here, as below: where all is well nothing that mends is needed
        wrong = damage.look_through(folder)
        if wrong == {}:
            log.warning("%s: nothing is wrong with its tables (%s)", environment, marked)
            for name in (damagemarks.SUSPECT, damagemarks.OPENING):
                (folder / name).unlink(missing_ok=True)
            return ""
        return marked if wrong is None else ", ".join(f"{name or 'the log'}: {why}" for name, why in wrong.items())

    def _was_used(self, environment: str) -> bool:
        partitions = self.root / "partitions"
        mine = [partitions] if environment == LIST else [(self.root / environment).parent]
        return any(read_epoch(place) for each in mine for place in (each.iterdir() if environment == LIST else [each]))

    def _mend(self, environment: str, found: str, cut: bool, aside: Path | None, *, deep: bool) -> None:
        """Make it anew. `aside`: it has been set aside already, and what is in its place is half made. `deep`: see
        `damage.look_through`."""
        from mboxlist.engine import damage
        folder = self.root / environment
        log.error("%s is damaged (%s): it is made anew from what there is", environment, found)
        event = self.events[environment] = Event(environment, found)
        if aside is None and ".db" not in found and folder.is_dir():
            bad = damage.look_through(folder, recover=False)
            event.found = "; ".join([found, *(f"{name}: {why}" for name, why in (bad or {}).items())])
        try:
            if aside is None:
                aside = aside_name(folder, self.began)
                self._begin(environment, aside, event.found, cut)
                damage.set_aside(folder, aside)
            event.aside = str(aside)
            done = self._from_snapshot(environment, aside, cut) or damage.mend(folder, aside, cut=cut, deep=deep,
                                                                               shared=EXPENDABLE)
            poor = done.source == "nothing" or MAIN & done.lost.keys()
            if not done.exact and poor and self._has_snapshot(environment):
                done = self.from_old_snapshot(environment, aside) or damage.mend(folder, aside, cut=cut)
            self._prepare(environment, done.exact)
        except OSError as error:
            raise StoreError(Problem.UNAVAILABLE, f"{environment} is damaged, and cannot be mended: {error}") from error
        event.source, event.exact, event.lost, event.logs_lost = done.source, done.exact, done.lost, done.logs_lost
        log.warning("%s has been made anew from %s%s", environment, done.source, "" if done.exact else
                    "; what is missing comes from the user area")
        for old in sorted(folder.parent.glob(folder.name + ".damaged-*"))[:-KEPT]:
            shutil.rmtree(old, ignore_errors=True)

    def _prepare(self, environment: str, exact: bool) -> None:
        if environment == LIST:
            return
        partition = (self.root / environment).parent
        (partition / "index" / "unclean").touch(mode=0o600)     # UIDs and MODSEQs skip ahead
        mark_behind(partition)
        make_folders(partition)
        if not exact:
            self.adopted[partition.name] = adopt(partition / "staging", partition / "messages")

    def _from_snapshot(self, environment: str, aside: Path, cut: bool) -> Mended | None:
        """Made from a snapshot and the whole log since; None when that cannot be had."""
        from mboxlist.engine import damage
        from mboxlist.engine.damage import Mended
        from store.snapshots import taking
        if cut or damage.has_all_logs(aside):
            return None
        archive = [self.settings.log_archive / environment] if self.settings.log_archive else []
        newest = max([damagemarks.newest(aside)[0], *(int(path.name[4:]) for path in damagemarks.logs(aside))],
                     default=0)
        folder = self.root / environment
        for snapshot in taking.listed(taking.folder(self.root, self.settings)):
            if environment not in snapshot.manifest.environments:
                continue
            damage.bring(aside, folder, [])

            def put_back(snapshot: Snapshot = snapshot) -> int:
                return taking.put_back(snapshot, environment, folder, [aside, *archive]).last

            last = damage.apart(put_back, folder)
            if last == newest and _goes_on(aside, folder, newest) and damage.look_through(folder, recover=False) == {}:
                self._forget_traces(folder)
                return Mended(aside, exact=True, source=f"the snapshot {snapshot.name} and the log since")
        damage.bring(aside, folder, [])
        return None

    @staticmethod
    def _forget_traces(folder: Path) -> None:
        for name in (damagemarks.TABLES, damagemarks.NEWEST):
            (folder / name).unlink(missing_ok=True)

    def _has_snapshot(self, environment: str) -> bool:
        from store.snapshots import taking
        return any(environment in snapshot.manifest.environments for snapshot in taking.listed(
            taking.folder(self.root, self.settings)))

    def from_old_snapshot(self, environment: str, aside: Path) -> Mended | None:
        """Made from the newest snapshot that is whole, with as much of the log as there is."""
        from mboxlist.engine import damage
        from mboxlist.engine.damage import Mended
        from store.snapshots import taking
        folder = self.root / environment
        for snapshot in taking.listed(taking.folder(self.root, self.settings)):
            part = snapshot.manifest.environments.get(environment)
            if part is None:
                continue
            last = max((int(path.name[4:]) for path in damagemarks.logs(aside)), default=part.end[0])
            for most in [*range(last, part.end[0], -1)][:FEWER] + [None]:
                damage.bring(aside, folder, [])
                logs = [] if most is None else [aside]

                def put_back(snapshot: Snapshot = snapshot, logs: Sequence[Path] = logs,
                             most: int | None = most) -> int:
                    return taking.put_back(snapshot, environment, folder, logs, most=most).last

                if damage.apart(put_back, folder) is not None and damage.look_through(folder, recover=False) == {}:
                    self._forget_traces(folder)
                    return Mended(aside, logs_lost=True, source=f"the snapshot {snapshot.name}"
                                  + (", and the log as far as it goes" if logs else ""))
        return None

    # What was done

    def is_needed(self) -> bool:
        """Whether anything has happened that is to be told."""
        return bool(self.events or self.notes)

    def report(self) -> Path:
        """Write down what was found and done. Raises OSError."""
        place = self.root / REPORTS
        place.mkdir(mode=0o700, exist_ok=True)
        path = place / f"{_stamp(self.began)}.json"
        number = 1
        while path.exists():
            path, number = place / f"{_stamp(self.began)}.{number}.json", number + 1
        new = path.with_suffix(".new")
        new.write_text(json.dumps({
            "time": self.began, "seconds": round(time.time() - self.began, 3), "notes": self.notes,
            "environments": [asdict(event) for event in self.events.values()]}, indent=1))
        new.replace(path)
        sync_folder(place)
        return path


def _goes_on(aside: Path, folder: Path, newest: int) -> bool:
    """Whether the log that was put back is all that there was, up to its end."""
    there, octets = damagemarks.newest(aside)
    log, put_back = aside / f"log.{newest:010}", folder / f"log.{newest:010}"
    if not log.is_file() or there == newest and log.stat().st_size < octets:
        return False
    written = log.read_bytes().rstrip(b"\0")           # what comes behind that is there for records to come
    with put_back.open("rb") as file:
        return file.read(len(written)) == written


def _stamp(when: float) -> str:
    return time.strftime(TIME, time.gmtime(when))


def aside_name(folder: Path, when: float) -> Path:
    """What a damaged environment is called that is set aside at that time."""
    path, number = folder.with_name(f"{folder.name}.damaged-{_stamp(when)}"), 1
    while path.exists():
        path, number = folder.with_name(f"{folder.name}.damaged-{_stamp(when)}.{number}"), number + 1
    return path


def allow(folder: Path, notes: list[str]) -> None:
    """Have this process able to read and write the environment's files; root gives them the owner of the store.

    Raises StoreError UNAVAILABLE with what is to be done when it cannot.
    """
    if not folder.is_dir():
        return
    owner = folder.parent.stat()
    for path in (folder, *folder.iterdir()):
        try:
            status = path.lstat()
        except FileNotFoundError:
            continue
        wanted = stat.S_IRUSR | stat.S_IWUSR | (stat.S_IXUSR if path == folder else 0)
        if stat.S_ISLNK(status.st_mode):
            continue
        wrong_owner = status.st_uid != owner.st_uid
        try:
            if wrong_owner and os.geteuid() == 0:
                os.chown(path, owner.st_uid, owner.st_gid)
                notes.append(f"{path} belonged to user {status.st_uid}, and belongs to {owner.st_uid} again")
            if status.st_mode & wanted != wanted and os.geteuid() in (0, status.st_uid):
                path.chmod(stat.S_IMODE(status.st_mode) | wanted)
                notes.append(f"{path} had the mode {stat.S_IMODE(status.st_mode):o}, and can be read and written again")
        except OSError as error:
            raise StoreError(Problem.UNAVAILABLE, f"{path} cannot be used: {error.strerror}") from error
        if not os.access(path, os.R_OK | os.W_OK):
            raise StoreError(Problem.UNAVAILABLE, f"{path} belongs to user {status.st_uid} and has the mode "
                             f"{stat.S_IMODE(status.st_mode):o}: chown {os.geteuid()} and chmod u+rw, or start as root")


def reports(root: Path) -> list[tuple[str, dict[str, Any]]]:
    """What was written down, the newest first; without what cannot be read."""
    found = []
    for path in sorted((root / REPORTS).glob("*.json"), reverse=True):
        try:
            found.append((path.stem, json.loads(path.read_text())))
        except (OSError, ValueError):
            continue
    return found


def recovery_of(store: Store) -> Recovery | None:
    """What the start did, if this process was the first in the store and nobody had rebuilt it just before."""
    return store.owned.find(Recovery)
