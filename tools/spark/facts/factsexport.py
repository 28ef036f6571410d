"""The export of facts: what has changed since the last is written by several processes, and then the manifest.

    DEST/facts.json                                     the manifest: which files are the export, their rows, octets
    DEST/references/primary/00000400.1f0c...parquet     table, partition, range of keys, what it was made of

A file's name tells what it was made of, so none is ever written over: until the new manifest is there, the old one
names files that are all there, and as they were. A range of which a file is not there, or has other octets than the
manifest says, is written again, under other names. What no manifest names is no part of an export, and goes with the
next one. What only the manifest before names stays for one export more, for who reads it now.

Processes give way to all others (nice 19), and each holds some megabytes at a time.
"""

import json
import os
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from datetime import UTC, datetime
from functools import partial
from itertools import chain, islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow.parquet as parquet
from attrs import asdict, evolve, field, frozen

from mboxlist import privatefiles
from mboxlist.privatefiles import Folder
from store.snapshots.taking import Snapshot
from store.values import Finding
from tools.cli.progressbar import counted
from tools.exits import Failure
from tools.spark.facts.destinations import Destination
from tools.spark.facts.factrows import MAILBOXES, Range, beginnings, state_of
from tools.spark.facts.factschema import FACTS, VERSION, fact_schema
from tools.spark.facts.snapshottables import Folders, opened_partition

MANIFEST = "facts.json"
FORMAT = "onecopy facts"
_FEW = 16                   # ranges for which no processes are started
_AHEAD = 4                  # ranges for each process that are given out, and not taken yet


@frozen
class Written:
    """What became of a range: its state, its files with their table, rows and octets, whether they are new, and what of
    it cannot be read."""

    key: str
    state: str
    files: dict[str, tuple[str, int, int]]
    fresh: bool
    findings: tuple[Finding, ...] = ()


_Item = tuple[Range, Written | None]        # a range, and what became of it in the export before


@frozen
class Exported:
    """What an export did: files that were written, that stayed as they were, that were removed; rows of all tables;
    rows that were written; what could not be read."""

    store: str
    moment: str
    written: int
    unchanged: int
    removed: int
    rows: int
    rows_written: int
    findings: list[Finding] = field(factory=list)


def store_name(root: Path) -> str:
    """What a back end is called among others: its host, and the folder of the store."""
    return f"{socket.getfqdn()}:{root}"


def export(snapshot: Snapshot, folders: Folders, root: Path, to: Destination, *, name: str, domain: str,
           processes: int) -> Exported:
    """Write the facts of a snapshot. Raises Failure when there is something else, OSError, StoreError."""
    before = read_manifest(to)
    if before and before["store"] != name:
        raise Failure(f"there are the facts of {before['store']} already: each back end needs a folder of its own")
    damaged = {each["range"] for each in before.get("findings", ())}     # may have been put right since
    there = dict(to.files())
    known = {key: Written(key, "" if key in damaged or any(there.get(path) != octets for path, *_, octets in files)
                          else state, {path: (table, rows, octets) for path, table, rows, octets in files}, False)
             for key, (state, files) in before.get("ranges", {}).items()}
    parts = _ranges(snapshot, folders, root, name)
    done = {one.key: one for one in counted(_side_by_side(partial(write, to.work), (
        (part, known.get(key_of(part))) for part in parts), to, processes), "parts of the store")}
    moment = datetime.fromtimestamp(snapshot.manifest.moment, UTC).isoformat()
    files = {path for one in done.values() for path in one.files}
    to.write(MANIFEST, _manifest(name, moment, domain, done))
    kept = files | {path for one in known.values() for path in one.files}
    gone = [path for path, _ in to.files() if path != MANIFEST and path not in kept and _is_ours(path)]
    for path in gone:
        to.remove(path)
    rows = {fresh: sum(count for one in done.values() if one.fresh >= fresh for _, count, _ in one.files.values())
            for fresh in (False, True)}
    fresh = sum(len(one.files) for one in done.values() if one.fresh)
    return Exported(name, moment, fresh, len(files) - fresh, len(gone), rows[False], rows[True],
                    [finding for one in done.values() for finding in one.findings])


def _is_ours(path: str) -> bool:
    """Whether a file is of an export; what else is there stays."""
    return path.split("/")[0] in FACTS and path.removesuffix(".new").endswith(".parquet") or path == MANIFEST + ".new"


# What there is to do

def _ranges(snapshot: Snapshot, folders: Folders, root: Path, name: str) -> Iterator[Range]:
    base = Range("users", name, folders.mailboxes, moment=int(snapshot.manifest.moment * 1_000_000))
    yield base
    for partition, folder in sorted(folders.partitions.items()):
        here = evolve(base, partition=partition, folder=folder)
        yield evolve(here, kind="volume", volume=str(root / "partitions" / partition))
        yield evolve(here, kind="partition")
        tables = opened_partition(folder)
        last = next(iter(tables.states.scan_back(b"\0\0\0\1", b"\xff" * 5)), (b"", b""))[0]
        for first in range(0, int.from_bytes(last, "big") + 1, MAILBOXES):
            yield evolve(here, kind="mailboxes", first=first, last=first + MAILBOXES)
        for beginning in beginnings(folder):
            yield evolve(here, kind="messages", beginning=beginning)


def message_ranges(folders: Folders, name: str) -> list[Range]:
    """The ranges of message files of all partitions."""
    return [Range("messages", name, folders.mailboxes, partition, folder, beginning=beginning)
            for partition, folder in sorted(folders.partitions.items()) for beginning in beginnings(folder)]


def key_of(part: Range) -> str:
    """What a range is called in the manifest."""
    return f"{part.kind}/{part.partition}/{part.name}"


def _side_by_side(work: Callable[[_Item], Written], items: Iterable[_Item], to: Destination, processes: int
                  ) -> Iterator[Written]:
    """What became of all ranges. What is made is brought to its place before much more of it is made."""
    given = iter(items)
    few = list(islice(given, _FEW))
    pool: Executor = ThreadPoolExecutor(1, initializer=_give_way) if processes == 1 or len(
        few) < _FEW else ProcessPoolExecutor(processes, get_context("spawn"), initializer=_give_way)
    with pool:
        waiting: set[Future[Written]] = set()
        for item in (*few, *given):
            waiting.add(pool.submit(work, item))
            if len(waiting) >= _AHEAD * processes:
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                yield from (_taken(each.result(), to) for each in done)
        yield from (_taken(each.result(), to) for each in waiting)


def _give_way() -> None:
    """Have all others come before this thread."""
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)


def _taken(made: Written, to: Destination) -> Written:
    if made.fresh:
        for path in made.files:
            to.take(path)
    return made


def write(folder: Path, item: _Item) -> Written:
    """Write the files of a range below a folder, unless it is as it was. Raises OSError, StoreError."""
    part, before = item
    state = state_of(part)
    if before is not None and state and state == before.state:
        return before
    name = state if before is None or before.state else ""
    made: dict[str, tuple[str, int, int]] = {}
    for table, rows_of in part.tables.items():
        found = iter(rows_of(part))
        first = next(found, None)
        if first is None:
            continue
        path = f"{table}/{quote(part.partition, safe='') or 'all'}/{part.name}.{name or part.moment}.parquet"
        above, last = os.path.split(path)
        rows = 0
        with Folder.at(folder, make=True) as top, top.make(above) as place:
            with privatefiles.replacing(last, f".{os.getpid()}.new", at=place.handle) as file, parquet.ParquetWriter(
                    file, fact_schema(table), compression="zstd") as writer:
                for batch in chain([first], found):
                    writer.write_batch(batch)
                    rows += batch.num_rows
            made[path] = table, rows, place.status(last).st_size
    return Written(key_of(part), state, made, True, tuple(part.damaged.values()))


# The manifest

def _manifest(name: str, moment: str, domain: str, done: Mapping[str, Written]) -> bytes:
    rows = dict.fromkeys(FACTS, 0)
    for one in done.values():
        for table, count, _ in one.files.values():
            rows[table] += count
    return json.dumps({
        "format": FORMAT, "version": VERSION, "store": name, "moment": moment, "default_domain": domain, "rows": rows,
        "ranges": {one.key: [one.state, [[path, *figures] for path, figures in sorted(one.files.items())]]
                   for one in sorted(done.values(), key=lambda one: one.key)},
        "findings": [{"range": one.key, **asdict(finding)} for one in sorted(done.values(), key=lambda one: one.key)
                     for finding in one.findings]}, indent=0).encode()


def read_manifest(to: Destination) -> dict[str, Any]:
    """What the last export to a destination wrote; empty where there was none. Raises Failure for what is none."""
    octets = to.read(MANIFEST)
    if octets is None:
        strange = next((path for path, _ in to.files() if not _is_ours(path)), None)
        if strange is not None:
            raise Failure(f"there is something else in the folder, such as {strange}")
        return {}
    return manifest_of(octets)


def manifest_of(octets: bytes) -> dict[str, Any]:
    """A manifest; of another version it says that nothing is known. Raises Failure."""
    try:
        found = json.loads(octets)
        if found["format"] != FORMAT:
            raise ValueError
        found["store"], found["moment"]
        if found["version"] == VERSION and not all(
                _is_ours(path) and ".." not in path.split("/")
                for _, files in found["ranges"].values() for path, *_ in files):
            raise ValueError
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Failure(f"{MANIFEST} is damaged, or is not of onecopy") from None
    return {**found, "ranges": found["ranges"] if found["version"] == VERSION else {}}
