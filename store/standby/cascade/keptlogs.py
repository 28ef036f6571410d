"""Log files that this standby needs no more, and one that follows it still does: in `kept` beside the others.

The tables of an environment are brought up to date with all log files in its folder, so these are elsewhere. Without
them each standby that was away for a quarter of an hour would have to copy the databases again. When this standby is
promoted, those that follow it follow the store that it becomes, so these files become files of its log.
"""

from collections.abc import Iterable
from pathlib import Path

from mboxlist import privatefiles
from mboxlist.engine.damagemarks import log_files
from mboxlist.engine.hotcopy import Position, log_number
from mboxlist.engine.logfiles import log_name

KEPT = "kept"               # the folder, in that of the environment
KEPT_OCTETS = 1 << 30       # of one environment, at most: the oldest go first


def log_file(environment: Path, number: int) -> Path:
    """Where the log file of that number is, if it is there at all."""
    path = environment / log_name(number)
    return path if path.exists() else environment / KEPT / path.name


def keep(path: Path) -> None:
    """Have a log file out of the way. Raises OSError."""
    privatefiles.make_folder(path.parent / KEPT, exist_ok=True)
    path.rename(path.parent / KEPT / path.name)


def give_back(environment: Path) -> None:
    """Have them beside the others again, as far as they lead to these. Nobody recovers with all of them any more.
    Raises OSError."""
    there = {log_number(path.name) for path in log_files(environment)}
    for path in reversed(log_files(environment / KEPT)):
        if (number := log_number(path.name)) + 1 in there and number not in there:
            path.rename(environment / path.name)
            there.add(number)


def trim(environment: Path, lacking: Iterable[Position]) -> None:
    """Remove what no standby lacks whose log ends at one of these places, and what is too much. Raises OSError."""
    first, room = min((place[0] for place in lacking), default=None), KEPT_OCTETS
    for path in reversed(list(log_files(environment / KEPT))):
        room -= path.stat().st_size
        if first is None or log_number(path.name) < first or room < 0:
            path.unlink()
