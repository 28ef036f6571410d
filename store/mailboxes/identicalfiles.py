"""Octets that lie on a disk twice, and need not.

Message files are never modified, so one file may have two names (hard links) as long as both are on one file system;
each name goes when it is removed, and the octets with the last. Names that are put together here are those of files
that are equal octet for octet:

* the same content on several partitions of one file system;
* on one partition, a content that has a trace header, and the message that is that trace header and that content (see
  `filecopy`): two digests, and the same octets;
* a file in `staging/` that has its name in `messages/` already, as a restore leaves it that knew no hard links.

What only differs in its trace header is two messages: who reads them is shown other octets. It stays.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from attrs import define, frozen

from mboxlist import privatefiles
from mboxlist.engine.btree import Txn
from mboxlist.engine.disk import sync_file
from mboxlist.engine.transact import transact
from store.partition.filecontent import likely_digests
from store.partition.messagefiles import SPARE
from store.partition.partition import Partition
from store.store import Store
from store.tables.references import MessageRecord

COMPARED_OCTETS = 1 << 20             # octets that are compared at a time
OLD = 3600                  # seconds after which nobody writes to a file in `staging/` any more
_TRACE = (b"return-path:", b"received:")


@frozen
class Double:
    """Two names of equal octets: the file that stays, and the one that becomes a name of it. `why` is one of
    "partition", "trace", "staging"."""

    why: str
    kept: Path
    other: Path
    octets: int


@define
class Relinked:
    """What a search for equal files has found; `skipped` looked equal and were not, or had gone when their turn
    came."""

    doubles: int = 0
    octets: int = 0
    skipped: int = 0


def doubles(store: Store) -> Iterator[Double]:
    """What may lie twice, by digests and sizes; octets have not been compared."""
    places = sorted(store.partitions.values(), key=lambda partition: partition.name)
    for number, partition in enumerate(places):
        yield from _staged(partition)
        before = [other for other in places[:number] if _device(other) == _device(partition)]
        for digest, record in list(partition.refs.all()):
            path = Path(partition.files.path(digest))
            found = next((double for other in before if (double := _double("partition", Path(other.files.path(digest)),
                                                                           path)) is not None), None)
            if found is None and not record.trace:      # with a trace header of its own it would be another digest's
                found = _with_trace(partition, digest, record, path)
            if found is not None:
                yield found


def relink(store: Store, *, change: bool = True) -> Iterator[tuple[Double, bool]]:
    """Each double whose octets are equal, and True when it has become one file; without `change` nothing does."""
    spares = {partition.files.folder: partition for partition in store.partitions.values()}
    for double in doubles(store):
        if not _same_octets(double.kept, double.other):
            yield double, False
        elif not change:
            yield double, True
        else:
            partition = next(each for folder, each in spares.items() if double.other.is_relative_to(folder.parent))
            yield double, _put_together(partition, double)


def _device(partition: Partition) -> int:
    return os.stat(partition.files.folder).st_dev


def _double(why: str, kept: Path, other: Path) -> Double | None:
    """If both are files of the same length, and not one file."""
    try:
        one, two = os.stat(kept), os.stat(other)
    except OSError:
        return None
    if os.path.samestat(one, two) or one.st_size != two.st_size or one.st_dev != two.st_dev:
        return None
    return Double(why, kept, other, two.st_size)


def _with_trace(partition: Partition, own_digest: bytes, record: MessageRecord, path: Path) -> Double | None:
    """The file of the content behind what looks like a trace header, if that is the same octet for octet."""
    try:
        with privatefiles.open_file(path, "rb") as file:
            if not file.read(12).lower().startswith(_TRACE):
                return None
        digests = likely_digests(path)
    except OSError:
        return None
    for digest in digests:
        inner = partition.refs.find(digest) if digest != own_digest else None
        if inner is not None and inner.trace and inner.size == record.size:
            return _double("trace", Path(partition.files.path(digest)), path)
    return None


def _staged(partition: Partition) -> Iterator[Double]:
    """Left files in `staging/` of committed messages that have their place."""
    serials = set(partition.files.left(OLD))
    if not serials:
        return
    for digest, record in list(partition.refs.all()):
        if record.serial in serials:
            found = _double("staging", Path(partition.files.path(digest)),
                            Path(partition.files.staged_path(record.serial)))
            if found is not None:
                yield found


def _same_octets(one: Path, two: Path) -> bool:
    try:
        with (privatefiles.open_file(one, "rb", buffering=0) as first,
              privatefiles.open_file(two, "rb", buffering=0) as second):
            while True:
                data, other = first.read(COMPARED_OCTETS), second.read(COMPARED_OCTETS)
                if data != other:
                    return False
                if not data:
                    return True
    except OSError:
        return False


def _put_together(partition: Partition, double: Double) -> bool:
    """Make the second one a name of the first, while the row of its message is locked: nobody purges it, or gives it a
    place, meanwhile. At every moment both names are there."""
    staged = double.why == "staging"
    digest = bytes.fromhex((double.kept if staged else double.other).name)

    def work(txn: Txn) -> bool:
        if partition.refs.find_to_change(digest, txn) is None or not double.other.exists():
            return False
        spare = partition.files.staging / f"{double.other.name}{SPARE}"
        spare.unlink(missing_ok=True)                   # of one that was cut off
        try:
            sync_file(double.kept)      # by now only a file journal may have its octets, for the sake of another name
            os.link(double.kept, spare)
        except FileNotFoundError:                       # purged just now, on another partition
            return False
        try:
            os.replace(spare, double.other)
        finally:
            spare.unlink(missing_ok=True)
        if staged:
            double.other.unlink()
        return True

    return transact(partition.env, work)
