"""A copy of a store for reading, in memory: made, found, removed; of a whole store, or of some of its partitions.

It has the form of a store: `mboxlist/` and `partitions/P/index/` are copies of the databases and of the newest log;
older log files, message files and the user area are links to the store's own. In it is a file `read-only`, with the
path of the store; who opens a store with that file refuses every change (`Store.read_only`).

Where only volumes of partitions take no writes, and that of the list does, the store itself is served: of each such
partition there is a copy of the databases, which `run/read-only` names as long as its server lives; message files are
read where they are.

It lies in a folder of the owner's own in /dev/shm, or where temporary files are. What a killed server left there is
removed by the next one.
"""

import json
import logging
import os
import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from mboxlist import privatefiles
from mboxlist.engine import damagemarks
from store.errors import Problem, StoreError
from store.partition import processes
from store.partition.marks import READ_ONLY, RESTORING, is_half_made
from store.readonly.place import places

log = logging.getLogger(__name__)

SPARE = 64 << 20                    # octets that must be left: the shared memory of the databases' environments
SMALL = 1 << 20                     # octets; larger files in the store's folder itself are none of ours
_NOT_COPIED = (damagemarks.CLEAN, damagemarks.ENDED, damagemarks.OPENING, damagemarks.MEMORY, "unclean", "behind")
_SOME = Path("run", "read-only")     # names of partitions, and where the copies of their databases are
_LINKED = ("messages", "staging", "users")
_AUDITED = "audited"        # says that there is an audit trail (`store/audit`), which is not copied


def find(root: Path) -> Path | None:
    """The copy that a server serves just now in the place of the store; None when there is none."""
    for place in places(root):
        if _is_of(place, root) and processes.server(place / "run" / "server.pid"):
            return place
    return None


def make(root: Path, cache: int) -> Path:
    """Make one, in which an environment may take so many octets of memory. Raises StoreError UNAVAILABLE, OSError."""
    remove(root)
    if (root / RESTORING).exists() or is_half_made(root):
        raise StoreError(Problem.UNAVAILABLE, "its databases were being made when that was cut off")
    place = _room(root, cache, [root / "mboxlist", *(path / "index" for path in _partitions(root))])
    _fill(root, place)
    return place


def make_some(root: Path, cache: int, names: Iterable[str]) -> dict[str, Path | None]:
    """Make copies of the databases of these partitions only, and name them for all who open the store; None for one of
    which there can be none. For the server that owns the store. Raises OSError."""
    made: dict[str, Path | None] = {}
    for name in names:
        source = root / "partitions" / name / "index"
        try:
            place = _room(root, cache, [source]) / "partitions" / name
            privatefiles.make_folder(place, parents=True)
            _copy_environment(source, place / "index")
            made[name] = place / "index"
        except (StoreError, OSError) as error:
            log.critical("partition %s cannot be read either: %s", name, error)
            made[name] = None
    privatefiles.write(root / _SOME, json.dumps({name: str(path or "") for name, path in made.items()}))
    return made


def some(root: Path) -> dict[str, Path | None]:
    """The copies of the databases of single partitions, as long as the server lives that made them."""
    try:
        found = json.loads(privatefiles.read_text(root / _SOME))
    except FileNotFoundError:
        return {}
    if not processes.server(root / "run" / "server.pid"):
        return {}
    return {name: Path(path) if path else None for name, path in found.items()}


def _room(root: Path, cache: int, environments: list[Path]) -> Path:
    """Where there is room for copies of these. Raises StoreError UNAVAILABLE, OSError."""
    needed = SPARE + cache * len(environments) + sum(
        path.stat().st_size for folder in environments for path in _copied(folder))
    for place in places(root):
        privatefiles.users_temporary_folder(place.parents[1])
        figures = os.statvfs(place.parent)
        if figures.f_bavail * figures.f_frsize >= needed:
            return place
    raise StoreError(Problem.UNAVAILABLE, f"a copy of its databases takes {needed >> 20} MiB, for which there is no "
                     f"room in {' or '.join(str(place.parents[1]) for place in places(root))}")


def remove(root: Path) -> None:
    """Take away what there is of it, as far as that can be done; also of copies of some partitions."""
    with suppress(OSError):
        (root / _SOME).unlink(missing_ok=True)
    for place in places(root):
        shutil.rmtree(place, ignore_errors=True)


def _is_of(place: Path, root: Path) -> bool:
    try:
        return privatefiles.is_private(place.parent, root.stat().st_uid) and (
            privatefiles.read_text(place / READ_ONLY) == str(root))
    except OSError:
        return False


def _partitions(root: Path) -> list[Path]:
    return [path for path in sorted((root / "partitions").glob("[A-Za-z0-9]*"))
            if (path / "index").is_dir() and not (path / "rebuild").is_dir()]


def _copied(folder: Path) -> list[Path]:
    """What an environment needs that is written to when it is opened: not its shared memory, and of the log only the
    newest file."""
    left = {*damagemarks.log_files(folder)} - {*damagemarks.logs(folder)[-1:]}
    return [path for path in folder.iterdir() if path.is_file() and path not in left
            and not path.name.startswith("__db.") and path.name not in _NOT_COPIED]


def _fill(root: Path, place: Path) -> None:
    privatefiles.make_folder(place)
    for name in ("run", "partitions"):
        privatefiles.make_folder(place / name)
    _copy_environment(root / "mboxlist", place / "mboxlist")
    for partition in _partitions(root):
        made = place / "partitions" / partition.name
        privatefiles.make_folder(made)
        _copy_environment(partition / "index", made / "index")
        for name in _LINKED:
            (made / name).symlink_to((partition / name).absolute())
        if (partition / "expire.rules").is_file():
            privatefiles.copy(partition / "expire.rules", made / "expire.rules")
    for path in root.iterdir():
        if path.is_file() and path.stat().st_size <= SMALL and path.name != _AUDITED:
            privatefiles.copy(path, place / path.name)
        elif path.name in ("access", "expire", "tls", "snapshots"):
            (place / path.name).symlink_to(path.absolute())
    privatefiles.write(place / READ_ONLY, str(root))


def _copy_environment(source: Path, target: Path) -> None:
    privatefiles.make_folder(target)
    for path in damagemarks.logs(source)[:-1]:
        (target / path.name).symlink_to(path.absolute())
    for path in _copied(source):
        privatefiles.copy(path, target / path.name)
