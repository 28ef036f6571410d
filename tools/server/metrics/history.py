"""What the server did in each minute of the last day and in each hour of the last month, whatever was started again
meanwhile: for the charts of the console, and `onecopy stats --history`.

The file `history` in the store's folder is a ring of each, of fixed size (some 150 KiB): a record has its place by its
time, and its time in it, so a reader tells what is old. The keeper alone writes it, one record of each ring a minute,
without a sync: a crash may lose the last minutes. One of another form is begun again. No snapshot or backup has it.
"""

import math
import os
import struct
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import define, field

from mboxlist import privatefiles
from store.housekeeping.tasks import Task
from store.store import Store
from tools.cli.controlclient import ask_all

FILE = "history"
MINUTE, HOUR = 60, 3600
#: Each ring: seconds of a record, and how many there are, a day and a month of 31 days.
RINGS = {"day": (MINUTE, 1440), "month": (HOUR, 744)}
COUNTED = ("delivered", "refused", "logins", "failed")      # in that time
LEVELS = ("open", "used", "free")                           # the most connections; octets of all volumes, at the end
NAMES = (*COUNTED, *LEVELS)
RECORD = struct.Struct(f"<q{len(NAMES)}d")                  # the time at which it begins, and what has these names
_FORM = b"onecopy history 1\n".ljust(32, b"\0")
_SIZE = len(_FORM) + sum(count for _, count in RINGS.values()) * RECORD.size


@define(eq=False)
class History:
    """That of a store, as the keeper writes it. For one thread at a time."""

    _path: Path
    _counts: dict[tuple[object, ...], dict[str, float]] = field(factory=dict, init=False)   # of each process, so far
    _since: float = field(factory=time.time)        # the last time that it was taken, or when the keeper began

    def take(self, processes: Iterable[Mapping[str, Any]], volumes: Iterable[tuple[int, int]], now: float) -> None:
        """What the processes say that they have counted since they began, and what is free and used of each volume.
        Raises OSError."""
        sample, before = dict.fromkeys(NAMES, 0.0), self._counts
        counts: dict[tuple[object, ...], dict[str, float]] = {}
        for each in processes:
            key, counted = (each["process"], each["pid"], each["started"]), _counted(each)
            known = before.get(key, dict.fromkeys(COUNTED, 0.0) if each["started"] >= self._since - MINUTE else counted)
            for name in COUNTED:
                sample[name] += max(0.0, counted[name] - known[name])
            sample["open"] += sum(server.get("open", 0) for server in each["servers"].values())
            counts[key] = counted
        self._counts, self._since = counts, now
        for free, used in volumes:
            sample["free"] += free
            sample["used"] += used
        self._write(sample, int(now))

    def _write(self, sample: Mapping[str, float], now: int) -> None:
        handle = privatefiles.open_handle(self._path, os.O_RDWR | os.O_CREAT)
        try:
            if os.fstat(handle).st_size != _SIZE or os.pread(handle, len(_FORM), 0) != _FORM:
                os.ftruncate(handle, 0)
                os.ftruncate(handle, _SIZE)
                os.pwrite(handle, _FORM, 0)
            for name, (seconds, count) in RINGS.items():
                begin, place = now // seconds * seconds, _place(name, now // seconds % count)
                was, *values = RECORD.unpack(os.pread(handle, RECORD.size, place))
                there = dict(zip(NAMES, values, strict=True)) if was == begin else None
                os.pwrite(handle, RECORD.pack(begin, *(_joined(each, there, sample) for each in NAMES)), place)
        finally:
            os.close(handle)

    def task(self) -> Task:
        """To be done by the keeper."""
        return Task("history", MINUTE, lambda store: [FILE], self._sample)

    def _sample(self, store: Store, _: object) -> int:
        volumes = {os.stat(partition.files.folder).st_dev: partition.files.volume()
                   for partition in store.partitions.values()}
        self.take(ask_all(store.root, "stats").values(), volumes.values(), time.time())
        return 1


def _joined(name: str, there: Mapping[str, float] | None, sample: Mapping[str, float]) -> float:
    """The value of what has been `there` in this time before, and of what is there now."""
    if there is None or name in ("used", "free"):
        return sample[name]
    return there[name] + sample[name] if name in COUNTED else max(there[name], sample[name])


def _counted(process: Mapping[str, Any]) -> dict[str, float]:
    mail, servers = process["mail"], process["servers"].values()
    return {"delivered": mail.get("delivered", 0), "failed": process["failed_logins"],
            "refused": mail.get("refused for now", 0) + mail.get("refused for good", 0),
            "logins": sum(server.get("logins", 0) for server in servers)}


def _place(ring: str, number: int) -> int:
    before = 0
    for name, (_, count) in RINGS.items():
        if name == ring:
            break
        before += count
    return len(_FORM) + (before + number) * RECORD.size


def read(root: Path, ring: str, now: float) -> list[dict[str, Any]]:
    """The records of the ring that are no older than it is long, the oldest first; none where there is no such file."""
    seconds, count = RINGS[ring]
    try:
        data = privatefiles.read(root / FILE)
    except FileNotFoundError:
        return []
    if len(data) != _SIZE or not data.startswith(_FORM):
        return []
    begin, found = _place(ring, 0), list[dict[str, Any]]()
    for at, (moment, *values) in enumerate(RECORD.iter_unpack(data[begin:begin + count * RECORD.size])):
        if (moment // seconds % count == at and now - seconds * count < moment <= now
                and all(math.isfinite(each) and each >= 0 for each in values)):
            found.append({"time": moment, **{name: int(each) for name, each in zip(NAMES, values, strict=True)}})
    return sorted(found, key=lambda each: each["time"])


def grouped(rows: Sequence[Mapping[str, Any]], ring: str, now: float, parts: int) -> list[dict[str, Any] | None]:
    """The ring's time in so many parts of equal length up to now, each as one record; None for one of which nothing is
    known."""
    seconds, count = RINGS[ring]
    length, end = seconds * count // parts, (int(now) // seconds + 1) * seconds
    found: list[dict[str, Any] | None] = [None] * parts
    for row in rows:
        at = parts - 1 - (end - 1 - row["time"]) // length
        if 0 <= at < parts:
            old = found[at]
            found[at] = dict(row) if old is None else {
                **row, "time": old["time"], **{name: old[name] + row[name] for name in COUNTED},
                "open": max(old["open"], row["open"])}
    return found
