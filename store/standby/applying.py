"""What the logs of a standby have, put into its tables: so that the logs do not grow for ever, and a promotion has
little to do.

Recovery writes behind the end of the log, and the next octets that come belong there. So it gets a folder of its own,
`applying`, with links to the log files that are full and a copy of the last one; the log of the standby stays as it
came. What is cut off is done again: recovery of tables that have been recovered in part is what recovery is for. A
transaction that had not ended at that place is undone in the tables, and done again with the next part of the log: so a
log file stays as long as such a transaction may begin in it (`StandbyState.first`).
"""

import contextlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from attrs import evolve

from mboxlist import privatefiles
from mboxlist.engine import hotcopy
from mboxlist.engine.damagemarks import log_files
from mboxlist.engine.disk import sync_folder
from mboxlist.engine.hotcopy import Position, log_number
from mboxlist.engine.kv import LOG_FILE
from store.standby.standbystate import StandbyState

APPLYING = "applying"           # the folder, in that of the environment


def waiting(state: StandbyState) -> int:
    """Octets of logs that the tables have not yet."""
    return sum(distance(state.applied.get(name, (1, 0)), end) for name, end in state.ends.items())


def distance(one: Position, other: Position) -> int:
    """Octets of a log between two places."""
    return (other[0] - one[0]) * LOG_FILE + other[1] - one[1]


def cut(root: Path, state: StandbyState) -> None:
    """Remove what the logs have behind the places of `state`: it was being written when that was cut off. Raises
    OSError."""
    for name, end in state.ends.items():
        shutil.rmtree(root / name / APPLYING, ignore_errors=True)
        for path in log_files(root / name):
            if log_number(path.name) > end[0]:
                path.unlink()
            elif log_number(path.name) == end[0] and path.stat().st_size > end[1]:
                with privatefiles.open_file(path, "r+b") as file:
                    file.truncate(end[1])
                    file.flush()
                    os.fsync(file.fileno())
        sync_folder(root / name)


def apply(root: Path, state: StandbyState) -> None:
    """Have the tables be what the logs say up to the places of `state`, on disk; the logs may grow meanwhile. Raises
    Failure (of `transact`), OSError."""
    for name, end in state.ends.items():
        if state.applied.get(name) != end:
            apply_to(root / name, end)


def apply_to(folder: Path, end: Position) -> None:
    """Likewise the tables of one environment. Raises Failure, OSError."""
    place = folder / APPLYING
    shutil.rmtree(place, ignore_errors=True)
    privatefiles.make_folder(place)
    for path in log_files(folder):
        number = log_number(path.name)
        if number < end[0]:
            os.link(path, place / path.name)
        elif number == end[0]:
            _copy_start(path, place / path.name, end[1])
    hotcopy.recover(folder, logs=place)
    shutil.rmtree(place)
    sync_folder(folder)


def _copy_start(source: Path, target: Path, octets: int) -> None:
    with privatefiles.open_file(source, "rb") as one, privatefiles.open_file(target, "xb") as other:
        other.write(one.read(octets))


def copy_environment(folder: Path, target: Path, end: Position) -> None:
    """Copy its tables, and its log up to that place, into an empty folder, unsynced. For who has TABLES_LOCK. Raises
    OSError."""
    for path in log_files(folder):
        number = log_number(path.name)
        if number <= end[0]:
            with contextlib.suppress(FileNotFoundError):        # the tables have all of it
                privatefiles.copy(path, target / path.name)
        if number == end[0]:
            with privatefiles.open_file(target / path.name, "r+b") as file:
                file.truncate(end[1])
    for path in sorted(folder.glob("*.db")):
        privatefiles.copy(path, target / path.name)


def applied(root: Path, state: StandbyState, until: StandbyState,
            let_go: Callable[[Path], None] = Path.unlink) -> StandbyState:
    """`state`, now that all up to `until` is in the tables, on disk; log files that are not needed here any more are
    `let_go`. Raises OSError."""
    found = evolve(state, applied=until.ends)
    found.save(root)
    for name, first in until.first.items():
        for path in log_files(root / name):
            if log_number(path.name) < min(first, until.ends[name][0]):
                let_go(path)
    return found
