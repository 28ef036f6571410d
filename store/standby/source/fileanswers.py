"""What a standby hears of files: message files, and the small files of the store (`copyformat.small_folders`)."""

import contextlib
import os
import stat
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from attrs import define

from store.errors import Problem, StoreError
from store.partition.messagereading import digest_in
from store.standby.copyformat import (
    FILES,
    FOLDERS,
    LISTED,
    SENT_OCTETS,
    SMALL,
    SMALL_FILES,
    Listed,
    Sent,
    is_small,
    pack_list,
    pack_sent,
    partition_of,
    read_list,
)
from store.standby.source.quickanswers import FindFile, octets_of, read_at
from store.usermove.messageformat import BadMessage, Message

AT_ONCE = 256               # folders of message files that are listed at a time

Answer = tuple[dict[str, Any], bytes]


@define(eq=False)
class FileAnswers:
    """Answers about files of the store, or the standby, in `root`. `messages` is the folder of the message files of a
    partition, by its name, and raises StoreError where there is none. Every answer raises BadMessage, StoreError,
    OSError."""

    root: Path
    messages: Callable[[str], Path]
    find: FindFile

    def actions(self) -> dict[str, Callable[[Message], Answer]]:
        """By the names that the standby uses."""
        return {"copy list": self._list, "copy files": self._files, "copy piece": self._piece,
                "copy small": self._small, "copy small file": self._small_file}

    def _list(self, message: Message) -> Answer:
        """The message files of some folders, from the one of that number on; `next` is the number to go on with."""
        place, number = self.messages(message.text("partition")), message.number("folder", 0, FOLDERS)
        found = list[Listed]()
        for at in range(number, min(FOLDERS, number + AT_ONCE)):
            name = f"{at:03x}"
            some = _files_of(place / name[0] / name[1:])
            if len(some) > LISTED:
                raise StoreError(Problem.LIMIT, f"There are too many message files in one folder: {len(some)}")
            if len(found) + len(some) > LISTED:
                return {"next": at}, pack_list(found)
            found += some
        return {"next": min(FOLDERS, number + AT_ONCE)}, pack_list(found)

    def _files(self, message: Message) -> Answer:
        """The first files of those asked for, as many as one answer takes, without those that are known; of a large one
        only the beginning."""
        partition, room, said = message.text("partition"), SENT_OCTETS, list[bytes]()
        asked = read_list(message.octets)
        if len(asked) > FILES:
            raise BadMessage("too many files are asked for")
        for known in asked:
            with contextlib.ExitStack() as opened:
                handle = self.find(partition, known.name)
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
                octets = read_at(handle, 0, min(status.st_size, SENT_OCTETS))
                said.append(pack_sent(Sent(status.st_size, status.st_mtime_ns, octets)))
                room -= len(octets)
        return {}, b"".join(said)

    def _piece(self, message: Message) -> Answer:
        """Further octets of one file."""
        partition, name = message.text("partition"), message.text("name")
        digest = digest_in(name)
        if not digest:
            raise BadMessage("that is no message file")
        handle = self.find(partition, digest)
        if handle < 0:
            raise StoreError(Problem.GONE, f"The message file {name} is there no more")
        try:
            status = os.fstat(handle)
            octets = read_at(handle, message.number("at"), SENT_OCTETS)
            return {"size": status.st_size, "time": status.st_mtime_ns}, octets
        finally:
            os.close(handle)

    # Small files

    def _small(self, message: Message) -> Answer:
        """The small files of one folder, from one name on: name, size and time of each."""
        found = self.small_files(self._small_folder(message), message.text("after"))
        return {"files": [[name, each.st_size, each.st_mtime_ns] for name, each in islice(found, SMALL_FILES)]}, b""

    def small_files(self, folder: str, after: str = "") -> Iterator[tuple[str, os.stat_result]]:
        """The small files of a folder that come after a name, in the order of their names."""
        place = self.root / folder
        names = os.listdir(place) if place.is_dir() else []
        for name in sorted(name for name in names if name > after and is_small(folder, name)):
            with contextlib.suppress(FileNotFoundError):
                status = os.stat(place / name, follow_symlinks=False)
                if stat.S_ISREG(status.st_mode):
                    yield name, status

    def _small_file(self, message: Message) -> Answer:
        folder, name = self._small_folder(message), message.text("name")
        if "/" in name or not is_small(folder, name):
            raise BadMessage("that is no file")
        try:
            return {}, octets_of(self.root / folder / name, message.number("at"))
        except FileNotFoundError:
            raise StoreError(Problem.GONE, f"{folder}/{name} is there no more") from None

    def _small_folder(self, message: Message) -> str:
        folder = message.text("folder")
        if partition := partition_of(folder):
            self.messages(partition)
        elif folder not in SMALL:
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
