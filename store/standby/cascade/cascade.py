"""What a standby has for those that follow it, and what it knows of them. The process that follows has one `Cascade`;
each connection has a `cascadesource.CascadeSource`, in a thread of its own.
"""

import contextlib
import json
import logging
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from threading import Condition, Lock
from typing import Any

from attrs import define, field, frozen

from mboxlist import privatefiles
from mboxlist.engine.hotcopy import Position
from store.errors import Problem, StoreError
from store.snapshots.taking import LIST
from store.standby import switching
from store.standby.cascade import followersrecord, keptlogs, seedcopy
from store.standby.cascade.seedcopy import SeedCopy
from store.standby.sourcepeer import SourcePeer
from store.standby.standbystate import StandbyState

log = logging.getLogger(__name__)

SEEN = "run/further-standbys"       # what was noted last: see `seen`
TOLD_SECONDS = 1.0          # between two times that the machine that serves is told of them,
HEARD_SECONDS = 5.0         # which are those that have said something since: each asks again every second
COPY_SECONDS = 3600.0       # that a copy stays which nobody reads
NOT_NOW = "This standby follows no other machine just now"


@frozen
class Shown:
    """What is on disk here, whole and in its place, and was all that there was at the time `current` (monotonic).
    `small`: how often small files have gone. `life`: the logs go on from those of a state with the same number."""

    state: StandbyState
    current: float
    small: int
    life: int

    def is_later(self, other: "Shown") -> bool:
        """Whether there is more than in that one."""
        return (self.state.ends, self.state.small, self.small) != (other.state.ends, other.state.small, other.small)


@frozen
class Heard:
    """What a further standby has said: it has all that there was at the time `current`; its logs end at `ends`; and so
    many seconds are its own standbys behind. `only`: it wants no more than these partitions, else all."""

    ends: Mapping[str, Position]
    current: float
    when: float
    further: Mapping[str, float]
    only: Collection[str] = ()

    def wants(self, environment: str) -> bool:
        """Whether the follower is sent the log of that environment."""
        return not self.only or environment == LIST or environment.split("/")[1] in self.only


@define(eq=False)
class Cascade:
    """See the module's text. `connect` calls the machine that this one follows, and raises StoreError; `allowed` are
    those that may follow this one."""

    root: Path
    connect: Callable[[], AbstractContextManager[SourcePeer]]
    allowed: Collection[str]
    _tables: Lock = field(factory=Lock, init=False)         # held while tables are copied
    _life: int = field(default=0, init=False)
    _shown: Shown | None = field(default=None, init=False)
    _changed: Condition = field(factory=Condition, init=False)
    _heard: dict[str, Heard] = field(factory=dict, init=False)
    _record: Lock = field(factory=Lock, init=False)
    _told: float = field(default=0.0, init=False)
    _copies: dict[str, SeedCopy] = field(factory=dict, init=False)
    _readers: dict[str, set[object]] = field(factory=dict, init=False)      # of copies

    # The process that follows

    def begin(self) -> None:
        """What an earlier process has left is of no use any more. Raises OSError."""
        seedcopy.remove_all(self.root)

    def show(self, state: StandbyState, current: float, small: int) -> None:
        """What there is now: see `Shown`."""
        with self._changed:
            before, self._shown = self._shown, Shown(state, current, small, self._life)
            if before is None or self._shown.is_later(before):
                self._changed.notify_all()

    def withdraw(self) -> None:
        """What is here may be changed otherwise than by what comes of logs: all begin again."""
        with self._changed:
            self._life += 1
            self._shown = None
            self._changed.notify_all()

    def further(self) -> dict[str, float] | None:
        """Who follows this one, those of these, too, and how many seconds each is behind; None: it was said a moment
        ago, or there is nobody."""
        now = time.monotonic()
        if not self._heard or now - self._told < TOLD_SECONDS:
            return None
        self._told, found = now, dict[str, float]()
        for host, each in tuple(self._heard.items()):
            if now - each.when < HEARD_SECONDS:
                found |= {**each.further, host: max(0.0, now - each.current)}
        self._note(found)
        return found

    def _note(self, found: Mapping[str, float]) -> None:
        with contextlib.suppress(OSError), privatefiles.replacing(self.root / SEEN, sync=False) as to:
            to.write(json.dumps({"time": time.time(), "standbys": found}).encode())

    @contextlib.contextmanager
    def tables_at_once(self) -> Iterator[bool]:
        """Whether no tables are being copied; nobody begins to meanwhile."""
        is_free = self._tables.acquire(blocking=False)
        try:
            yield is_free
        finally:
            if is_free:
                self._tables.release()

    def let_go(self, path: Path) -> None:
        """This standby needs a log file no more: it goes, unless one that follows lacks it. Raises OSError."""
        environment = path.parent
        lacking = self._lacking(str(environment.relative_to(self.root)))
        if lacking:
            keptlogs.keep(path)
        else:
            path.unlink()
        keptlogs.trim(environment, lacking)

    def _lacking(self, environment: str) -> list[Position]:
        """Where the log ends at each that follows; of one that has not been heard yet nobody knows."""
        with self._changed:
            shown = self._shown
        known = () if shown is None else followersrecord.read(self.root, shown.state).places
        return [self._heard[host].ends.get(environment, (0, 0)) if host in self._heard else (0, 0)
                for host in known if host in self.allowed and (
                    host not in self._heard or self._heard[host].wants(environment))]

    def tidy(self) -> None:
        """Remove copies that nobody reads any more."""
        late = time.monotonic() - COPY_SECONDS
        for name, each in tuple(self._copies.items()):
            if each.made < late and not self._readers.get(name):
                self._copies.pop(name, None)
                shutil.rmtree(each.path, ignore_errors=True)

    # Those that follow

    def now(self, life: int | None = None) -> Shown:
        """What there is, of that life. Raises StoreError UNAVAILABLE."""
        with self._changed:
            shown = self._shown
        if shown is None or life not in (None, shown.life):
            raise StoreError(Problem.UNAVAILABLE, NOT_NOW)
        return shown

    def later(self, shown: Shown, seconds: float) -> Shown:
        """What there is once that is something else, or after so long. Raises StoreError UNAVAILABLE."""
        with self._changed:
            self._changed.wait_for(lambda: self._shown is None or self._shown.is_later(shown), max(0.0, seconds))
        return self.now(shown.life)

    def place(self, host: str, state: StandbyState) -> int:
        """The place of a machine that wants to follow, on record here and at the one that serves. Where that one cannot
        be asked, what it has said before counts. Raises StoreError, OSError."""
        known = followersrecord.read(self.root, state).places.get(host)
        try:
            with self.connect() as source:
                place = source.place(host)
        except StoreError as error:
            if error.problem is not Problem.UNAVAILABLE or known is None:
                raise
            return known
        with self._record:
            followersrecord.note(self.root, state, host, place)
        return place

    def hears(self, host: str, heard: Heard) -> None:
        """That one has said so."""
        if host not in self._heard:
            log.info("the standby %s follows this one", host)
        self._heard[host] = heard

    def copy(self, reader: object, age: float) -> tuple[str, SeedCopy]:
        """A copy of the databases that is not older than so many seconds, and of the partitions that are there now, by
        its name, for that reader, until it has done. Raises StoreError, OSError."""
        with self._tables:
            names = self.now().state.ends.keys()
            made = [each for each in self._copies.values()
                    if time.monotonic() - each.made <= age and each.manifest.environments.keys() == names]
            found = made[0] if made else seedcopy.make(self.root)
            name = found.path.name
            self._copies[name] = found
            self._readers.setdefault(name, set()).add(reader)
            return name, found

    def copy_of(self, name: str) -> SeedCopy:
        """The one of that name. Raises StoreError GONE."""
        found = self._copies.get(name)
        if found is None:
            raise StoreError(Problem.GONE, f"The copy {name} is there no more")
        return found

    def has_done(self, reader: object) -> None:
        """It needs no copy any more. One that is needed by nobody stays for a while: who was cut off goes on with it.
        """
        for each in tuple(self._readers.values()):
            each.discard(reader)


def seen(root: Path) -> dict[str, Any]:
    """What was noted last: the Unix `time`, and `standbys`, those that followed this one, and how many seconds each was
    behind. Empty where there was none."""
    try:
        found = json.loads(privatefiles.read(root / SEEN))
        return found if isinstance(found, dict) and isinstance(found["standbys"], dict) else {}
    except (OSError, ValueError, KeyError):
        return {}


def end(root: Path) -> None:
    """It is to be a standby no more: remove what is for those that follow, but the record of them, and log files that
    they lack. Raises OSError."""
    seedcopy.remove_all(root)
    (root / SEEN).unlink(missing_ok=True)


def end_logs(root: Path) -> None:
    """Remove those, too, of environments that have not got them back (`keptlogs.give_back`)."""
    for path in (root / LIST, *(each / "index" for each in switching.partitions(root))):
        shutil.rmtree(path / keptlogs.KEPT, ignore_errors=True)
