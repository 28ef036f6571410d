"""Writing the audit trail, from any number of processes: see the room's text."""

import contextlib
import fcntl
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import takewhile
from pathlib import Path
from typing import Any

from attrs import define, evolve, field

from mboxlist import privatefiles
from mboxlist.engine.disk import replace_file, sync_folder
from store.audit.auditline import (
    BEGUN,
    CUT,
    FOLDER,
    HEAD,
    HEAD_OCTETS,
    LOCK,
    NO_HEAD,
    OWN,
    REMOVED,
    USUAL,
    Head,
    digest_of,
    files,
    lines,
    made,
    name_of,
    parsed,
)

FILE_OCTETS = 16 << 20      # after which another file is begun; so it is with each month

MOST_BROKEN = 100           # lines that were cut off one behind the other
BATCH = 1000                # lines that are written at once

_Noted = tuple[float, Mapping[str, Any], list[bool]]    # when, what, and whether it was written, when that is known


def say(text: str) -> None:
    """Tell whoever runs a command."""
    print("onecopy:", text, file=sys.stderr)


@define(eq=False)
class Trail:
    """That of the store in a folder. `kinds`: what is noted; all else is left out. `unwritten` is told what could not
    be written."""

    root: Path
    kinds: Collection[str] = USUAL
    _clock: Callable[[], float] = time.time
    unwritten: Callable[[str], None] = say
    _mutex: threading.Lock = field(factory=threading.Lock, init=False)
    _waiting: deque[_Noted] = field(factory=deque, init=False)

    def wants(self, kind: str) -> bool:
        """Whether that is noted."""
        return kind in self.kinds or kind == OWN and bool(self.kinds)

    def write(self, kind: str, what: str, **facts: Any) -> bool:
        """Note that somebody does something; it is on disk when this returns, with all that other threads noted at the
        same time. False when it could not be written: `unwritten` has been told. Raises nothing."""
        return not self.wants(kind) or self.flush(self.put(kind, what, **facts))

    def put(self, kind: str, what: str, **facts: Any) -> list[bool]:
        """Have it written by the next `flush`, of whomever; that is given to `flush`, to wait for it."""
        done: list[bool] = []
        self._waiting.append((self._clock(), {"kind": kind, "what": what, **facts}, done))
        return done

    def flush(self, done: list[bool]) -> bool:
        """Write what waits, until that is on disk. False when it could not be. Raises nothing."""
        with self._mutex:
            while not done:
                self._write_batch([self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))])
        return done[0]

    def _write_batch(self, batch: Sequence[_Noted]) -> None:
        try:
            append(self.root, [(when, facts) for when, facts, _ in batch])
        except (OSError, ValueError) as error:      # ValueError: of a head that somebody has changed
            reason = error.strerror if isinstance(error, OSError) and error.strerror else error
            for when, facts, _ in batch:
                line = made(facts, 0, "", when).decode("ascii")
                self.unwritten(f"not in the audit trail ({reason}): {line}")
            written = False
        else:
            written = True
        for _, _, done in batch:
            done.append(written)


def append(root: Path, noted: Sequence[tuple[float, Mapping[str, Any]]]) -> Head:
    """Write lines behind the last one, on disk; where the trail ends then. Raises OSError."""
    folder = root / FOLDER
    if not folder.is_dir():
        privatefiles.make_folder(folder, exist_ok=True)
        sync_folder(root)
    with _in_turn(folder):
        return _append(folder, noted)


@contextlib.contextmanager
def _in_turn(folder: Path) -> Iterator[None]:
    """One process after the other (flock(2)). `store/filelock.py` has the same, and loads more than a command has."""
    handle = privatefiles.open_handle(folder / LOCK, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _append(folder: Path, noted: Sequence[tuple[float, Mapping[str, Any]]]) -> Head:
    now, begun = noted[-1][0], has_begun(folder.parent)
    head = head_of(folder)
    if head is None and not begun and not files(folder):
        _set_head(folder, head := Head(), synced=True)      # or a process that is killed behind its first line, or a
        #                                                     host without power, would leave none
    if not begun:
        with contextlib.suppress(OSError):      # of a full volume: the next line tries it again
            sync_folder(folder)                 # behind the head: where that is written down, there is a head
            replace_file(folder.parent / BEGUN, f"{datetime.fromtimestamp(now, UTC).isoformat()}\n".encode())
    end, broken = _end(folder, head)
    if head is None:
        noted = [(now, {"kind": OWN, "what": NO_HEAD}), *noted]
    if broken:
        noted = [(now, {"kind": OWN, "what": CUT, "octets": sum(map(len, broken)), "lines": len(broken)}), *noted]
    handle, end = _opened(folder, end, now)
    size = os.fstat(handle).st_size
    try:
        octets = b"\n" if broken and not broken[-1].endswith(b"\n") else b""
        for when, facts in noted:
            line = made(facts, end.number + 1, end.digest, when)
            end = evolve(end, number=end.number + 1, digest=digest_of(line))
            octets += line + b"\n"
        with memoryview(octets) as left:
            written = 0
            while written < len(left):
                written += os.write(handle, left[written:])
        os.fdatasync(handle)
        end = evolve(end, size=os.fstat(handle).st_size)
    except OSError:
        with contextlib.suppress(OSError):      # of a full volume: the part that is there is told as unwritten
            os.ftruncate(handle, size)
        raise
    finally:
        os.close(handle)
    _set_head(folder, end)
    return end


def _opened(folder: Path, end: Head, now: float) -> tuple[int, Head]:
    """The last file, or a new one when it is full or of another month, or is gone."""
    there = {serial: path for serial, _, path in files(folder)}
    path = there.get(end.serial)
    if path is not None and end.size < FILE_OCTETS and path.name == name_of(end.serial, now):
        return privatefiles.open_handle(path, os.O_WRONLY | os.O_APPEND), end
    serial = max([end.serial, *there]) + 1
    handle = privatefiles.open_handle(folder / name_of(serial, now), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    sync_folder(folder)
    return handle, evolve(end, serial=serial, size=0)


def _set_head(folder: Path, head: Head, *, synced: bool = False) -> None:
    """After the lines are on disk: so it never says that there are more than there are."""
    handle = privatefiles.open_handle(folder / HEAD, os.O_WRONLY | os.O_CREAT)
    try:
        os.pwrite(handle, head.to_bytes(), 0)
        if synced:
            os.fsync(handle)
    finally:
        os.close(handle)


def has_begun(root: Path) -> bool:
    """Whether the store has had a trail, even if its folder is gone."""
    return (root / BEGUN).exists()


def head_of(folder: Path) -> Head | None:
    """What `head` says; None when there is none. Raises OSError."""
    try:
        with privatefiles.open_file(folder / HEAD) as file:
            return Head.from_bytes(file.read(HEAD_OCTETS))
    except FileNotFoundError:
        return None


def _end(folder: Path, head: Head | None) -> tuple[Head, list[bytes]]:
    """Where the trail ends in truth: behind the head are lines of a process that was killed before it wrote that. The
    last of these, if they were cut off: another process may have been killed before it could tell of the first one.

    What was cut away before the head's end is no reason to go on from there: what follows is behind what was there.
    """
    end, broken = head or Head(), list[bytes]()
    there = files(folder)
    for serial, _, path in there:
        if serial < end.serial:
            continue
        if serial > end.serial:
            end = evolve(end, serial=serial, size=0)
        size = path.stat().st_size
        if size <= end.size:
            continue
        with privatefiles.open_file(path) as file:
            file.seek(end.size)
            for line in lines(file):
                found = parsed(line)
                number = found.get("number") if found is not None else None
                broken = [] if found is not None and line.endswith(b"\n") else [*broken, line][-MOST_BROKEN:]
                end = evolve(end, number=max(end.number + 1, number if isinstance(number, int) else 0),
                             digest=digest_of(line.removesuffix(b"\n")))
        end = evolve(end, size=size)
    return end, broken


def removable(root: Path, before: str) -> list[Path]:
    """The files of months before that one (2026-01); never the last, and none behind one that stays: after a clock that
    was set back that would leave a gap. Raises OSError."""
    return [path for _, _, path in takewhile(lambda each: each[1] < before, files(root / FOLDER)[:-1])]


def remove(root: Path, before: str, who: Mapping[str, Any], clock: Callable[[], float] = time.time) -> list[str]:
    """Remove those files; their names. What is removed is noted first. Raises OSError."""
    folder = root / FOLDER
    if not folder.is_dir():
        return []
    with _in_turn(folder):
        old = removable(root, before)
        last = _last_line(old[-1]) if old else None
        if last is None:
            return []
        found = parsed(last) or {}
        _append(folder, [(clock(), {"kind": OWN, "what": REMOVED, **who, "files": [path.name for path in old],
                                    "last": found.get("number"), "digest": digest_of(last)})])
        for path in old:
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
        sync_folder(folder)
    return [path.name for path in old]


def _last_line(path: Path) -> bytes | None:
    last = None
    with privatefiles.open_file(path) as file:
        for line in lines(file):
            last = line
    return last.removesuffix(b"\n") if last is not None else None
