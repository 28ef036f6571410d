"""How a standby begins: with all message files, then a snapshot of the databases, then the message files that came
meanwhile. It is done beside the server; what was cut off goes on where it was, since what is here already is not sent
again: message files by their names, the databases of a snapshot by their digests.

A standby whose databases are copied again keeps its older state until the new one is whole (`switching`).
"""

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from attrs import evolve

from mboxlist import privatefiles
from mboxlist.engine import hotcopy
from mboxlist.engine.damagemarks import file_id
from mboxlist.engine.disk import sync_file, sync_folder
from mboxlist.engine.hotcopy import Copied
from mboxlist.engine.transact import Failure
from store.errors import Problem, StoreError
from store.partition.marks import STANDBY, is_absent
from store.partition.partition import Partition
from store.snapshots.taking import LIST, Manifest
from store.standby import applying, standbyjournal, standbystate, switching
from store.standby.copyformat import is_environment, small_folders
from store.standby.filecopies import FileCopies, Progress, copy_small
from store.standby.sourcepeer import Begun, SourcePeer
from store.standby.standbystate import FOLLOWING, SWITCHING, StandbyState
from store.standby.succession import Lineage

FRESH = 600                 # seconds that a snapshot may be old with which a standby begins
DATABASE = re.compile(r"[a-z0-9_-]+\.db|log\.[0-9]{10}")
NEW = ".new"                # behind the name of a file of a database that is not whole


class MoreHere(StoreError):
    """What a standby has may be on no other machine."""


def require_empty(root: Path) -> None:
    """There is no store in that folder, or a standby. Raises StoreError STORE_IN_USE."""
    if not (root / STANDBY).exists() and any((root / name).exists() for name in (LIST, "partitions")):
        raise StoreError(Problem.STORE_IN_USE, f"There is a store in {root}: a standby begins in an empty folder")


def begin(root: Path, source: SourcePeer, address: str, only: Sequence[str] = ()) -> StandbyState:
    """The state of a standby that begins, or goes on to begin, and protects `only` these partitions, else all; on disk.
    Raises StoreError, MoreHere, OSError."""
    require_empty(root)
    known, wanted = standbystate.read(root), tuple(sorted(only))
    if known is None:
        begun = source.begin(Lineage(), wanted)
        state = StandbyState(begun.host, address, begun.identity)
    else:
        state, begun = same(root, evolve(known, only=wanted), source)
    state = begun.state(evolve(state, host=begun.host, address=address, only=wanted))
    privatefiles.make_folder(root, parents=True, exist_ok=True)
    state.save(root)                    # first: without it what is in the folder is a store
    return state


def go_over(root: Path, source: SourcePeer, address: str) -> StandbyState:
    """Have a standby follow another machine, which has the same store and has seen the same promotions at least; its
    state, on disk. Raises StoreError, MoreHere, OSError."""
    known = standbystate.read(root)
    if known is None:
        raise StoreError(Problem.NO_STORE, f"There is no standby in {root}; onecopy standby create makes one")
    if known.phase not in (FOLLOWING, SWITCHING):
        raise StoreError(Problem.UNAVAILABLE, f"This standby is {known.phase}: that goes on from {known.host} first")
    known, begun = same(root, known, source)
    state = begun.state(evolve(known, host=begun.host, address=address))
    state.save(root)
    return state


def same(root: Path, known: StandbyState, source: SourcePeer) -> tuple[StandbyState, Begun]:
    """That machine has all that this standby has: the state, as `require_no_more`, and what it says of itself. Raises
    StoreError, MoreHere, OSError."""
    begun = source.begin(known.lineage, known.only)
    if known.identity != begun.identity:
        raise StoreError(Problem.STORE_IN_USE, f"There is a standby in {root} of another store, that of {known.host}: "
                                               f"remove it first")
    if known.ends and not begun.lineage.goes_on_from(known.lineage):
        raise MoreHere(Problem.STORE_IN_USE, f"{begun.host} was promoted in the place of a machine that {known.host} "
                                             f"was promoted besides: what {root} has may be only here. "
                                             f"{_bring(source.peer.host)}")
    return require_no_more(root, known, source, begun), begun


def require_no_more(root: Path, state: StandbyState, source: SourcePeer, begun: Begun) -> StandbyState:
    """That machine has all that this standby has, if it has been promoted, or follows one that has: a standby may have
    been ahead of the one that was, and that one may lack a partition. The state, with all that is sure in its place.
    Raises StoreError, MoreHere, OSError."""
    require_each_partition(root, source, begun)
    unseen = begun.lineage.line[len(state.line):]
    if not state.ends or not unseen:
        return state
    for name in begun.given_up:
        if f"partitions/{name}/index" in state.ends:
            raise MoreHere(Problem.STORE_IN_USE, f"{begun.host} has given up partition {name}, and its mail is here. "
                                                 f"{_bring(source.peer.host)}")
    state = standbyjournal.replay(root, switching.finish(root, state), ahead=False)
    left, ahead = state.parting(root), standbyjournal.ahead(root, state)
    if ahead is not None:
        left = evolve(left, ends={name: (*end, 0) for name, end in ahead.ends.items()}, moment=ahead.moment)
    else:
        sums = {name: checksum for name, (_, _, checksum) in left.ends.items() if checksum}
        if len(sums) == len(state.ends) and not source.ends(state.ends, sums).unlike:
            return state                # its log goes on from what is here
    there = begun.partings.get(unseen[0])
    if there is None or not (there.stays or there.has_all(left)):
        raise MoreHere(Problem.STORE_IN_USE, f"{source.peer.host}, or the machine that it follows, was promoted with "
                                             f"less than {root} has: that would be lost. {_bring(source.peer.host)}")
    return state


def require_each_partition(root: Path, source: SourcePeer, begun: Begun) -> None:
    """That machine lacks no partition that is here. Raises MoreHere."""
    for name in begun.absent:
        folder = root / "partitions" / name
        if not is_absent(folder) and (folder.is_symlink() or folder.exists()):      # or its volume is missing just now
            raise MoreHere(Problem.STORE_IN_USE, f"{source.peer.host} does not have partition {name}, and it is here: "
                                                 f"this may be its only copy. {_bring(source.peer.host)}")


def _bring(host: str) -> str:
    return f"`onecopy standby rejoin --from {host}:PORT` brings it there; then this machine can follow it"


def seed(root: Path, state: StandbyState, source: SourcePeer, progress: Progress, age: int = FRESH) -> StandbyState:
    """Copy all there is; the state of a standby that can follow, which is on disk. The snapshot is not older than so
    many seconds. What is here stays whole until all has come. Raises StoreError, OSError."""
    state = standbyjournal.replay(root, switching.finish(root, state))
    begun = source.begin(state.lineage, state.only)
    state, partitions = require_no_more(root, state, source, begun), begun.partitions
    privatefiles.make_folder(root / "run", exist_ok=True)
    for name in partitions:
        Partition.make(root / "partitions" / name)
        _message_files(root / "partitions" / name, source, progress)
    found = _databases(root, state, source, progress, age)
    if set(switching.partitions_of(found)) != set(partitions):
        raise StoreError(Problem.BUSY, "A partition was added or removed meanwhile: begin again")
    for name in partitions:
        _message_files(root / "partitions" / name, source, progress)
    for folder in small_folders(found.ends):
        copy_small(source, root, folder)        # those that are there no more go in the first round
    return switching.decide(root, found)


def _message_files(partition: Path, source: SourcePeer, progress: Progress) -> None:
    privatefiles.make_folder(partition / switching.FILES, exist_ok=True)
    FileCopies(source, partition, partition / switching.FILES).all(progress)


def _databases(root: Path, state: StandbyState, source: SourcePeer, progress: Progress, age: int) -> StandbyState:
    """The databases of a snapshot, recovered as a trial that they can be, beside those that are here."""
    name, manifest = source.snapshot(age)
    _require_inside(source, manifest)
    total, done = sum(part.size for part in manifest.environments.values()), 0
    for environment, part in manifest.environments.items():
        folder = switching.place(root, environment)
        if not folder.parent.is_dir():
            raise StoreError(Problem.BUSY, f"{environment} was added meanwhile: begin again")
        privatefiles.make_folder(folder, exist_ok=True)
        _clear(folder, manifest)
        for file in part.files:
            _fetch(folder, file, source, (name, environment))
            done += file.size
            progress("databases", done, total)
        sync_folder(folder)
    for environment, part in manifest.environments.items():
        folder = switching.place(root, environment)
        try:
            applying.apply_to(folder, part.end)
        except Failure as error:
            raise StoreError(Problem.UNAVAILABLE, f"What came of the databases cannot be recovered: {error}") from error
        if wrong := hotcopy.faults(folder):
            raise StoreError(Problem.UNAVAILABLE, f"What came of the databases is not good: {environment}: {wrong[0]}")
        sync_folder(folder.parent)
    ends = {name: part.end for name, part in manifest.environments.items()}
    return evolve(
        state, moment=manifest.moment, ends=ends, applied=ends, small={}, epochs={},
        first={name: part.first_log for name, part in manifest.environments.items()},
        tables={name: {path.name: file_id(path) for path in sorted(switching.place(root, name).glob("*.db"))}
                for name in manifest.environments})


def _require_inside(source: SourcePeer, manifest: Manifest) -> None:
    """All that is to be written are files of databases and logs in the folders of environments. Raises StoreError."""
    for environment, part in manifest.environments.items():
        if not is_environment(environment):
            raise source.peer.unclear(f"an environment of the name {environment!r}")
        for file in part.files:
            if not DATABASE.fullmatch(file.name):
                raise source.peer.unclear(f"a file of the name {file.name!r}")


def _clear(folder: Path, manifest: Manifest) -> None:
    """Remove what is not of a snapshot: what is left of earlier ones, or of a log."""
    names = {file.name for part in manifest.environments.values() for file in part.files}
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name not in names and path.name.removesuffix(NEW) not in names:
            path.unlink()


def _fetch(folder: Path, file: Copied, source: SourcePeer, where: tuple[str, str]) -> None:
    path, new = folder / file.name, folder / f"{file.name}{NEW}"
    if path.exists() and path.stat().st_size == file.size and hotcopy.digest(path) == file.digest:
        return
    for begun in (True, False):         # what is there may be of another snapshot
        if not begun:
            new.unlink(missing_ok=True)
        with privatefiles.open_file(new, "ab") as target:
            at = target.tell()
            while at < file.size and (octets := source.database(*where, file.name, at)):
                target.write(octets)
                at += len(octets)
        if at == file.size and hotcopy.digest(new) == file.digest:
            sync_file(new)
            new.replace(path)
            return
    raise StoreError(Problem.UNAVAILABLE, f"{file.name} did not come as it is in the snapshot")
