"""Snapshots: the databases of the whole store as they were at one moment, copied while it is in use.

    <folder>/20260131T235959Z/      the time is one at or before that moment
        manifest.json               what is in it: see `Manifest`
        mboxlist/                   the databases, and the log that makes them consistent
        partitions/primary/index/

A snapshot that is being made is called <time>.part, and gets its name when all of it is on disk. Message files are not
in it: those that had references then stay where they are as long as it is there (`Partition.kept_since`). The logs
since the newest good one stay as well (`LogFiles.keep`): the snapshot and the logs are all that was acknowledged.

The one moment: the databases of all environments are copied first, in any order, and meanwhile everything goes on. Then
the ends of all logs are read twice. If no log has grown between, all were at these ends at the moment between the two;
each copy, recovered up to its end, is then as if all processes had been killed at that moment, with everything they had
done on disk. So the list and the partitions differ by what a crash may leave, and `reconciliation` settles that. Were
each environment taken at a moment of its own, neither order would do: with the list first, mail in mailboxes that were
made later would be in no list; with the list last, mailboxes destroyed meanwhile; and with either, a message that is
moved between two partitions could be missing on both.
"""

import contextlib
import hashlib
import json
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from attrs import asdict, define, field, frozen

from mboxlist import privatefiles
from mboxlist.engine import hotcopy
from mboxlist.engine.disk import replace_file, sync_folder
from mboxlist.engine.hotcopy import Copied, Copying, Logs, Position
from mboxlist.engine.kv import Env
from mboxlist.engine.transact import Failure
from store import VERSION
from store.errors import Problem, StoreError, disk_problem
from store.filelock import exclusive, scratch
from store.partition.partition import PART, snapshot_time
from store.settings import Settings
from store.snapshots.opened import sweep
from store.store import Store

log = logging.getLogger(__name__)

FORMAT = 1
FOLDER, MANIFEST, LOCK = "snapshots", "manifest.json", "lock"
SUPERSEDED = "superseded"           # the file in a snapshot newer than what was put back since: see `restoring`
LIST = "mboxlist"                   # the environment of the list; those of partitions are partitions/<name>/index
NAME = "%Y%m%dT%H%M%SZ"
PATIENCE = 5.0                      # seconds in which all logs stand still for some 20 µs

Progress = Callable[[str, int, int], None]      # what is done, octets of it, out of how many

Hold = Callable[[], contextlib.AbstractContextManager[None]]


def _silent(what: str, done: int, total: int) -> None:
    """Nobody watches."""


@frozen
class Part:
    """One environment in a snapshot: its files, the first file of the log, where its log ends, and of a partition the
    epoch (see `MailboxState.from_bytes`)."""

    files: tuple[Copied, ...]
    first_log: int
    end: Position
    epoch: int = 0

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


@frozen
class Manifest:
    """What is in a snapshot. `moment`: the Unix time at which the store was like that."""

    time: int
    moment: float
    version: str
    environments: dict[str, Part]

    def to_bytes(self) -> bytes:
        """The stored form, which tells when it has been damaged."""
        content = {"format": FORMAT, **asdict(self)}
        return json.dumps({**content, "digest": _digest(content)}, indent=1).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> "Manifest":
        """From the stored form. Raises ValueError."""
        try:
            content = json.loads(data)
            if content.pop("digest") != _digest(content):
                raise ValueError("it does not agree with its digest")
            if content["format"] != FORMAT:
                raise ValueError(f"it has the format {content['format']} of another version of onecopy")
            parts = {name: Part(tuple(Copied(**file) for file in part["files"]), part["first_log"],
                                (part["end"][0], part["end"][1]), part["epoch"])
                     for name, part in content["environments"].items()}
            return cls(content["time"], content["moment"], content["version"], parts)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"it is not whole: {error!r}") from None


def _digest(content: dict[str, Any]) -> str:
    data = json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
    return hashlib.blake2b(data, digest_size=32).hexdigest()


@frozen
class Snapshot:
    """One that is there."""

    time: int
    path: Path
    manifest: Manifest

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def superseded(self) -> bool:
        """Whether an older one has been put back since."""
        return (self.path / SUPERSEDED).exists()

    @property
    def size(self) -> int:
        return sum(part.size for part in self.manifest.environments.values())


def folder(root: Path, settings: Settings) -> Path:
    return settings.snapshot_folder or root / FOLDER


def listed(folder: Path, *, every: bool = False) -> list[Snapshot]:
    """The snapshots in a folder, the newest first; without those whose manifest cannot be read (see `unreadable`), and,
    unless `every` one is wanted, without those of a life of the store that came to its end when an older one was put
    back: its present logs do not follow them."""
    return [found for path, found, _ in _all(folder)
            if found is not None and (every or not (path / SUPERSEDED).exists())]


def unreadable(folder: Path) -> dict[str, str]:
    """What looks like a snapshot and has no manifest that can be read, and why."""
    return {path.name: why for path, found, why in _all(folder) if found is None}


def _all(folder: Path) -> Iterator[tuple[Path, Snapshot | None, str]]:
    names = sorted(os.listdir(folder), reverse=True) if folder.is_dir() else []
    for path in (folder / name for name in names if snapshot_time(name) is not None):
        try:
            manifest = Manifest.from_bytes(privatefiles.read(path / MANIFEST))
        except (OSError, ValueError) as error:
            yield path, None, f"{MANIFEST}: {getattr(error, 'strerror', None) or error}"
        else:
            yield path, Snapshot(manifest.time, path, manifest), ""


def environments(store: Store) -> dict[str, Env]:
    """Every database environment, by its folder below the store's."""
    return {LIST: store.mailboxes.env,
            **{f"partitions/{name}/index": partition.env for name, partition in store.partitions.items()}}


def all_environments(store: Store) -> dict[str, Env]:
    """Also those of partitions that other processes have added, which this one has not needed yet. A moment of the
    store is one of these both before and after it is looked at. Raises StoreError UNAVAILABLE, OSError."""
    store.join_all()
    return environments(store)


# Making

def create(store: Store, progress: Progress = _silent, hold: Hold = contextlib.nullcontext) -> Snapshot:
    """Make a snapshot of the store as it is at one moment of this call. It is not verified yet. For a thread. The
    moment is within `hold`. What `progress` raises ends it.

    Raises StoreError BUSY when another one is being made, DISK_FULL, UNAVAILABLE, READ_ONLY: see `require_whole`.
    """
    require_whole(store)
    place = folder(store.root, store.settings)
    try:
        with _locked(place):
            _clear(place)
            part, when = _begin(place)
            try:
                return _Making(store, part, when, progress, hold).make()
            except BaseException:
                shutil.rmtree(part, ignore_errors=True)
                keep_what_is_needed(store)
                raise
    except OSError as error:
        raise disk_problem(error) from error
    except Failure as error:
        raise StoreError(Problem.UNAVAILABLE, detail=str(error)) from error


def require_whole(store: Store) -> None:
    """A snapshot is of all partitions. While one takes no changes its log, on which a snapshot ends, is that of a copy
    for reading; and a snapshot without it would be the newest: the logs that the last whole one needs would go, and who
    put it back would lose the partition. Raises StoreError READ_ONLY, which says so."""
    only_read = [name for name in store.partitions if name not in store.writable]
    if only_read:
        newest = next(iter(listed(folder(store.root, store.settings))), None)
        raise StoreError(Problem.READ_ONLY, (
            f"A snapshot is of the whole store, and partition {', '.join(only_read)} is only read at present: none is "
            f"made until its volume takes writes again. " + (
                f"The newest, {newest.name}, stays" if newest is not None else "There is none yet")
            + "; onecopy backup copies what is there now"))


def _locked(place: Path) -> contextlib.AbstractContextManager[None]:
    """Nobody else makes or removes snapshots there. Raises StoreError BUSY."""
    privatefiles.make_folder(place, parents=True, exist_ok=True)
    return exclusive(place / LOCK, Problem.BUSY, "Another process makes or removes a snapshot")


def clear(store: Store) -> bool:
    """Remove what is left of snapshots that were cut off while they were made or removed; whether there was anything.
    Raises StoreError BUSY, OSError."""
    place = folder(store.root, store.settings)
    with _locked(place):
        there = set(place.iterdir())
        _clear(place)
        gone = there != set(place.iterdir())
    keep_what_is_needed(store)
    return gone


def _clear(place: Path) -> None:
    """Remove what was cut off. For who has the lock."""
    for path in place.iterdir():
        if snapshot_time(path.name.partition(".")[0]) is not None and path.name.endswith((PART, ".gone")):
            shutil.rmtree(path, ignore_errors=True)
    sweep(place)


def _begin(place: Path) -> tuple[Path, int]:
    """A folder with a name that no other has, on disk; from now on message files stay."""
    while True:
        when = int(time.time())
        name = time.strftime(NAME, time.gmtime(when))
        if not (place / name).exists():
            privatefiles.make_folder(place / (name + PART))
            sync_folder(place)
            return place / (name + PART), when
        time.sleep(0.1)


@define
class _Making:
    """See `create`."""

    store: Store
    part: Path
    when: int
    progress: Progress
    hold: Hold
    copies: dict[str, Copying] = field(factory=dict)

    def make(self) -> Snapshot:
        """Raises OSError, Failure, StoreError."""
        envs = all_environments(self.store)
        for name, env in envs.items():
            privatefiles.make_folder(self.part / name, parents=True)
            env.checkpoint()                # little of the log is needed then
            kept, first = env.logs.kept(), env.logs.first_needed()
            env.logs.keep(first if kept is None else min(kept, first))
            self.copies[name] = Copying(env, self.part / name)
        total = sum(path.stat().st_size for env in envs.values() for path in env.folder.glob("*.db"))
        done = 0
        for copy in self.copies.values():
            for octets in copy.databases():
                done += octets
                self.progress("copying", done, max(done, total))
        for _ in range(hotcopy.ROUNDS):
            time.sleep(hotcopy.PAUSE)
            if all([copy.copy_again() for copy in self.copies.values()]):
                break
        else:
            raise StoreError(Problem.BUSY, "Databases are written too often to be copied")
        with self.hold():
            ends, moment = ends_at_one_moment(envs)
        if all_environments(self.store).keys() != envs.keys():
            raise StoreError(Problem.BUSY, "A partition was added while a snapshot was made")
        epochs = {f"partitions/{name}/index": partition.epoch for name, partition in self.store.partitions.items()}
        parts = {}
        for name, copy in self.copies.items():
            envs[name].flush()
            self.progress("writing", done, max(done, total))
            parts[name] = Part(tuple(copy.log(ends[name])), copy.first, ends[name], epochs.get(name, 0))
        return self._finish(Manifest(self.when, moment, VERSION, parts))

    def _finish(self, manifest: Manifest) -> Snapshot:
        replace_file(self.part / MANIFEST, manifest.to_bytes())
        for folder in (self.part, *(path for path in self.part.rglob("*") if path.is_dir())):
            sync_folder(folder)
        path = self.part.with_name(self.part.name.removesuffix(PART))
        self.part.rename(path)
        sync_folder(path.parent)
        return Snapshot(manifest.time, path, manifest)


def ends_at_one_moment(envs: dict[str, Env], before: tuple[dict[str, Position], float] | None = None
                       ) -> tuple[dict[str, Position], float]:
    """Where all logs end at one moment, and a Unix time up to which they have all. `before`: as `log_ends` has just
    seen it. Raises StoreError BUSY."""
    deadline = time.monotonic() + PATIENCE
    ends, moment = before or log_ends(envs)
    *others, _ = envs
    while any(envs[name].log_end() != ends[name] for name in others):   # else it was so when the last was looked at
        if time.monotonic() > deadline:
            raise StoreError(Problem.BUSY, "The store is written to too often for a snapshot of one moment")
        ends, moment = log_ends(envs)
    return ends, moment


def log_ends(envs: dict[str, Env]) -> tuple[dict[str, Position], float]:
    """Where each log ends, one after the other, and the time before."""
    moment = time.time()
    return {name: env.log_end() for name, env in envs.items()}, moment


# Logs and retention

def keep_what_is_needed(store: Store, good: Snapshot | None = None) -> None:
    """Keep the logs that follow the newest snapshot (`good`, if it is given); without a snapshot, none. Those that were
    kept when there was no snapshot yet stay until the second one: a promotion has kept them for standbys."""
    found = listed(folder(store.root, store.settings))
    newest = good or next(iter(found), None)
    for name, env in environments(store).items():
        part = newest.manifest.environments.get(name) if newest is not None else None
        first = part.first_log if part is not None else None
        if first is not None and len(found) == 1 and (before := env.logs.kept()) is not None:
            first = min(first, before)
        env.logs.keep(first)


def remove(snapshot: Snapshot) -> None:
    """Remove a snapshot; message files that only it refers to go with the next purge. Raises StoreError BUSY, OSError.
    """
    with _locked(snapshot.path.parent):
        _remove(snapshot.path)


def _remove(path: Path) -> None:
    gone = path.with_name(path.name + ".gone")
    path.rename(gone)               # from now on it is none: what is cut off here leaves no half of one
    sync_folder(path.parent)
    shutil.rmtree(gone)


def retain(store: Store, good: Snapshot, kept: int | None = None) -> list[Snapshot]:
    """Remove all but the `kept` newest, after `good` has been verified; those that were removed. `good` itself stays,
    and so does what is newer. Raises StoreError BUSY, OSError."""
    kept = max(1, store.settings.snapshots_kept if kept is None else kept)
    place = folder(store.root, store.settings)
    oldest = min(each.time for each in (listed(place)[:kept] or [good]))
    old = [each for each in listed(place, every=True) if each.time < min(oldest, good.time)]
    with _locked(place):
        for each in old:
            _remove(each.path)
    keep_what_is_needed(store, good)
    return old


# Using

def verify(snapshot: Snapshot, environment: str | None = None, scratch: Path | None = None,
           progress: Progress = _silent) -> list[str]:
    """What is wrong with a snapshot, or with one environment in it: its files are compared with their digests, and a
    copy of it, in a folder of its own in `scratch` (beside the snapshot), is recovered and read. Raises OSError.
    """
    found, done = [], 0
    for name, part in snapshot.manifest.environments.items():
        progress("verifying", done, snapshot.size)
        done += part.size
        if environment in (None, name):
            wrong = _altered(snapshot.path / name, part)
            found += [f"{name}: {each}" for each in wrong or _recovers(snapshot, name, scratch)]
    return found


def altered(snapshot: Snapshot) -> list[str]:
    """The files of a snapshot that are not what they were when it was made."""
    return [f"{name}: {each}" for name, part in snapshot.manifest.environments.items()
            for each in _altered(snapshot.path / name, part)]


def _altered(place: Path, part: Part) -> list[str]:
    found: list[str] = []
    for file in part.files:
        try:
            if (place / file.name).stat().st_size != file.size:
                found.append(f"{file.name} has another size")
            elif hotcopy.digest(place / file.name) != file.digest:
                found.append(f"{file.name} does not agree with its digest")
        except OSError as error:
            found.append(f"{file.name}: {error.strerror}")
    return found


def _recovers(snapshot: Snapshot, environment: str, scratch: Path | None) -> list[str]:
    with scratch_folder(snapshot, scratch) as target:
        try:
            put_back(snapshot, environment, target)
            return hotcopy.faults(target)
        except (Failure, StoreError) as error:
            return [f"it cannot be recovered: {error}"]


@contextlib.contextmanager
def scratch_folder(snapshot: Snapshot, place: Path | None) -> Iterator[Path]:
    """A folder for the time being, below `place` or where the snapshot is; see `filelock.scratch`. Raises OSError."""
    with scratch(place or snapshot.path.parent, snapshot.name) as target:
        yield target


def put_back(snapshot: Snapshot, environment: str, target: Path, logs: Iterable[Path] = (), *,
             until: int | None = None, most: int | None = None) -> Logs:
    """Fill an empty folder with an environment of a snapshot, and with the log that follows it, from the folders `logs`
    (see `hotcopy.add_logs`), and recover it: all there is, or what was committed up to the Unix time `until`.

    Without `logs` it is as it was when the snapshot was made. Raises StoreError UNAVAILABLE when it is not in the
    snapshot or `until` is too early, Failure when it cannot be recovered, OSError.
    """
    part = snapshot.manifest.environments.get(environment)
    if part is None:
        raise StoreError(Problem.UNAVAILABLE, f"{environment} is not in the snapshot {snapshot.name}")
    if until is not None and until < snapshot.manifest.moment:
        raise StoreError(Problem.UNAVAILABLE, f"The snapshot {snapshot.name} was made later than that")
    hotcopy.fill(snapshot.path / environment, [file.name for file in part.files], target)
    used = hotcopy.add_logs(target, part.end, logs, most)
    hotcopy.recover(target, until)
    return used
