"""A store becomes the standby of the machine that was promoted in its place, with what it has: message files that are
here are not sent again.

Its own databases stay as they are until those of the other machine are whole (`store.standby.switching`). So while the
copy is under way a promotion gives back the store that was here (RETURNING).
"""

import os
import shutil
from pathlib import Path

from attrs import evolve

from mboxlist import privatefiles
from mboxlist.engine.disk import sync_folder
from store.errors import Problem, StoreError
from store.standby import promotion, standbystate
from store.standby.sourcepeer import SourcePeer
from store.standby.standbystate import RETURNING, StandbyState
from store.standby.succession import Lineage

AUDIT = "audit"         # the trail of this machine, which that of the other one replaces


def follow(root: Path, identity: str, source: SourcePeer, address: str, lineage: Lineage, aside: Path) -> StandbyState:
    """Make it a standby that is to be seeded; its state, on disk. Its own audit trail is kept in the folder `aside`.
    Raises StoreError, OSError."""
    begun = source.begin(lineage)
    if begun.identity != identity:
        raise StoreError(Problem.UNAVAILABLE, f"{begun.host} has another store")
    if (root / AUDIT).is_dir() and not (aside / AUDIT).exists():
        privatefiles.make_folder(aside, parents=True, exist_ok=True)
        privatefiles.make_folder(aside / f"{AUDIT}.new", exist_ok=True)
        for path in (root / AUDIT).iterdir():
            if path.is_file() and not (aside / f"{AUDIT}.new" / path.name).exists():
                privatefiles.copy(path, aside / f"{AUDIT}.new" / path.name)
        (aside / f"{AUDIT}.new").rename(aside / AUDIT)
        sync_folder(aside)
    state = begun.state(StandbyState(begun.host, address, identity, phase=RETURNING, epochs=begun.epochs,
                                     identities=begun.identities))
    state.save(root)
    return state


def going_on(root: Path, address: str) -> StandbyState | None:
    """The state of a store that has brought home all it had, and whose copy of the other one was cut off; None for a
    store. Raises StoreError STORE_IN_USE for any other standby, OSError."""
    state = standbystate.read(root)
    if state is None:
        return None
    if state.phase != RETURNING:
        raise StoreError(Problem.STORE_IN_USE, f"{root} is a standby of {state.host} already")
    state = evolve(state, address=address)
    state.save(root)
    return state


def ended(root: Path) -> None:
    """The copy is whole: what was only of the store that was here goes. Raises OSError."""
    shutil.rmtree(root / promotion.PROMOTED, ignore_errors=True)
    os.sync()
