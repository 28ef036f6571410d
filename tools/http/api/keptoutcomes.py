"""What has become of operations that took longer than their askers waited, for all processes that serve HTTP.

Each is a file in `run/operations` of the store, which only its owner can read: a line of JSON, and what was printed.
The process that carries the operation out holds a lock on its file; of one that is killed it is answered that it was
cut off. The oldest ones that have ended are removed. No snapshot or backup has them.
"""

import fcntl
import json
import logging
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Lock

from attrs import define, field, frozen

from mboxlist import privatefiles
from tools.http.api.operationlist import SECRET
from tools.http.api.running import CUT_OFF, Run

log = logging.getLogger(__name__)

FOLDER = "operations"
KEPT = 200                  # operations of which it is known what became of them,
KEPT_OCTETS = 64 << 20      # and octets of what those have printed
_NAME = re.compile(r"[0-9a-f]{32}")


@frozen
class _Left:
    """A file: `name`, when it was written, how long it is."""

    name: str
    time: int
    size: int


@define(eq=False)
class KeptOutcomes:
    """Those of a store. For threads."""

    root: Path
    _held: dict[str, int] = field(factory=dict, init=False)     # of those under way here: descriptors with a lock
    _lock: Lock = field(factory=Lock, init=False)

    def begin(self, run: Run) -> None:
        """Its asker waits no longer; nothing where it has ended just now, or what it prints is secret."""
        if run.operation in SECRET:
            return
        with self._lock:
            if run.exit is not None:
                return
            try:
                privatefiles.make_folder(self._folder, parents=True, exist_ok=True)
                handle = privatefiles.open_handle(self._folder / run.id, os.O_RDWR | os.O_CREAT | os.O_EXCL)
                self._held[run.id] = handle
                fcntl.flock(handle, fcntl.LOCK_EX)
                os.write(handle, _head(run))
                self._remove_oldest()
            except OSError as error:
                log.warning("%s: what becomes of an operation is known to this process alone: %s", self._folder, error)

    def end(self, run: Run) -> bool:
        """It has ended; whether all processes know that."""
        with self._lock:
            handle = self._held.pop(run.id, None)
            if handle is None:
                return False
            try:
                with privatefiles.replacing(self._folder / run.id, sync=False) as file:
                    file.write(_head(run) + run.output)
                self._remove_oldest()
            except OSError as error:
                log.warning("%s: what became of an operation is known to this process alone: %s", self._folder, error)
                return False
            finally:
                os.close(handle)
            return True

    def find(self, id: str, owner: str) -> Run | None:
        """One that this owner asked for."""
        if not _NAME.fullmatch(id):
            return None
        found = self._read(id)
        if found is not None and found[0].exit is None and not found[1]:
            found = self._read(id)              # it may have ended between the two looks
            if found is not None and found[0].exit is None and not found[1]:
                found[0].exit, found[0].errors = 1, CUT_OFF.decode()
        return found[0] if found is not None and found[0].owner == owner else None

    @property
    def _folder(self) -> Path:
        return self.root / "run" / FOLDER

    def _read(self, id: str) -> tuple[Run, bool] | None:
        """One, and whether somebody holds its lock."""
        try:
            with os.fdopen(privatefiles.open_handle(self._folder / id), "rb") as file:
                head, _, output = file.read().partition(b"\n")
                try:
                    fcntl.flock(file.fileno(), fcntl.LOCK_SH | fcntl.LOCK_NB)
                    held = False
                except BlockingIOError:
                    held = True
            about = json.loads(head)
            return Run(id, about["operation"], about["owner"], about["as_json"], about["exit"], output,
                       about["errors"]), held
        except (OSError, ValueError, KeyError, TypeError):
            return None                         # removed, or not whole

    def _remove_oldest(self) -> None:
        files = sorted(self._files(), key=lambda each: -each.time)
        octets = 0
        for place, each in enumerate(files):
            octets += each.size
            if (place >= KEPT or octets > KEPT_OCTETS and place) and self._has_ended(each.name):
                with suppress(OSError):
                    os.unlink(self._folder / each.name)

    def _files(self) -> Iterator[_Left]:
        with os.scandir(self._folder) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    yield _Left(entry.name, status.st_mtime_ns, status.st_size)

    def _has_ended(self, name: str) -> bool:
        found = self._read(name) if _NAME.fullmatch(name) else None
        return found is None or not found[1]


def _head(run: Run) -> bytes:
    return json.dumps({"operation": run.operation, "owner": run.owner, "as_json": run.as_json, "exit": run.exit,
                       "errors": run.errors}).encode() + b"\n"
