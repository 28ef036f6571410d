"""The copies of a standby that are read: `reading/1`, `reading/2` and so on in its folder; the newest is served.

The next one is made beside it. An older one stays for as long as somebody reads it.
"""

import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

from attrs import evolve

from store.errors import Problem, StoreError
from store.partition import processes
from store.partition.marks import READ_ONLY, AsOf
from store.readonly.place import FOLDER, is_whole, newest_of_standby, numbered
from store.standby import longfollowing, standbyjournal, standbyprocess, standbystate
from store.standby.reading import readingstate
from store.standby.standbyprocess import READING

GRACE = 60.0                # seconds that a copy stays which is the newest no more: somebody may be about to open it
PATIENCE = 60.0             # seconds that the process which serves has to end; after half of them it is killed
STEP = 0.1


def newest(root: Path) -> tuple[Path, AsOf] | None:
    """The newest that is whole, and what it has."""
    place = newest_of_standby(root)
    found = None if place is None else AsOf.of(place)
    return None if place is None or found is None else (place, found)


def make_next(root: Path, *, indexes: bool) -> Path:
    """Make one of what the standby has now, in the place of those that were cut off while they were made. `indexes`,
    and what it raises: as `readingstate.make`. For who alone does it."""
    there = numbered(root)
    for each in there.values():
        if not is_whole(each):
            shutil.rmtree(each, ignore_errors=True)
    place = root / FOLDER / str(max(there, default=0) + 1)
    readingstate.make(root, place, indexes=indexes)
    return place


def is_behind(root: Path) -> bool:
    """Whether the standby has more than the newest copy. Where it has not, the copy is as new as the standby, which is
    noted. Raises StoreError, OSError."""
    found, seen, state = newest(root), longfollowing.seen(root), standbystate.read(root)
    if found is None or state is None:
        return True
    place, there = found
    ends = state.ends
    for quick in standbyjournal.beyond(root, state, in_place=False):
        ends = quick.ends
    if ends != there.ends or standbystate.read(root) != state:      # then the journal may have been emptied meanwhile
        return True
    moment = float(seen.get("moment", 0))
    if moment > there.moment:
        evolve(there, moment=moment).save(place)
    return False


def remove_older(root: Path, grace: float = GRACE) -> None:
    """Remove those that nobody reads any more, and what was cut off while it was made."""
    kept = newest_of_standby(root)
    if kept is None or time.time() - (kept / READ_ONLY).stat().st_mtime < grace:
        return
    for number, place in numbered(root).items():
        if number < int(kept.name) and not processes.look(place / "run")[0] and not processes.server(
                place / "run" / "server.pid"):
            shutil.rmtree(place, ignore_errors=True)


def end(root: Path, sleep: Callable[[float], None] = time.sleep) -> None:
    """End the process that serves them, and remove them: the standby will change what they are links to. Raises
    StoreError STORE_IN_USE."""
    began = time.monotonic()
    while process := standbyprocess.process(root, READING):
        waited = time.monotonic() - began
        if waited > PATIENCE:
            raise StoreError(Problem.STORE_IN_USE, f"The process {process} serves mail from this standby, and does not "
                                                   "end")
        standbyprocess.send(root, signal.SIGKILL if waited > PATIENCE / 2 else signal.SIGTERM, READING)
        sleep(STEP)
    shutil.rmtree(root / FOLDER, ignore_errors=True)
