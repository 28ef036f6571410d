"""A store that is damaged mends itself when its first process opens it.

Each environment is opened as after any end. Where something is missing that was there, where recovery fails, or where
an earlier process has met something that Berkeley DB could not read, the environment is set aside whole, as
`<folder>.damaged-<time>`, and made again: from its own log, if that goes back to the beginning; from the newest
snapshot and the log since; from those of its tables that are whole. What is still missing then comes from the user area
and the message files (`startrebuild`). What was found and done is in `<root>/recovered/<time>.json`.

A table that is older than the others of its environment counts as lost. An environment that is older than what was
there last (`engine/generations.py`) is set aside as `<folder>.older-<time>`; its tables, or a newer snapshot, are where
the rebuild begins, and what is newer in the user area goes before them.

Until all of it is on disk `<root>/mending` says what was set aside, and where: a start that finds it begins the
work again from there, so nobody takes what is half made for a store.
"""

import json
import logging
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from attrs import asdict, define, field

from mboxlist import privatefiles
from mboxlist.engine import damagemarks
from mboxlist.engine.disk import replace_file, sync_folder
from mboxlist.engine.kv import BadPages, Damaged, LogCut, OlderEnvironment, OlderTables
from mboxlist.engine.transact import Failure
from store.errors import Problem, StoreError
from store.partition.marks import read_epoch
from store.rebuild.emptying import stamp
from store.rebuild.outcome import Event
from store.settings import Settings
from store.store import Store

log = logging.getLogger(__name__)

REPORTS = "recovered"
MENDING = "mending"         # the file in the store's folder that is there while environments are rebuilt
LIST = "mboxlist"           # the folder of the list's environment
PAST_THE_END = "BDB2509"    # what Berkeley DB says of tables that are newer than the log

T = TypeVar("T")


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
            self.begun = json.loads(privatefiles.read_text(self.root / MENDING))
        except FileNotFoundError:
            self.begun = {}
        except (OSError, ValueError) as error:
            raise StoreError(Problem.UNAVAILABLE, f"{self.root / MENDING} cannot be read: {error}") from error

    def opened(self, environment: str, begin: Callable[[], T]) -> T:
        """What `begin` gives, once the environment can be used. Raises what `begin` raises, StoreError UNAVAILABLE."""
        folder = self.root / environment
        allow(folder, self.notes)
        begun = self._cut_off(environment)
        deep = begun is not None or bool(damagemarks.marks(folder))
        found, cut = (str(begun["found"]), bool(begun["cut"])) if begun else (self.wrong(environment), False)
        older = begun is not None and bool(begun.get("older"))
        for _ in range(2):
            if not found:
                try:
                    return begin()
                except LogCut as error:
                    found, cut, deep = str(error), True, True
                except (OlderTables, OlderEnvironment) as error:
                    found, older = str(error), isinstance(error, OlderEnvironment)
                except (Damaged, Failure) as error:
                    found, cut, deep = str(error), PAST_THE_END in str(error), not isinstance(error, BadPages)
            aside = self.root / begun["aside"] if begun else None
            self._mend(environment, found.replace(f"{folder}: ", ""), cut, aside, deep=deep, older=older)
            found, begun, older = "", None, False
        return begin()

    def _cut_off(self, environment: str) -> dict[str, Any] | None:
        """What an earlier start had begun to do about the environment, if it had been set aside."""
        begun = self.begun.get(environment)
        if begun is None or not (self.root / begun["aside"]).is_dir():
            return None
        log.error("%s was being rebuilt when an earlier start was cut off: that begins once more", environment)
        return begun

    def begin(self, environment: str, aside: Path, found: str, *, cut: bool, older: bool) -> None:
        """Have the next start know, on disk, in case that this one does not come to its end. In an open store it is
        about a partition that is being rebuilt, and that starts again by itself."""
        if self.over:
            return
        self.begun = {**self.begun, environment: {
            "aside": str(aside.relative_to(self.root)), "found": found, "cut": cut,     # the store may be moved
            "older": older}}
        replace_file(self.root / MENDING, json.dumps(self.begun).encode())

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
        wrong = _environmentrebuild().look_through(folder)
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

    def _mend(self, environment: str, found: str, cut: bool, aside: Path | None, *, deep: bool, older: bool) -> None:
        _environmentrebuild().EnvironmentRebuild(self, environment, older).run(found, cut, aside, deep=deep)

    # What was done

    def is_needed(self) -> bool:
        """Whether anything has happened that must be reported."""
        return bool(self.events or self.notes)

    def report(self) -> Path:
        """Write down what was found and done. Raises OSError."""
        place = self.root / REPORTS
        privatefiles.make_folder(place, exist_ok=True)
        path = place / f"{stamp(self.began)}.json"
        number = 1
        while path.exists():
            path, number = place / f"{stamp(self.began)}.{number}.json", number + 1
        replace_file(path, json.dumps({
            "time": self.began, "seconds": round(time.time() - self.began, 3), "notes": self.notes,
            "environments": [asdict(event) for event in self.events.values()]}, indent=1).encode())
        return path


def _environmentrebuild() -> ModuleType:
    """Loaded here: where all is well nothing that mends is needed, and it takes as long to load as a small command."""
    from store.recovery import environmentrebuild
    return environmentrebuild


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
                privatefiles.make_private(path, (owner.st_uid, owner.st_gid))
                notes.append(f"{path} belonged to user {status.st_uid}, and belongs to {owner.st_uid} again")
            if status.st_mode & wanted != wanted and os.geteuid() in (0, status.st_uid):
                privatefiles.make_private(path)
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
            found.append((path.stem, json.loads(privatefiles.read_text(path))))
        except (OSError, ValueError):
            continue
    return found


def recovery_of(store: Store) -> Recovery | None:
    """What the start did, if this process was the first in the store and nobody had rebuilt it just before."""
    return store.owned.find(Recovery)
