"""A new copy of the databases takes the place of the older state in one step: when `standby.json` says SWITCHING.

Until then the new one is beside the older state, each environment in a folder of its own (`mboxlist.copy`,
`partitions/primary/index.copy`), and message files that are here in another form are in `messages.copy` of their
partition. So the older state stays whole, and can be promoted. From then on the new one is what counts: whoever finds
SWITCHING goes on with the renames, wherever they were cut off (`finish`).
"""

import contextlib
import logging
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from attrs import evolve

from mboxlist import privatefiles
from mboxlist.engine.disk import sync_folder
from mboxlist.setaside import set_aside
from store.filelock import in_turn
from store.partition.marks import generations_of_list, generations_of_partition
from store.partition.messagefiles import MessageFiles, sync_file_system
from store.partition.messagereading import digest_in
from store.partition.partition import Partition
from store.partitions.volumes import NAME
from store.snapshots.taking import LIST
from store.standby.standbystate import FOLLOWING, SWITCHING, TABLES_LOCK, StandbyState

log = logging.getLogger(__name__)

COPY, OLD = ".copy", ".old"     # behind the name of an environment's folder: the new one, and the older state
FILES = f"messages{COPY}"       # in a partition: message files of the new state that the older one has otherwise


def place(root: Path, environment: str) -> Path:
    """The folder of an environment that is being copied."""
    return root / f"{environment}{COPY}"


def decide(root: Path, state: StandbyState) -> StandbyState:
    """All of `state` is on disk in these places: from here on it counts, and not the older one. Raises OSError."""
    found = evolve(state, phase=SWITCHING)
    found.save(root)
    return finish(root, found)


def finish(root: Path, state: StandbyState) -> StandbyState:
    """Put the new environments where they belong, unless that was done; the state, which is FOLLOWING. Raises
    OSError."""
    if state.phase != SWITCHING:
        return state
    with in_turn(root / TABLES_LOCK):
        return _finish(root, state)


def _finish(root: Path, state: StandbyState) -> StandbyState:
    for name in state.ends:
        new, folder, old = place(root, name), root / name, root / f"{name}{OLD}"
        if new.is_dir():                        # else it is in its place already
            if folder.is_dir():
                shutil.rmtree(old, ignore_errors=True)
                folder.rename(old)
            new.rename(folder)
            sync_folder(folder.parent)
    for name in partitions_of(state):
        _put_files(root / "partitions" / name)
        _empty_user_area(root / "partitions" / name)
    _forget_generations(root, state)
    drop_others(root, state)
    found = evolve(state, phase=FOLLOWING)
    found.save(root)
    tidy(root)
    return found


def tidy(root: Path) -> None:
    """Remove what is left of copies that are not needed: no copy is under way."""
    for environment in (root / LIST, *(path / "index" for path in partitions(root))):
        for end in (COPY, OLD):
            shutil.rmtree(environment.with_name(f"{environment.name}{end}"), ignore_errors=True)
    for path in partitions(root):
        shutil.rmtree(path / FILES, ignore_errors=True)


def partitions_of(state: StandbyState) -> list[str]:
    """Their names."""
    return [name.split("/")[1] for name in state.ends if name.startswith("partitions/")]


def set_others_aside(root: Path, state: StandbyState) -> None:
    """Of partitions that a copy has made which never got to its end."""
    known = partitions_of(state)
    for path in partitions(root):
        if path.name not in known:
            try:
                log.warning("a partition that was being copied is in %s", set_aside(root, f"partitions/{path.name}"))
            except OSError as error:            # a volume of its own: it is opened, and has no mailboxes
                log.error("%s was being copied, and stays: %s", path, error)


def drop_others(root: Path, state: StandbyState) -> None:
    """Remove partitions that are no more there: a promotion would bring their mailboxes back. Raises OSError."""
    known = partitions_of(state)
    for path in partitions(root):
        if path.name not in known:
            drop_partition(path)


def drop_partition(path: Path) -> None:
    """Remove the folder of one, wherever it is. Raises OSError."""
    shutil.rmtree(path.resolve())
    if path.is_symlink():
        path.unlink()


def begin_partition(root: Path, environment: str) -> None:
    """Make the folders of a partition whose log will come from its beginning. Raises OSError."""
    Partition.make((root / environment).parent)
    shutil.rmtree(root / environment)           # something is left of one that was cut off
    privatefiles.make_folder(root / environment)
    sync_folder((root / environment).parent)


def partitions(root: Path) -> Iterable[Path]:
    """Their folders, as they are there."""
    with contextlib.suppress(FileNotFoundError):
        return [path for path in (root / "partitions").iterdir() if NAME.fullmatch(path.name)]
    return []


def _put_files(partition: Path) -> None:
    files, found = MessageFiles(partition), False
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(partition / FILES):
            if digest := digest_in(name):
                os.replace(partition / FILES / name, files.path(digest))
                found = True
    if found:
        sync_file_system(partition)


def _empty_user_area(partition: Path) -> None:
    """It is of a store that was here before; that of a standby is empty until it serves."""
    users = partition / "users"
    if users.is_dir() and any(users.iterdir()):
        shutil.rmtree(users)
        privatefiles.make_folder(users)
        sync_folder(partition)


def _forget_generations(root: Path, state: StandbyState) -> None:
    """Of databases that were here before: they may be later than those of the new ones, which are not older for it."""
    for path in (*generations_of_list(root), *(path for name in partitions_of(state) for path in
                                               generations_of_partition(root / "partitions" / name))):
        path.unlink(missing_ok=True)
