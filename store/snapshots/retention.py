"""Snapshots that the housekeeper makes: when one is due, verified when made, and the older ones removed after that."""

import contextlib
import logging
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from mboxlist import privatefiles
from store.errors import Problem, StoreError
from store.operations import clockrecord
from store.snapshots import taking
from store.snapshots.taking import Hold, Progress, Snapshot, environments, folder
from store.store import Store

log = logging.getLogger(__name__)

BEGIN = 600                 # seconds that a store is in use before its first snapshot is made
AGAIN = 3600                # seconds after a failure until it is tried again
FAILED = "failed"           # the file that says why the last one could not be made


class Stopping(Exception):
    """The process is to end: what was begun is left off."""


def due(store: Store, now: float | None = None) -> Iterator[str]:
    """Why a snapshot is to be made now; nothing if none is."""
    now = time.time() if now is None else now
    if not store.settings.snapshots_kept or len(store.writable) < len(store.partitions):
        return
    place = folder(store.root, store.settings)
    if abs(_age(place / FAILED, now)) < AGAIN:
        return
    found = taking.listed(place)
    newest = next((each for each in found if each.time < now + AGAIN), None)
    if found and newest is None:
        yield "those that there are were made by a clock that was wrong"
    elif newest is None:
        if _age(store.root / "run" / "partitions", now) >= BEGIN:
            yield "there is none"
    elif now - newest.time >= store.settings.snapshot_interval:
        yield "the newest is old"
    elif any(env.logs.kept_volume() > store.settings.snapshot_logs for env in environments(store).values()):
        yield "there are many logs"


def _age(path: Path, now: float) -> float:
    try:
        return now - path.stat().st_mtime
    except FileNotFoundError:
        return float("inf")


def make_due(store: Store, reason: str) -> int:
    """Make one, in the housekeeper. Raises StoreError when it could not be made, or what was made is not good."""
    log.info("a snapshot is made: %s", reason)
    stop = next(iter(store.partitions.values())).unwritten.stop

    def go_on(what: str, done: int, total: int) -> None:
        if stop.is_set():
            raise Stopping

    try:
        snapshot = make(store, go_on)
    except Stopping:
        log.info("the snapshot is left off, since the process ends")
        return 1
    for old in [] if clockrecord.holds_back(store.root) else taking.retain(store, snapshot):
        log.info("the snapshot %s has had its time", old.name)
    log.info("the snapshot %s has been made and verified: %d octets", snapshot.name, snapshot.size)
    return 1


def make(store: Store, progress: Progress = lambda what, done, total: None, *, verify: bool = True,
         hold: Hold = contextlib.nullcontext) -> Snapshot:
    """Make a snapshot and verify it. One that is not good is removed again, and does not replace an older one.

    Raises StoreError BUSY, DISK_FULL, UNAVAILABLE, READ_ONLY.
    """
    taking.require_whole(store)         # leaves no mark: as soon as it is whole again the housekeeper makes one
    place = folder(store.root, store.settings)
    try:
        _require_room(store, place)
        snapshot = taking.create(store, progress, hold)
        wrong = taking.verify(snapshot, progress=progress) if verify else []
        if wrong:
            taking.remove(snapshot)
            raise StoreError(Problem.UNAVAILABLE, f"The snapshot that was made is not good: {wrong[0]}")
    except StoreError as error:
        if error.problem is not Problem.BUSY and place.is_dir():
            privatefiles.write(place / FAILED, f"{error}\n")
        taking.keep_what_is_needed(store)
        raise
    except Stopping:
        taking.keep_what_is_needed(store)
        raise
    (place / FAILED).unlink(missing_ok=True)
    taking.keep_what_is_needed(store, snapshot)
    return snapshot


def _require_room(store: Store, place: Path) -> None:
    """Twice what the copy takes: it is verified in a second one. Raises StoreError DISK_FULL."""
    privatefiles.make_folder(place, parents=True, exist_ok=True)
    sizes = [sum(path.stat().st_size for path in env.folder.glob("*.db")) for env in environments(store).values()]
    if shutil.disk_usage(place).free < sum(sizes) + max(sizes) + store.settings.disk_reserve:
        raise StoreError(Problem.DISK_FULL, f"There is no room for a snapshot in {place}: {sum(sizes)} octets")
