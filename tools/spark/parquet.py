"""Tables as Parquet files, which anything can read, and which can be brought up to date.

    DIR/onecopy.json                                            what was written, and of what state of the store
    DIR/references/store=%2Fsrv%2Fmail/partition=primary/0c9.parquet

A file has the rows of one group, without the columns that its path says: of messages the hash folder of that name, or
`staging`; of other tables the mailboxes of all users whose hash begins so, or the `public` or the `deleted` ones. Each
is written beside the old one and then takes its place, so that whoever reads sees one or the other. With `since` a
group is written only if it is not as it was: the time of a message folder, or name, time, size and inode of each
`store.idx`.
"""

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow.parquet as parquet
from attrs import evolve, frozen

from mboxlist import privatefiles
from mboxlist.names import PUBLIC
from store.userarea.paths import DELETED
from tools.exits import Failure
from tools.spark.source.reading import ALL, STAGING, Task, idx_files, partitions
from tools.spark.source.rows import batches
from tools.spark.source.schema import TABLES, VERSION, schema

MANIFEST = "onecopy.json"
QUIET_SECONDS = 2.0         # in a folder that changed later, something may change again at the same time
_PLACE = ("store", "partition")


@frozen
class Group:
    """One file of the export: the task that reads its rows, and the state that was written last, or ""."""

    task: Task
    path: str
    state: str = ""


@frozen
class Written:
    """What became of a group: `rows` is None when it was as it had been."""

    path: str
    state: str
    rows: int | None


@frozen
class Exported:
    """What an export did."""

    written: int
    unchanged: int
    rows: int
    removed: int


Each = Callable[[Callable[[Group], Written], Sequence[Group]], Iterable[Written]]


def export(stores: Sequence[str], folder: Path, tables: Sequence[str], each: Each, *,
           since: bool = False) -> Exported:
    """Write these tables of the stores; with `since`, what has changed since the last export.

    `each` is like `map`, and may do the work in any process that sees the folder and the stores. Raises Failure when
    the folder holds something else.
    """
    manifest = read_manifest(folder)
    before: dict[str, str] = manifest["groups"] if manifest.get("version") == VERSION else {}
    known = before if since else {}
    every = [group for root in stores for table in tables for group in groups(root, table, known)]
    for parent in sorted({os.path.dirname(group.path) for group in every}):
        privatefiles.make_folder(folder / parent, parents=True, exist_ok=True)
    _write_manifest(folder, before)               # claims the folder before anything is in it
    done = list(each(partial(write, folder), every))
    states = {one.path: one.state for one in done}
    gone = [path for path in before if path not in states and _is_of(path, stores, tables)]
    for path in gone:
        (folder / path).unlink(missing_ok=True)
    left = {path: state for path, state in before.items() if path not in gone}
    _write_manifest(folder, left | states)
    fresh = [one for one in done if one.rows is not None]
    return Exported(len(fresh), len(done) - len(fresh), sum(one.rows or 0 for one in fresh), len(gone))


def groups(root: str, table: str, known: Mapping[str, str]) -> Iterator[Group]:
    """All groups of a table of one store."""
    for name, folder in partitions(root):
        above = f"{_above(table, root)}/partition={quote(name, safe='')}"
        for group, places in (_message_groups if table == "messages" else _user_groups)(folder):
            path = f"{above}/{group}.parquet"
            yield Group(Task(table, root, name, folder, places), path, known.get(path, ""))


def _above(table: str, root: str) -> str:
    return f"{table}/store={quote(root, safe='')}"


def _is_of(path: str, stores: Sequence[str], tables: Sequence[str]) -> bool:
    return any(path.startswith(_above(table, root) + "/") for table in tables for root in stores)


def _message_groups(folder: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    for number in range(1 << 12):
        yield f"{number:03x}", (f"{number:03x}",)
    yield STAGING, (STAGING,)


def _user_groups(folder: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """By the first three digits of the hash of the owner; what is in no hash folder by the name of its folder."""
    top = os.path.join(folder, "users")
    try:
        firsts = sorted(os.listdir(top))
    except OSError:
        yield "users", ("",)            # a row that says so
        return
    for first in firsts:
        path = os.path.join(top, first)
        if first in (DELETED, PUBLIC[:-1]) or not os.path.isdir(path):
            if os.path.isdir(path) or first == "store.idx":
                yield quote(first, safe=""), (first,)
            continue
        found: dict[str, list[str]] = {}
        try:
            for second in sorted(os.listdir(path)):
                found.setdefault(quote(first + second[:1], safe=""), []).append(f"{first}/{second}")
        except OSError:
            yield quote(first, safe=""), (first,)
        for group, places in found.items():
            yield group, tuple(places)


def write(folder: Path, group: Group) -> Written:
    """Write a group, unless it is as it was; what became of it. Raises OSError."""
    state = state_of(group.task)            # before the rows are read: what changes meanwhile is for the next time
    path = folder / group.path
    if state and state == group.state:
        return Written(group.path, state, None)
    columns = tuple(column.name for column in TABLES[group.task.table] if column.name not in _PLACE)
    task = evolve(group.task, wanted=evolve(ALL, columns=columns))
    found = batches(task)
    first = next(found, None)
    if first is None:
        path.unlink(missing_ok=True)
        return Written(group.path, state, 0)
    rows, own = 0, schema(task.table, columns)
    with (privatefiles.replacing(path, f".{os.getpid()}.new", sync=False) as file,
          parquet.ParquetWriter(file, own, compression="zstd") as writer):
        for batch in chain([first], found):
            writer.write_batch(batch)
            rows += batch.num_rows
    return Written(group.path, state, rows)


def state_of(task: Task) -> str:
    """By what one sees that a group has changed; "" when there is no telling."""
    if task.table == "messages":
        return "" if STAGING in task.places else _folder_state(task)
    seen = []
    for found in idx_files(task):
        try:
            status = os.stat(found.path)
        except OSError:
            return ""
        if found.problem:
            return ""
        seen.append([found.below, status.st_mtime_ns, status.st_size, status.st_ino])
    return hashlib.blake2b(json.dumps(seen).encode(), digest_size=16).hexdigest()


def _folder_state(task: Task) -> str:
    place, = task.places
    try:
        changed = os.stat(f"{task.folder}/messages/{place[0]}/{place[1:]}").st_mtime_ns
    except OSError:
        return ""
    return str(changed) if changed < time.time_ns() - int(QUIET_SECONDS * 1e9) else ""


# The manifest

def read_manifest(folder: Path) -> dict[str, Any]:
    """What the last export wrote; empty for a new folder. Raises Failure for a folder that has something else."""
    try:
        found = json.loads(privatefiles.read_text(folder / MANIFEST))
    except FileNotFoundError:
        if folder.is_dir() and any(folder.iterdir()):
            raise Failure(f"{folder} is not empty, and no export of onecopy") from None
        return {}
    except ValueError:
        raise Failure(f"{folder / MANIFEST} is damaged: remove {folder}") from None
    if not isinstance(found, dict) or not isinstance(found.get("groups"), dict):
        raise Failure(f"{folder / MANIFEST} is damaged: remove {folder}")
    return found


def _write_manifest(folder: Path, states: Mapping[str, str]) -> None:
    privatefiles.make_folder(folder, parents=True, exist_ok=True)
    with privatefiles.replacing(folder / MANIFEST, sync=False) as file:
        file.write(json.dumps({"version": VERSION, "groups": dict(sorted(states.items()))}, indent=0).encode())
