"""Message files that have been purged at the machine that serves leave the standby, too.

A file goes when neither the tables of the standby, as they are once they have taken over a part of the log, nor the log
files that are here tell of its digest: then no state to which this standby can still be brought has the message. The
tables know a file until its record has been purged, so it never goes earlier than the databases say. A message that
comes again meanwhile is in the log, and so is one whose transaction had not ended (`StandbyState.first`). A file whose
message came in a log file that is still here waits until that is not needed any more.

Copies for reading are links to the same files (`store/standby/reading`). So no file goes while there is a copy of an
earlier state than that of the tables: its databases may know the file.

The process that applies logs looks for such files (`note_unknown`), once a day; the one that follows removes them.
"""

import contextlib
import json
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from attrs import define, field

from mboxlist import privatefiles
from mboxlist.engine.damagemarks import log_files
from mboxlist.engine.hotcopy import Position, Still, log_number
from store.filelock import in_turn
from store.partition.marks import READ_ONLY, AsOf
from store.partition.messagefiles import MessageFiles, remove_name, sync_file_system
from store.partition.messagereading import MID_OCTETS, digest_in
from store.standby import logrecords
from store.standby.standbystate import StandbyState
from store.standby.switching import partitions_of

log = logging.getLogger(__name__)

EVERY = 86400.0             # seconds between two looks for such files,
MOST = 100_000              # of which one notes so many at most, in all partitions; the next one then comes soon
BATCH = 1000                # that are removed between two rounds
LOOK = 30.0                 # seconds between two looks at the copies
CACHE = 32 << 20
UNKNOWN = Path("run", "standby-unknown")        # a file for each partition: digests that its tables do not know
COPIES = Path("run", "reading-copies")          # a list of folders


def note_unknown(root: Path, state: StandbyState, goes_on: Callable[[], bool] = lambda: True) -> None:
    """Note the message files that the tables do not know, which are those of `state` and stay so meanwhile. `goes_on`
    is asked from time to time; when it does not, nothing more is noted. Raises Failure, OSError."""
    shutil.rmtree(root / UNKNOWN, ignore_errors=True)
    privatefiles.make_folder(root / UNKNOWN)
    left = MOST
    for name in partitions_of(state):
        unknown = list(islice(_unknown(root / "partitions" / name, goes_on), left))
        if not goes_on():
            return
        left -= len(unknown)
        privatefiles.write(root / UNKNOWN / name, b"".join(unknown))


def _unknown(partition: Path, goes_on: Callable[[], bool]) -> Iterator[bytes]:
    """Digests of message files that the tables do not know."""
    tables = Still(partition / "index", CACHE)
    try:
        known = tables.table("messages.db")
        for folder in MessageFiles(partition).folders():
            if not goes_on():
                return
            yield from (digest for digest in _digests(folder) if known.get(digest) is None)
    finally:
        tables.close()


def _digests(folder: str) -> Iterator[bytes]:
    """The digests of the message files in a folder."""
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
        yield from (digest for entry in entries if (digest := digest_in(entry.name)))


def note_copy(root: Path, place: Path) -> None:
    """A copy for reading is being made in that folder: from now on it counts. Raises OSError."""
    with in_turn(root / COPIES.with_name("reading-copies.lock")):
        there = {str(each) for each in copies(root)} | {str(place)}
        privatefiles.write(root / COPIES, json.dumps(sorted(there)))


def copies(root: Path) -> Iterator[Path]:
    """The folders of copies for reading that there are. Raises OSError when the disk does not say: what they have must
    not go."""
    try:
        found = [Path(name) for name in json.loads(privatefiles.read(root / COPIES))]
    except (FileNotFoundError, ValueError):
        return
    for place in found:
        with contextlib.suppress(OSError):
            if not (place / READ_ONLY).exists() or privatefiles.read_text(place / READ_ONLY) == str(root):
                if place.is_dir():
                    yield place


@define(eq=False)
class Purging:
    """What the process that follows has still to remove. It forgets all when it ends: the next look finds it again."""

    root: Path
    is_all: bool = field(default=True, init=False)                      # the last look went to the end
    _left: dict[str, set[bytes]] = field(factory=dict, init=False)      # digests, by partition
    _until: dict[str, Position] = field(factory=dict, init=False)       # the state in which nothing knows them
    _next_look: float = field(default=0.0, init=False)
    _may: bool = field(default=False, init=False)
    _removed: int = field(default=0, init=False)

    @property
    def is_under_way(self) -> bool:
        """Whether anything is left to do."""
        return bool(self._left)

    def begin(self, until: StandbyState) -> None:
        """The tables have that state, and `note_unknown` has looked; what the logs tell of is in its place. Raises
        OSError."""
        self.forget()
        count = 0
        for name in partitions_of(until):
            with contextlib.suppress(FileNotFoundError):
                octets = privatefiles.read(self.root / UNKNOWN / name)
                count += len(octets) // MID_OCTETS
                found = {octets[at:at + MID_OCTETS] for at in range(0, len(octets), MID_OCTETS)}
                for path in log_files(self.root / "partitions" / name / "index"):
                    if found and log_number(path.name):
                        found.difference_update(logrecords.digests(privatefiles.read(path)))
                if found:
                    self._left[name] = found
        self._until, self.is_all = until.ends, count < MOST
        shutil.rmtree(self.root / UNKNOWN, ignore_errors=True)

    def came(self, environment: str, octets: bytes) -> None:
        """These octets of a log have come: the files of which they tell stay. Raises ValueError when they are no
        records."""
        left = self._left.get(environment.removeprefix("partitions/").removesuffix("/index"))
        if left:
            left.difference_update(logrecords.digests(octets))

    def step(self) -> None:
        """Remove some, if no copy for reading may have them. Raises OSError."""
        now = time.monotonic()
        if not self._may and now >= self._next_look:
            self._next_look = now + LOOK
            self._may = all(self._is_later(place) for place in copies(self.root))
        if not self._may:
            return
        for name, left in list(self._left.items()):
            partition = self.root / "partitions" / name
            files, some = MessageFiles(partition), list(islice(left, BATCH))
            for digest in some:
                remove_name(files.path(digest))
            left.difference_update(some)
            self._removed += len(some)
            if not left:
                del self._left[name]
                sync_file_system(partition)
        if not self._left and self._removed:
            log.info("%d message files have been removed that were purged at the other machine", self._removed)

    def forget(self) -> None:
        """What is not removed stays for now."""
        self._left.clear()
        self._may, self._next_look, self._removed = False, 0.0, 0

    def _is_later(self, place: Path) -> bool:
        """Whether a copy for reading has a state that is not earlier than that of the tables. One that is being made
        may have any."""
        found = AsOf.of(place)
        return found is not None and all(found.ends.get(name, (0, 0)) >= end for name, end in self._until.items())
