"""What the store knows of the time, so that a clock that is wrong removes nothing.

`<store>/clock` has the Unix time that the store believes, written each minute by the housekeeper. A clock that is more
than LEAP beyond it may be years ahead, as on a machine that has started with a flat battery; or the store was off for a
month. Neither can be told from the other, and both need nobody: what goes by its age (purge, expiry, users who were
removed, old snapshots, what an outbox gives up) waits until the store has run for PATIENCE with that clock, or until
the clock is set right. Mail comes and is read meanwhile. `trust` has it go on at once.
"""

import json
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

from attrs import asdict, define, field, frozen

from mboxlist import privatefiles
from mboxlist.engine.disk import is_disk_full, is_unanswered, sync

log = logging.getLogger(__name__)

FILE = "clock"
LEAP = 7 * 86400.0          # seconds between what is believed and the clock, from which on it is not believed
PATIENCE = 7 * 86400.0      # seconds that the store runs with such a clock until it is
OCTETS = 128                # of the file, spaces at its end: new octets can take the place of those before


@frozen
class Known:
    """`seen`: the Unix time that is believed; `ran`: seconds for which the store has run since with another clock."""

    seen: float
    ran: float = 0.0

    def is_far(self, now: float) -> bool:
        """Whether the clock shows quite another time."""
        return abs(now - self.seen) > LEAP

    def is_ahead(self, now: float) -> bool:
        """Whether nothing may go by its age."""
        return now - self.seen > LEAP


def read(root: Path) -> Known | None:
    """What is on record; None: nothing, and the clock is believed. Raises OSError when the disk does not say."""
    try:
        found = json.loads(privatefiles.read(root / FILE))
        return Known(float(found["seen"]), float(found["ran"]))
    except (ValueError, TypeError, KeyError):
        return None
    except OSError as error:
        if is_unanswered(error):
            raise
        return None


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
    octets = json.dumps(asdict(known)).encode().ljust(OCTETS)
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
