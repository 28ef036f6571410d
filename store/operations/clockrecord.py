"""What the store knows of the time, so that a clock that is wrong removes nothing.

`<store>/clock` has the Unix time that the store believes, written each minute by the housekeeper. A clock that is more
than LEAP beyond it may be years ahead, as on a machine that has started with a flat battery; or the store was off for a
month. Neither can be told from the other, and both need nobody: what goes by its age (purge, expiry, users who were
removed, old snapshots, mail that is refused for good; `tests/test_ages.py` has all) waits until the store has run for
PATIENCE with that clock, or until the clock is set right. Mail comes and is read meanwhile. `trust` has it go on at
once.

A file that says nothing that can be is damaged. Then the time at which it was written is what the store knows: by that
the clock is judged as by the record, and the housekeeper makes the file again.
"""

import json
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

from attrs import define, field, frozen

from mboxlist import privatefiles
from mboxlist.engine.disk import is_disk_full, is_unanswered, sync
from mboxlist.setaside import make_way

log = logging.getLogger(__name__)

FILE = "clock"
LEAP = 7 * 86400.0          # seconds between what is believed and the clock, from which on it is not believed
PATIENCE = 7 * 86400.0      # seconds that the store runs with such a clock until it is
LATEST = 1e11               # no clock shows more, in the year 5138
OCTETS = 128                # of the file, spaces at its end: new octets can take the place of those before


@frozen
class Known:
    """`seen`: the Unix time that is believed; `ran`: seconds for which the store has run since with another clock.
    `damaged`: the file does not say so, it was written then."""

    seen: float
    ran: float = 0.0
    damaged: bool = False

    def is_far(self, now: float) -> bool:
        """Whether the clock shows quite another time."""
        return abs(now - self.seen) > LEAP

    def is_ahead(self, now: float) -> bool:
        """Whether nothing may go by its age."""
        return now - self.seen > LEAP


def read(root: Path) -> Known | None:
    """What is on record; None: nothing, and the clock is believed. Raises OSError when the disk does not say."""
    try:
        return _parsed(privatefiles.read(root / FILE)) or Known(os.lstat(root / FILE).st_mtime, damaged=True)
    except FileNotFoundError:
        return None
    except OSError as error:
        if is_unanswered(error):
            raise
        return Known(os.lstat(root / FILE).st_mtime, damaged=True)      # it is no file, or nobody may read it


def _parsed(octets: bytes) -> Known | None:
    """None: that was never written as a record."""
    try:
        found = json.loads(octets)
        seen, ran = float(found["seen"]), float(found["ran"])
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None
    return Known(seen, ran) if 0 <= seen < LATEST and 0 <= ran < PATIENCE else None


def damage(root: Path) -> str:
    """What an administrator reads of a file that is damaged; "" of another. Raises OSError."""
    known = read(root)
    return "" if known is None or not known.damaged else (
        f"{root / FILE} is damaged: the time at which it was written counts, {_shown(known.seen)}")


def holds_back(root: Path, now: float | None = None) -> bool:
    """Whether nothing may go by its age: the clock is ahead, or the disk does not say whether it is."""
    try:
        return is_ahead(root, now)
    except OSError:                 # what is old can wait
        return True


def is_ahead(root: Path, now: float | None = None) -> bool:
    """Whether the clock is so far ahead of what the store knows that nothing may go by its age. Raises OSError."""
    known = read(root)
    return known is not None and known.is_ahead(time.time() if now is None else now)


def warning(root: Path, now: float | None = None) -> str:
    """What an administrator reads of a clock that is not believed; "" of another. Raises OSError."""
    known, now = read(root), time.time() if now is None else now
    if known is None or not known.is_ahead(now):
        return ""
    days = (PATIENCE - known.ran) / 86400
    return (f"the clock shows {_shown(now)}, and the store was last at work at {_shown(known.seen)}: nothing is purged "
            f"or expires until it has run {max(0.0, days):.1f} days more with this clock, or the clock is set right")


def trust(root: Path, now: float | None = None) -> None:
    """Have the clock believed from now on. Raises OSError."""
    _write(root, Known(time.time() if now is None else now))


def know(root: Path, when: float) -> None:
    """The store was at work at that time, on another machine: what an older record says of this one is over. Raises
    OSError."""
    known = read(root)
    if known is None or known.seen < when:
        _write(root, Known(when))


@define(eq=False)
class ClockWatch:
    """The housekeeper's: it looks each minute. `steady` is a clock that nobody sets."""

    clock: Callable[[], float] = time.time
    steady: Callable[[], float] = time.monotonic
    _last: float = field(default=0.0, init=False)
    _told: bool = field(default=False, init=False)

    def look(self, root: Path) -> Known:
        """Put the time on record; the log hears once of a clock that is not believed. Raises OSError."""
        now, steady = self.clock(), self.steady()
        passed, self._last = steady - self._last if self._last else 0.0, steady
        before = read(root)
        if before is not None and before.damaged:
            log.warning("%s; it is made again", damage(root))
        known = Known(now) if before is None or not before.is_far(now) else Known(before.seen, before.ran + passed)
        if known.ran >= PATIENCE:
            log.warning("the clock is believed: the store has run for %.0f days with it", PATIENCE / 86400)
            known = Known(now)
        _write(root, known)
        if known.is_ahead(now) and not self._told:
            log.error("%s (onecopy purge --trust-clock: at once)", warning(root, now))
        elif self._told and not known.is_far(now):
            log.warning("the clock is believed again")
        self._told = known.is_ahead(now)
        return known


def _write(root: Path, known: Known) -> None:
    """Synced: where power is lost the clock may be lost, too, and without a record any clock is believed. On a disk
    that is full the file that is there gets other octets: else purging would stop after a week of that, for good."""
    octets = json.dumps({"seen": known.seen, "ran": known.ran}).encode().ljust(OCTETS)
    make_way(root, root / FILE)
    try:
        with privatefiles.replacing(root / FILE) as file:
            file.write(octets)
    except OSError as error:
        if not is_disk_full(error):
            raise
        handle = privatefiles.open_handle(root / FILE, os.O_WRONLY)
        try:
            os.pwrite(handle, octets, 0)
            sync(handle)
        finally:
            os.close(handle)


def _shown(when: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(when)) if abs(when) < 1e11 else f"{when:.0f}"
