"""A store becomes the standby of the machine that was promoted in its place, with what it has: message files that are
here are not sent again. So does a standby of the one before, which may have more than the one that was promoted.

Its own databases stay as they are until those of the other machine are whole (`store.standby.switching`). So while the
copy is under way a promotion gives back the store that was here (RETURNING).
"""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from attrs import evolve

from mboxlist import privatefiles
from mboxlist.engine.disk import sync_folder
from store.errors import Problem, StoreError
from store.expiry import rulebook
from store.partitions import volumes
from store.readonly.place import FOLDER
from store.standby import promotion, seeding, standbystate
from store.standby.copyformat import is_small
from store.standby.reading import readingstate
from store.standby.seeding import MoreHere
from store.standby.sourcepeer import SourcePeer
from store.standby.standbystate import RECOVERED, RETURNING, StandbyState
from store.standby.succession import Lineage, Other

COPY = "rejoin"         # among the copies of a standby
AUDIT = "audit"         # the trail of this machine, which that of the other one replaces, as its rules of expiry do


def follow(root: Path, identity: str, source: SourcePeer, address: str, lineage: Lineage, aside: Path) -> StandbyState:
    """Make it a standby that is to be seeded; its state, on disk. Its own audit trail and rules of expiry are kept in
    the folder `aside`. Raises StoreError, OSError."""
    begun = source.begin(lineage)
    if begun.identity != identity:
        raise StoreError(Problem.UNAVAILABLE, f"{begun.host} has another store")
    seeding.require_each_partition(root, source, begun)
    for folder in (AUDIT, rulebook.FOLDER, *(f"partitions/{name}" for name in volumes.named_there(root))):
        _keep(root / folder, aside / folder, [path.name for path in (root / folder).glob("*")
                                              if is_small(folder, path.name) and path.is_file()])
    state = begun.state(StandbyState(begun.host, address, identity, phase=RETURNING, epochs=begun.epochs,
                                     identities=begun.identities))
    state.save(root)
    return state


def _keep(source: Path, target: Path, names: list[str]) -> None:
    """Copy these files, unless that was done. Raises OSError."""
    if names and not target.exists():
        new = target.with_name(f"{target.name}.new")
        privatefiles.make_folder(new, parents=True, exist_ok=True)
        for name in names:
            if not (new / name).exists():
                privatefiles.copy(source / name, new / name)
        new.rename(target)
        sync_folder(target.parent)


def going_on(root: Path, address: str) -> StandbyState | None:
    """The state of a store that has brought home all it had, and whose copy of the other one was cut off; None for any
    other. Raises StoreError, OSError."""
    state = standbystate.read(root)
    if state is None or state.phase != RETURNING:
        return None
    state = evolve(state, address=address)
    state.save(root)
    return state


def has_more(root: Path, state: StandbyState, source: SourcePeer, other: Other) -> bool:
    """Whether a standby may have what that machine lacks, which was promoted in the place of the one that it followed.
    Raises StoreError STORE_IN_USE where it was not, OSError."""
    contests = other.lineage.contests(state.lineage)
    if not contests and other.lineage.number <= state.succession:
        raise StoreError(Problem.STORE_IN_USE, f"{root} is a standby of {state.host} already")
    if contests or state.phase == RECOVERED:
        return True
    try:
        seeding.same(root, state, source)
    except MoreHere:
        return True
    return False


@contextlib.contextmanager
def copied(root: Path) -> Iterator[Path]:
    """The folder of a copy for reading of what a standby has, with all that a promotion would have. Raises StoreError,
    OSError."""
    place = root / FOLDER / COPY
    privatefiles.make_folder(root / FOLDER, exist_ok=True)
    try:
        readingstate.make(root, place, as_promoted=True)
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def ended(root: Path) -> None:
    """The copy is whole: what was only of the store that was here goes. Raises OSError."""
    shutil.rmtree(root / promotion.PROMOTED, ignore_errors=True)
    os.sync()
