"""What a further standby begins with: the tables and logs of this one as they are at one moment, copied, in
`standby-copies` in its folder, with the manifest that a snapshot has.

As long as such a copy is there no message file goes that its tables may know (`purgedfiles.note_copy`).
"""

import contextlib
import secrets
import shutil
import time
from pathlib import Path

from attrs import field, frozen

from mboxlist import privatefiles
from mboxlist.engine import hotcopy
from mboxlist.engine.hotcopy import Copied
from store import VERSION
from store.errors import Problem, StoreError
from store.filelock import in_turn
from store.snapshots.taking import Manifest, Part
from store.standby import applying, purgedfiles, standbystate
from store.standby.standbystate import FOLLOWING, TABLES_LOCK, StandbyState

FOLDER = "standby-copies"


@frozen
class SeedCopy:
    """A copy that is whole. `made`: when it was begun; monotonic."""

    path: Path
    manifest: Manifest
    made: float = field(factory=time.monotonic)


def make(root: Path) -> SeedCopy:
    """Make one; nobody changes the tables meanwhile. Raises StoreError UNAVAILABLE, OSError."""
    made, place = time.monotonic(), root / FOLDER / secrets.token_hex(8)
    privatefiles.make_folder(place, parents=True)
    try:
        purgedfiles.note_copy(root, place)      # before it has a state
        with in_turn(root / TABLES_LOCK):
            state = _whole(root)
            for name, end in state.ends.items():
                privatefiles.make_folder(place / name, parents=True)
                applying.copy_environment(root / name, place / name, end)
        parts = {name: _part(place / name, name, state) for name in state.ends}
    except (StoreError, OSError):
        shutil.rmtree(place, ignore_errors=True)
        raise
    return SeedCopy(place, Manifest(int(time.time()), state.moment, VERSION, parts), made)


def _whole(root: Path) -> StandbyState:
    state = standbystate.read(root)
    if state is None or state.phase != FOLLOWING:
        raise StoreError(Problem.UNAVAILABLE, "This standby has not got to its beginning itself, or is one no more")
    return state


def _part(folder: Path, name: str, state: StandbyState) -> Part:
    files = tuple(Copied(path.name, path.stat().st_size, hotcopy.digest(path)) for path in sorted(folder.iterdir()))
    return Part(files, state.first.get(name, state.ends[name][0]), state.ends[name])


def remove_all(root: Path) -> None:
    """Remove the copies of an earlier process, whose manifests are gone."""
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(root / FOLDER)
