"""Folders and message files of a store that has lost its databases, made ready for new ones."""

import contextlib
import json
import os
import shutil
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from mboxlist import privatefiles
from mboxlist.engine.disk import replace_file, sync_folder
from store.errors import Problem, StoreError
from store.filelock import exclusive
from store.partition.filecontent import likely_digests
from store.partition.filejournal import replay
from store.partition.marks import IN_PLACE, SCRATCH, is_half_made, require_no_standby
from store.partition.messagefiles import MessageFiles, sync_file_system
from store.partition.partition import Partition

TIME = "%Y%m%dT%H%M%SZ"

Adopted = dict[str, list[list[Path]]]           # by partition, for each file that was in `staging/` the names it got


def nobody_else(root: Path) -> contextlib.AbstractContextManager[None]:
    """No other process rebuilds all databases of a store. Raises StoreError STORE_IN_USE, UNAVAILABLE."""
    require_no_standby(root)
    return exclusive(root / "partitions", Problem.STORE_IN_USE, "Another process rebuilds the databases", folder=True)


def prepare(root: Path, names: Sequence[str]) -> Adopted:
    """The folders of a store without databases; every message file has its name in `messages/`: see `adopt`. From here
    on until it is `finished` the store cannot be opened: after an interruption the rebuild starts from the beginning.

    Raises StoreError STORE_IN_USE when there are databases, OSError.
    """
    note = root / SCRATCH / IN_PLACE
    adopted: Adopted = {}
    half_made = is_half_made(root)
    if half_made:
        adopted = read_adopted(note)
    else:
        refuse_databases([root / "mboxlist", *(root / "partitions" / name / "index" for name in names)])
    privatefiles.make_folder(note.parent, exist_ok=True)
    write_adopted(note, adopted)
    if half_made:                       # the note is there first: who is killed meanwhile may go on
        discard(root, names)
    for name in names:
        folder = root / "partitions" / name
        make_folders(folder)
        adopted[name] = [*adopted.get(name, []), *adopt(folder / "staging", folder / "messages")]
        sync_file_system(folder)
    write_adopted(note, adopted)
    for each in ("run", "mboxlist"):
        privatefiles.make_folder(root / each, exist_ok=True)
    return adopted


def read_adopted(note: Path) -> Adopted:
    """What an interrupted rebuild has written there; nothing if it has not. Raises OSError, ValueError."""
    octets = privatefiles.read(note) if note.exists() else b""
    return {name: [list(map(Path, each)) for each in every] for name, every in json.loads(octets or b"{}").items()}


def write_adopted(note: Path, adopted: Adopted) -> None:
    """Have it on disk. Raises OSError."""
    replace_file(note, json.dumps({name: [list(map(str, each)) for each in every] for name, every in adopted.items()}
                                  ).encode())
    sync_folder(note.parent.parent)


def discard(root: Path, names: Iterable[str]) -> None:
    """Remove databases that an interrupted rebuild has left. Raises OSError."""
    for folder in (root / "mboxlist", root / SCRATCH / "mboxlist",
                   *(root / "partitions" / name / "index" for name in names)):
        if folder.exists():
            shutil.rmtree(folder)
    for name in names:
        sync_folder(root / "partitions" / name)
    sync_folder(root)


def finished(root: Path) -> None:
    """All databases are there, and on disk: the store can be opened. Raises OSError."""
    (root / SCRATCH / IN_PLACE).unlink()
    sync_folder(root / SCRATCH)
    shutil.rmtree(root / SCRATCH)


def refuse_databases(environments: Iterable[Path]) -> None:
    """Raises StoreError STORE_IN_USE when any of them has been used."""
    for folder in environments:
        if any(folder.glob("*.db")) or any(folder.glob("log.*")):
            raise StoreError(Problem.STORE_IN_USE, f"There are databases in {folder}: move them away first")


def make_folders(folder: Path, *, without: Sequence[str] = ()) -> None:
    """Those of a partition that are not there."""
    for each in ("index", "users", "staging", "messages"):
        if each not in without:
            privatefiles.make_folder(folder / each, parents=True, exist_ok=True)
    for path in MessageFiles(folder).folders():
        privatefiles.make_folder(path, parents=True, exist_ok=True)


def _link(path: Path, copy: Path) -> bool:
    """Give the file that name, too; whether nothing had it."""
    try:
        os.link(path, copy)
    except FileExistsError:
        return False
    return True


def adopt(staging: Path, messages: Path) -> list[list[Path]]:
    """Give the files in `staging/` names in `messages/`, since a store that opens sweeps what it does not know: what
    was committed may not have got there yet. For each the names that it got: which is the right one turns out later."""
    adopted = []
    replay(staging)
    for path in sorted(staging.iterdir()) if staging.is_dir() else []:
        if path.is_file() and not path.is_symlink() and path.stat().st_size:      # empty ones wait for messages
            names = [messages / name[0] / name[1:3] / name
                     for name in (digest.hex() for digest in likely_digests(path))]
            if not any(name.exists() for name in names):
                adopted.append([name for name in names if _link(path, name)])
    return adopted


def drop_names(partition: Partition, adopted: Iterable[Sequence[Path]]) -> None:
    """Of the names that a file of `staging/` got the right one stays, or else the likeliest."""
    for names in adopted:
        known = [name for name in names if partition.refs.find(bytes.fromhex(name.name)) is not None]
        for name in set(names) - set(known or names[:1]):
            name.unlink(missing_ok=True)


def stamp(when: float) -> str:
    """That time as names of files and folders have it."""
    return time.strftime(TIME, time.gmtime(when))


def aside_name(folder: Path, when: float, why: str = "damaged") -> Path:
    """What a damaged (or "older") environment is called that is set aside at that time."""
    path, number = folder.with_name(f"{folder.name}.{why}-{stamp(when)}"), 1
    while path.exists():
        path, number = folder.with_name(f"{folder.name}.{why}-{stamp(when)}.{number}"), number + 1
    return path
