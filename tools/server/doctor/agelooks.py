"""How old things are that should be young, and what the running server has to say."""

import time
from collections.abc import Iterator

from store.check import lastcheck
from store.operations import clockrecord
from store.settings import Settings
from store.snapshots import retention, taking
from tools.cli.controlclient import is_up
from tools.cli.options import Config
from tools.server.doctor.advice import Advice

DAY = 86400.0
OLD_CHECK = 35 * DAY
LATE = 2.5                  # intervals after which a snapshot is missing
_WHY = "look into the log for why; onecopy snapshot create"
_MONTHLY = "onecopy check, once a month"


def look(config: Config) -> Iterator[Advice]:
    """What is too old, or was never done."""
    if not is_up(config.root):
        yield Advice("server", True, "no server runs", "start it: onecopy serve, or systemctl start onecopy")
    yield from clock(config, time.time())
    yield from snapshots(config, time.time())
    yield from last_check(config, time.time())


def clock(config: Config, now: float) -> Iterator[Advice]:
    """Whether the store believes the clock."""
    try:
        if text := clockrecord.damage(config.root):
            yield Advice("clock", False, text, "the running server makes it again within a minute; look at the disk")
        if text := clockrecord.warning(config.root, now):
            yield Advice("clock", True, text, "set the clock right; where it is right, onecopy purge --trust-clock")
    except OSError as error:
        yield Advice("clock", True, f"{config.root / clockrecord.FILE}: {error.strerror}", "look at the disk")


def snapshots(config: Config, now: float) -> Iterator[Advice]:
    """Whether there is a good and young one."""
    settings = config.settings("store", Settings)
    if not settings.snapshot_interval:
        yield Advice("store.snapshot_interval", False, "no snapshots are made: lost databases can only be rebuilt from "
                     "message files and store.idx", "set it to 1d")
        return
    place = taking.folder(config.root, settings)
    newest = max((each.time for each in taking.listed(place)), default=0)
    if not newest:
        yield Advice("snapshots", False, "there is none yet", "onecopy snapshot create")
    elif now - newest > LATE * settings.snapshot_interval:
        yield Advice("snapshots", True, f"the newest good one is {(now - newest) / DAY:.1f} days old", _WHY)
    if (place / retention.FAILED).exists():
        yield Advice("snapshots", True, "the last one failed", _WHY)
    if place.exists() and place.stat().st_dev == config.root.stat().st_dev:
        yield Advice("store.snapshot_folder", False, "snapshots are on the volume of the store: what loses the one "
                     "loses the other", "put them on another volume, or copy them away")


def last_check(config: Config, now: float) -> Iterator[Advice]:
    """When the store was looked through, and what was found."""
    found = lastcheck.read(config.root)
    if not found["time"]:
        yield Advice("check", False, "the store has never been checked", _MONTHLY)
    elif now - found["time"] > OLD_CHECK:
        yield Advice("check", False, f"the last one was {(now - found['time']) / DAY:.0f} days ago", _MONTHLY)
    if found["findings"]:
        yield Advice("check", True, f"the last one has found {found['findings']} faults",
                     "onecopy check names what mends each of them")
