"""What is on a disk after any number of changes, if all ends there.

`Disk` replays what a `Recorder` (recorder.py) saw, and gives for any moment what a stopped process leaves
(`stopped`), what a lost power supply leaves (`lost`: contents as of their last sync, and names as of the last sync of
their folder), and what it may leave (`mixed`: besides, any part of the rest). No order between two changes is relied
on, as of a file system without a journal. Names in `run/` and the shared memory of the databases are no part of it:
nobody needs them at a start.
"""

import os
import re
from pathlib import Path
from random import Random
from typing import Any

from attrs import define, field, frozen

REGION = re.compile(r"__db\.\d{3}")      # Berkeley DB's shared memory
FOLDER = -1                     # the node of a name that is a folder
SECTOR = 512                    # octets that a disk writes whole
BLOCK = 4096                    # octets that a file system writes whole


@frozen
class Event:
    """One change: `kind` is create, write, truncate, sync, link, rename, unlink, mkdir, rmdir, sync folder, sync all
    (the file system that `path` is on), "sync failed" (what was to be synced is given up, and a later sync says nothing
    of it), or "note": what the test saw at that moment. `node` is the file, whatever its names are; one that is made
    without a name, and gets it by a link, has the path "" until then.
    """

    kind: str
    path: str = ""
    node: int = 0
    to: str = ""
    offset: int = 0
    data: bytes = field(default=b"", repr=False)
    note: Any = None


@define
class _File:
    """Contents as all see them, as of the last sync, and what came since."""

    content: bytes = b""
    synced: bytes = b""
    pending: list[Event] = field(factory=list)
    version: int = 0
    synced_version: int | bytes = 0
    given_up: bool = False          # a sync failed: what is synced is not all that others see


@frozen
class Image:
    """Files and folders that a start finds: path -> octets, or None for a folder. Equal images have equal keys."""

    key: frozenset[tuple[str, Any]]
    paths: dict[str, bytes | None] = field(repr=False)
    nodes: dict[str, int] = field(repr=False)       # names with the same node are names of one file

    def write(self, root: Path) -> None:
        """Make them below `root`."""
        root.mkdir()
        written: dict[int, str] = {}
        for path, content in sorted(self.paths.items()):
            if content is None:
                os.makedirs(root / path, 0o700, exist_ok=True)
                continue
            first = written.setdefault(self.nodes[path], path)
            if first != path:
                os.link(root / first, root / path)
                continue
            fileno = os.open(root / path, os.O_WRONLY | os.O_CREAT, 0o600)
            try:
                os.ftruncate(fileno, len(content))
                os.pwrite(fileno, content.rstrip(b"\0"), 0)
            finally:
                os.close(fileno)


class Disk:
    """The state of the disk after any number of events."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {}                     # as all see them
        self.durable: dict[str, int] = {}                   # as of the last sync of their folders
        self.files: dict[int, _File] = {}
        self._pending: dict[str, list[list[tuple[str, int | None]]]] = {}   # folder -> changes, each of some names

    @classmethod
    def of(cls, root: Path) -> "Disk":
        """What lies below `root`, all of it synced. Files with several names are one."""
        disk = cls()
        nodes: dict[int, int] = {}
        for folder, folders, files in os.walk(root):
            here = os.path.relpath(folder, root)
            if here == "." and "run" in folders:
                folders.remove("run")
            for name in folders:
                disk.names[os.path.normpath(f"{here}/{name}")] = FOLDER
            for name in files:
                if not REGION.fullmatch(name):
                    number = os.stat(f"{folder}/{name}").st_ino
                    node = nodes.setdefault(number, len(nodes) + 1)
                    if node not in disk.files:
                        content = Path(folder, name).read_bytes()
                        disk.files[node] = _File(content, content)
                    disk.names[os.path.normpath(f"{here}/{name}")] = node
        disk.durable = dict(disk.names)
        return disk

    def copy(self) -> "Disk":
        """Another one of the same state."""
        other = Disk()
        other.names, other.durable = dict(self.names), dict(self.durable)
        other.files = {node: _File(file.content, file.synced, list(file.pending), file.version, file.synced_version,
                                   file.given_up)
                       for node, file in self.files.items()}
        other._pending = {folder: list(changes) for folder, changes in self._pending.items()}
        return other

    def apply(self, event: Event) -> None:
        """The next event."""
        kind, path = event.kind, event.path
        if kind in ("write", "truncate"):
            file = self.files[event.node]
            content = _changed(file.content, event)
            file.version += content != file.content
            file.content = content
            file.pending.append(event)
        elif kind == "sync":
            _sync(self.files[event.node])
        elif kind == "sync failed":
            self.files[event.node].pending.clear()
            self.files[event.node].given_up = True
        elif kind == "sync folder":
            self._sync_folder(path)
        elif kind == "sync all":
            self._sync_volume(volume(path))
        elif kind == "create":
            self.files[event.node] = _File()
            if path:
                self._name([(path, event.node)])
        elif kind == "mkdir":
            self._name([(path, FOLDER)])
        elif kind in ("unlink", "rmdir"):
            self._name([(path, None)])
        elif kind == "link":
            self._name([(event.to, self.names[path] if path else event.node)])
        elif kind == "rename":
            assert self.names[path] != FOLDER, "a folder that gets another name cannot be replayed yet"
            changes = [(event.to, self.names[path]), (path, None)]
            if os.path.dirname(path) == os.path.dirname(event.to):
                self._name(changes)
            else:
                self._name(changes[:1])
                self._name(changes[1:])

    def _name(self, changes: list[tuple[str, int | None]]) -> None:
        _rename_all(self.names, changes)
        self._pending.setdefault(os.path.dirname(changes[0][0]) or ".", []).append(changes)

    def _sync_folder(self, folder: str) -> None:
        for changes in self._pending.pop(folder, ()):
            _rename_all(self.durable, changes)

    def _sync_volume(self, wanted: str) -> None:
        for node in {node for names in (self.names, self.durable) for path, node in names.items()
                     if node != FOLDER and volume(path) == wanted}:
            _sync(self.files[node])
        for folder in [folder for folder in self._pending if volume(f"{folder}/") == wanted]:
            self._sync_folder(folder)

    def unsynced(self, wanted: str) -> set[int]:
        """The files of a file system of which something waits to be synced."""
        return {node for path, node in self.names.items() if node != FOLDER and volume(path) == wanted
                and self.files[node].pending}

    # Images

    def stopped(self) -> Image:
        """After the end of all processes."""
        return self._image(self.names, {node: (file.version, file.content) for node, file in self.files.items()})

    def lost(self) -> Image:
        """After a loss of power, when nothing has reached the disk but what was synced."""
        return self._image(self.durable, {node: (file.synced_version, file.synced)
                                          for node, file in self.files.items()})

    def mixed(self, random: Random, *, torn: bool = False) -> Image:
        """The same when of the rest a random part has reached the disk, in any order.

        Berkeley DB relies on pages of its tables reaching the disk whole or not at all; with `torn`, those of more than
        a block come in parts, too.
        """
        names = dict(self.durable)
        for folder in sorted(self._pending):
            for changes in self._pending[folder]:
                if random.random() < 0.5:
                    _rename_all(names, changes)
        contents: dict[int, tuple[Any, bytes]] = {}
        for node, file in self.files.items():
            some = [event for event in file.pending if random.random() < 0.5]
            content = file.synced
            for at, event in enumerate(some):
                last = at == len(some) - 1
                content = _changed(content, _torn(event, random) if last and (torn or not _is_page(event)) else event)
            contents[node] = (file.synced_version, content) if not some else (content, content)
        return self._image(names, contents)

    @property
    def settled(self) -> bool:
        """Whether everything has been synced."""
        return not self._pending and not any(file.pending for file in self.files.values())

    def _image(self, names: dict[str, int], contents: dict[int, tuple[Any, bytes]]) -> Image:
        folders = {"": True}            # whether each is there, with all above it

        def there(folder: str) -> bool:
            found = folders.get(folder)
            if found is None:
                found = folders[folder] = names.get(folder) == FOLDER and there(os.path.dirname(folder))
            return found

        paths = {path: None if node == FOLDER else contents[node][1] for path, node in names.items()
                 if there(path.rpartition("/")[0])}
        key = frozenset((path, None if content is None else (names[path], contents[names[path]][0]))
                        for path, content in paths.items())
        return Image(key, paths, {path: names[path] for path in paths})


def volume(path: str) -> str:
    """The file system that a file or folder is on: each partition may be one of its own."""
    levels = path.split("/")
    return levels[1] if levels[0] == "partitions" and len(levels) > 1 else ""


def _changed(content: bytes, event: Event) -> bytes:
    if event.kind == "truncate":
        return content[:event.offset].ljust(event.offset, b"\0")
    content = content.ljust(event.offset, b"\0")
    return content[:event.offset] + event.data + content[event.offset + len(event.data):]


def _is_page(event: Event) -> bool:
    return event.path.endswith(".db")


def _torn(event: Event, random: Random) -> Event:
    """A write of which only the beginning has reached the disk."""
    unit = BLOCK if _is_page(event) else SECTOR
    ends = [end for end in range(-event.offset % unit, len(event.data), unit) if end]
    if event.kind != "write" or not ends or random.random() < 0.5:
        return event
    return Event("write", event.path, event.node, offset=event.offset, data=event.data[:random.choice(ends)])


def _sync(file: _File) -> None:
    if file.given_up:
        for event in file.pending:
            file.synced = _changed(file.synced, event)
        file.synced_version = file.synced
    else:
        file.synced, file.synced_version = file.content, file.version
    file.pending.clear()


def _rename_all(names: dict[str, int], changes: list[tuple[str, int | None]]) -> None:
    for path, node in changes:
        if node is None:
            names.pop(path, None)
        else:
            names[path] = node
