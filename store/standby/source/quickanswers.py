"""What has come, whole in one answer: octets of logs, and the message files of which they tell."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from attrs import define, field

from mboxlist import privatefiles
from mboxlist.engine.hotcopy import Position
from mboxlist.engine.logfiles import log_name
from store.partition.partition import Partition
from store.standby import logrecords
from store.standby.applying import distance
from store.standby.copyformat import QUICK_FILES, QUICK_OCTETS, SENT_OCTETS, UNHURRIED

AnyPath = str | Path
FindFile = Callable[[str, bytes], int]      # of a partition and a digest: a descriptor of the message file; -1 for none


class Logs(Protocol):
    """An environment."""

    @property
    def folder(self) -> Path:
        """Where its log files are."""


@define(eq=False)
class QuickAnswers:
    """The quick answers to one standby. The newest file of each log stays open from one to the next. Where nobody waits
    for this standby (`is_unhurried`), an answer may be large: it costs less than many, and less than what is asked for
    file by file. Everything raises OSError."""

    find: FindFile
    is_unhurried: bool = True
    _open: dict[str, tuple[int, int]] = field(factory=dict, init=False)     # by environment: number, descriptor

    def between(self, known: dict[str, Position], ends: dict[str, Position], envs: Mapping[str, Logs]
                ) -> tuple[dict[str, Any], bytes] | None:
        """What is new between these places, up to which the logs have been written, if it is little, and all there. A
        message file that is large is named, and the standby asks for it."""
        logs, files, octets = list[Any](), list[Any](), list[bytes]()
        most = room = QUICK_OCTETS * UNHURRIED if self.is_unhurried else QUICK_OCTETS
        if known.keys() != ends.keys():
            return None
        for name, end in ends.items():
            start = known[name]
            if start == end:
                continue
            if distance(start, end) > room or not start < end:
                return None
            while start < end:
                some = self._octets(name, envs[name], start,
                                    end[1] - start[1] if start[0] == end[0] else most + 1)
                room -= len(some)
                if room < 0:
                    return None
                logs.append([name, *start, len(some)])
                octets.append(some)
                start = end if start[0] == end[0] else (start[0] + 1, 0)
        for (name, *_), some in zip(logs, tuple(octets), strict=True):
            if name.startswith("partitions/"):
                partition = name.split("/")[1]
                for digest in dict.fromkeys(logrecords.digests(some)):
                    if len(files) == QUICK_FILES or (found := _file(self.find(partition, digest), room)) is None:
                        return None
                    size, when, content = found
                    room -= len(content)
                    files.append([partition, digest.hex(), size, when, len(content)])
                    octets.append(content)
        return {"quick": True, "logs": logs, "files": files}, b"".join(octets)

    def _octets(self, name: str, env: Logs, start: Position, most: int) -> bytes:
        return read_at(self.handle(name, env, start[0]), start[1], most)

    def handle(self, name: str, env: Logs, file: int) -> int:
        """A descriptor of that log file, until another one is asked for."""
        number, handle = self._open.get(name, (0, -1))
        if number != file:
            handle = privatefiles.open_handle(f"{env.folder}/{log_name(file)}")
            self._let_go(name)
            self._open[name] = file, handle
        return handle

    def _let_go(self, name: str) -> None:
        number, handle = self._open.pop(name, (0, -1))
        if handle >= 0:
            os.close(handle)

    def close(self) -> None:
        """Let go of the files."""
        for name in tuple(self._open):
            self._let_go(name)


def _file(handle: int, room: int) -> tuple[int, int, bytes] | None:
    """Size, time and octets of an open message file; without octets if there is no room for them; None: there is none.
    """
    if handle < 0:
        return None
    try:
        status = os.fstat(handle)
        return status.st_size, status.st_mtime_ns, (
            read_at(handle, 0, status.st_size) if status.st_size <= room else b"")
    finally:
        os.close(handle)


def open_message(partition: Partition, digest: bytes) -> int:
    """A descriptor of the message file, wherever it is; -1 for none. One that has just come is not in its place yet."""
    for in_place in (False, True, False):       # it may get its place between two looks, or come again
        if in_place:
            path = partition.files.path(digest)
        else:
            record = partition.refs.find(digest, raw=True)
            path = partition.files.staged_path(record.serial) if record is not None else ""
        if path and (handle := open_there(path)) >= 0:
            return handle
    return -1


def open_there(path: AnyPath) -> int:
    """A descriptor for reading; -1 for none."""
    try:
        return privatefiles.open_handle(path, os.O_RDONLY | os.O_NONBLOCK)
    except FileNotFoundError:
        return -1


def octets_of(path: AnyPath, at: int, most: int = SENT_OCTETS) -> bytes:
    """At most `most` octets of a file, from the octet `at` on."""
    handle = privatefiles.open_handle(path)
    try:
        return read_at(handle, at, most)
    finally:
        os.close(handle)


def read_at(handle: int, at: int, most: int) -> bytes:
    """At most `most` octets of an open file, from the octet `at` on."""
    found = os.pread(handle, most, at) if most else b""
    left, parts = most - len(found), [found]
    while left and parts[-1]:
        parts.append(os.pread(handle, left, at + most - left))
        left -= len(parts[-1])
    return found if len(parts) == 1 else b"".join(parts)
