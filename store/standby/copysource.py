"""The one that serves: what it answers to its standby. Nothing of it runs where there is none.

Each answer is a function of one message, which `store.usermove.responder` calls in the thread of that connection.
"""

import contextlib
import os
import stat
import time
import zlib
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from attrs import define, field

from mboxlist import privatefiles
from mboxlist.engine.damagemarks import file_id
from mboxlist.engine.generations import LogEnd
from mboxlist.engine.hotcopy import Position
from mboxlist.engine.kv import Env
from mboxlist.engine.logfiles import log_name
from store import VERSION
from store.errors import Problem, StoreError
from store.partition.messagereading import digest_in
from store.partition.partition import Partition
from store.snapshots import retention, taking
from store.snapshots.taking import Snapshot, environments
from store.standby.copyformat import (
    FILES,
    FOLDERS,
    LISTED,
    SENT_OCTETS,
    SMALL,
    SMALL_FILES,
    Listed,
    Sent,
    pack_list,
    pack_sent,
    positions,
    read_list,
)
from store.store import Store
from store.usermove.messageformat import BadMessage, Message

WAIT = 30.0                 # seconds, at most, that a question for news waits for some
LOOK = 0.05                 # seconds between two looks for news
AT_ONCE = 256               # folders of message files that are listed at a time

Answer = tuple[dict[str, Any], bytes]


@define(eq=False)
class Source:
    """What one standby hears. Every answer raises BadMessage for what is no question, StoreError, OSError."""

    store: Store
    _durable: dict[str, Position] = field(factory=dict, init=False)     # how far logs may be read

    def actions(self) -> dict[str, Callable[[Message], Any]]:
        """By the names that the standby uses."""
        return {"copy begin": self._begin, "copy snapshot": self._snapshot, "copy database": self._database,
                "copy list": self._list, "copy staged": self._staged, "copy files": self._files,
                "copy piece": self._piece, "copy small": self._small, "copy small file": self._small_file,
                "copy ends": self._ends, "copy log": self._log}

    def _begin(self, message: Message) -> Answer:
        """The first question: whether both understand each other, and what there is."""
        if message.text("version") != VERSION:
            raise StoreError(Problem.UNAVAILABLE, f"This back end has version {VERSION} of onecopy, and the standby "
                                                  f"{message.text('version')}: both must have the same one")
        taking.require_whole(self.store)
        return {"host": self.store.settings.host, "identity": self.store.mailboxes.identity,
                "partitions": sorted(self.store.partitions)}, b""

    # Beginning

    def _snapshot(self, message: Message) -> Answer:
        """The manifest of a snapshot that is not older than so many seconds; it is made if there is none."""
        newest = next(iter(taking.listed(taking.folder(self.store.root, self.store.settings))), None)
        if newest is None or time.time() - newest.manifest.moment > message.number("age"):
            newest = retention.make(self.store, verify=False)           # the standby verifies what comes of it
        return {"snapshot": newest.name}, newest.manifest.to_bytes()

    def _database(self, message: Message) -> Answer:
        """Octets of a file of that snapshot."""
        snapshot = self._snapshot_of(message.text("snapshot"))
        part = snapshot.manifest.environments.get(message.text("environment"))
        name = message.text("file")
        if part is None or name not in [file.name for file in part.files]:
            raise StoreError(Problem.GONE, f"There is no {name} in the snapshot {snapshot.name}")
        return {}, _octets(snapshot.path / message.text("environment") / name, message.number("at"))

    def _snapshot_of(self, name: str) -> Snapshot:
        for each in taking.listed(taking.folder(self.store.root, self.store.settings)):
            if each.name == name:
                return each
        raise StoreError(Problem.GONE, f"The snapshot {name} is there no more")

    # Message files

    def _partition(self, message: Message) -> Partition:
        return self.store.partition(message.text("partition"))

    def _list(self, message: Message) -> Answer:
        """The message files of some folders, from the one of that number on; `next` is the number to go on with."""
        partition, number = self._partition(message), message.number("folder", 0, FOLDERS)
        found = list[Listed]()
        for at in range(number, min(FOLDERS, number + AT_ONCE)):
            name = f"{at:03x}"
            some = _files_of(partition.files.folder / name[0] / name[1:])
            if len(some) > LISTED:
                raise StoreError(Problem.LIMIT, f"There are too many message files in one folder: {len(some)}")
            if len(found) + len(some) > LISTED:
                return {"next": at}, pack_list(found)
            found += some
        return {"next": min(FOLDERS, number + AT_ONCE)}, pack_list(found)

    def _staged(self, message: Message) -> Answer:
        """The messages that have been committed and are still in `staging/`, by their digests."""
        partition, found = self._partition(message), list[Listed]()
        for name in os.listdir(partition.files.staging):
            with contextlib.suppress(ValueError, FileNotFoundError):
                if (digest := partition.serials.committed_digest(int(name, 16))) is not None:
                    status = os.stat(partition.files.staging / name, follow_symlinks=False)
                    found.append(Listed(digest, status.st_size, status.st_mtime_ns))
        return {}, pack_list(found[:LISTED])

    def _files(self, message: Message) -> Answer:
        """The first files of those asked for, as many as one answer takes, without those that are known; of a large one
        only the beginning."""
        partition, room, said = self._partition(message), SENT_OCTETS, list[bytes]()
        asked = read_list(message.octets)
        if len(asked) > FILES:
            raise BadMessage("too many files are asked for")
        for known in asked:
            with contextlib.ExitStack() as opened:
                handle = self._open(partition, known.name)
                if handle < 0:
                    said.append(pack_sent(None))
                    continue
                opened.callback(os.close, handle)
                status = os.fstat(handle)
                if (status.st_size, status.st_mtime_ns) == (known.size, known.time):
                    said.append(pack_sent(Sent(known.size, known.time, same=True)))
                    continue
                if said and status.st_size > room:
                    break
                octets = _read(handle, 0, min(status.st_size, SENT_OCTETS))
                said.append(pack_sent(Sent(status.st_size, status.st_mtime_ns, octets)))
                room -= len(octets)
        return {}, b"".join(said)

    def _piece(self, message: Message) -> Answer:
        """Further octets of one file."""
        partition, name = self._partition(message), message.text("name")
        digest = digest_in(name)
        if not digest:
            raise BadMessage("that is no message file")
        handle = self._open(partition, digest)
        if handle < 0:
            raise StoreError(Problem.GONE, f"The message file {name} is there no more")
        try:
            status = os.fstat(handle)
            octets = _read(handle, message.number("at"), SENT_OCTETS)
            return {"size": status.st_size, "time": status.st_mtime_ns}, octets
        finally:
            os.close(handle)

    @staticmethod
    def _open(partition: Partition, digest: bytes) -> int:
        """The message file, wherever it is; -1 for none."""
        for look in range(3):               # it may get its place between the first two looks
            if look == 1:
                record = partition.refs.find(digest, raw=True)
                path = partition.files.staged_path(record.serial) if record is not None else ""
            else:
                path = partition.files.path(digest)
            if path and (handle := _open(Path(path))) >= 0:
                return handle
        return -1

    # Small files

    def _small(self, message: Message) -> Answer:
        """Those of one folder, from one name on: name, size and time of each."""
        found = self._small_files(_small_folder(message), message.text("after"))
        return {"files": [[name, each.st_size, each.st_mtime_ns] for name, each in islice(found, SMALL_FILES)]}, b""

    def _small_files(self, folder: str, after: str = "") -> Iterator[tuple[str, os.stat_result]]:
        """In the order of their names, those that come after one."""
        place = self.store.root / folder
        names = os.listdir(place) if place.is_dir() else []
        for name in sorted(name for name in names if name > after and not name.endswith((".new", "lock"))):
            with contextlib.suppress(FileNotFoundError):
                status = os.stat(place / name, follow_symlinks=False)
                if stat.S_ISREG(status.st_mode):
                    yield name, status

    def _small_file(self, message: Message) -> Answer:
        folder, name = _small_folder(message), message.text("name")
        if "/" in name or name in (".", ".."):
            raise BadMessage("that is no file")
        try:
            return {}, _octets(self.store.root / folder / name, message.number("at"))
        except FileNotFoundError:
            raise StoreError(Problem.GONE, f"{folder}/{name} is there no more") from None

    # Following

    def _ends(self, message: Message) -> Answer:
        """Up to where all logs are on disk, at one moment; if that is what is known there already, it waits for more.

        `unlike`: environments whose log has not been where the standby says that it was.
        """
        known, small = positions(message.fields.get("known")), message.fields.get("small")
        sums = message.fields.get("sums")
        if not isinstance(sums, dict) or not all(isinstance(each, int) for each in sums.values()):
            raise BadMessage("there are no sums")
        envs = environments(self.store)
        unlike = [name for name, end in known.items() if name not in envs or name in sums and not LogEnd(
            *end, sums[name]).is_in(envs[name].folder) or not _reaches_back(envs[name], end)]
        deadline = time.monotonic() + min(WAIT, message.number("wait") / 1000)
        if message.number("wait"):
            time.sleep(LOOK)            # whoever follows at full speed asks, and has the disk synced, so often at most
            if not unlike and self._signatures() == small:
                while time.monotonic() < deadline and all(env.log_end() == known.get(name) for name, env in
                                                          envs.items()):
                    time.sleep(LOOK)
        first = {name: env.logs.first_needed() for name, env in envs.items()}         # before the ends: see `applying`
        ends, moment = taking.ends_at_one_moment(envs)
        sizes = self._signatures()
        for name, env in envs.items():
            if env.log.known < ends[name]:
                env.flush()
        tables = {name: {path.name: file_id(path) for path in sorted(env.folder.glob("*.db"))}
                  for name, env in envs.items()}       # after the ends: one that was exchanged before them is seen
        self._durable = {name: max(end, self._durable.get(name, end)) for name, end in ends.items()}
        return {"ends": ends, "first": first, "tables": tables, "moment": moment, "small": sizes, "unlike": unlike,
                "epochs": {name: partition.epoch for name, partition in self.store.partitions.items()}}, b""

    def _signatures(self) -> dict[str, int]:
        """A number for each folder of small files, which is another one when something in it has changed."""
        found = {}
        for folder in SMALL:
            if folder == "audit":           # its files grow in their places
                found[folder] = zlib.crc32(repr([(name, status.st_size)
                                                 for name, status in self._small_files(folder)]).encode())
            else:
                with contextlib.suppress(FileNotFoundError):
                    found[folder] = (self.store.root / folder).stat().st_mtime_ns
        return found

    def _log(self, message: Message) -> Answer:
        """Octets of a log, up to where it is known to be on disk."""
        name, number, at = message.text("environment"), message.number("file"), message.number("at")
        end = self._durable.get(name)
        if end is None or number > end[0]:
            raise BadMessage("nobody has been told of that part of a log")
        path = environments(self.store)[name].folder / log_name(number)
        most = min(SENT_OCTETS, end[1] - at) if number == end[0] else SENT_OCTETS
        try:
            return {"last": number == end[0]}, _octets(path, at, max(0, most))
        except FileNotFoundError:
            raise StoreError(Problem.GONE, f"{path.name} of {name} is there no more") from None


def _reaches_back(env: Env, end: Position) -> bool:
    """Whether the log of the environment still has what follows that place."""
    return (env.folder / log_name(end[0])).exists()


def _small_folder(message: Message) -> str:
    folder = message.text("folder")
    if folder not in SMALL:
        raise BadMessage("there is no such folder")
    return folder


def _files_of(place: Path) -> list[Listed]:
    found = []
    with contextlib.suppress(FileNotFoundError), os.scandir(place) as entries:
        for entry in entries:
            if name := digest_in(entry.name):
                with contextlib.suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    found.append(Listed(name, status.st_size, status.st_mtime_ns))
    return found


def _open(path: Path) -> int:
    try:
        return privatefiles.open_handle(path, os.O_RDONLY | os.O_NONBLOCK)
    except FileNotFoundError:
        return -1


def _octets(path: Path, at: int, most: int = SENT_OCTETS) -> bytes:
    handle = privatefiles.open_handle(path)
    try:
        return _read(handle, at, most)
    finally:
        os.close(handle)


def _read(handle: int, at: int, most: int) -> bytes:
    found, left = list[bytes](), most
    while left and (octets := os.pread(handle, left, at)):
        found.append(octets)
        at, left = at + len(octets), left - len(octets)
    return b"".join(found)

