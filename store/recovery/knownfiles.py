"""A rebuilt partition gets the records of its message files: part of `startrebuild`.

None is opened before the partition serves. That they are there is seen in their folders; what they hold is looked at by
housekeeping, afterwards (`uncached`), or when somebody needs it first (`references.UNSEEN_TRACE`).
"""

import contextlib
import logging
import os
import shlex
import time
from collections.abc import Iterator

import numpy as np
from attrs import define, evolve

from mboxlist.engine.bulk import Load
from store.errors import Problem, StoreError
from store.partition.marks import mark_incomplete
from store.partition.messagereading import MID_OCTETS
from store.partition.partition import Partition
from store.rebuild.loader import files_of, give_files, load_records
from store.rebuild.outcome import Event
from store.rebuild.recount import lost_cached
from store.rebuild.referencepass import Claims, Digests, Known, places_among
from store.store import Store
from store.tables.index import ROW
from store.tables.references import STORED, UNSEEN_TRACE, MessageRecord

log = logging.getLogger(__name__)

SHOWN = 50                      # things that are named one by one in the report
UNCACHED = "uncached"           # the file that is there while cache records may be missing


@define(eq=False)
class KnownFiles:
    """Gives the partition records of the files to which records refer. `known`: those that it has; `broken`:
    some records cannot be read; `whole`: there is every record that there was."""

    partition: Partition
    event: Event
    lost: set[str]
    claims: Claims
    known: Known
    broken: bool
    whole: bool

    def write(self) -> None:
        """Do it, and say which files are missing, and which nothing refers to. Raises StoreError."""
        claims, known = self.claims, self.known
        names = self._names()
        places = places_among(names, claims["digest"])
        unknown: list[bytes] = names[places < 0].tolist()           # the message files that no record refers to
        if not len(known.digests):
            self._put_all()
            there = np.zeros(len(claims), np.bool_)
            there[places[places >= 0]] = True
            gone = [digest for digest, serial in zip(claims["digest"][~there].tolist(),
                                                     claims["serial"][~there].tolist(),
                                               strict=True) if not self.partition.files.may_be_there(digest, serial)]
            self._report(unknown, [], gone)
            return
        changed: list[tuple[bytes, MessageRecord]] = []
        for claim in claims[places_among(claims["digest"], known.digests) < 0]:
            digest, (serial, references, check, size) = claim["digest"].tobytes(), (
                int(claim[name]) for name in ("serial", "references", "check", "size"))
            changed.append((digest, MessageRecord(serial, references, size or self._octets(digest, serial),
                                                  UNSEEN_TRACE, 0,
                                               check)))
        if not self.broken:                     # the file of one to which nothing refers stays
            expunged = int(time.time()) if self.whole and "removed.db" in self.lost else 0      # if it was not that
            changed += [(known.digests[at].tobytes(), evolve(known.record(at), references=references, check=check,
                         released=0 if references else expunged))
                        for at, references, check in known.differing(claims)]
        self._report(unknown, changed, [digest for digest, record in changed if record.references
                                    and not self.partition.files.may_be_there(digest, record.serial)])

    def _put_all(self) -> None:
        """Records of all these files, of which nothing was known: millions of them. Raises OSError."""
        claims = self.claims
        stored = np.zeros(len(claims), STORED)
        for name in ("serial", "references", "size", "check"):
            stored[name] = claims[name]
        for at in np.flatnonzero(claims["size"] == 0).tolist():
            stored["size"][at] = self._octets(claims["digest"][at].tobytes(), int(claims["serial"][at]))
        stored["trace"] = UNSEEN_TRACE
        partition, table = self.partition, self.partition.refs.messages
        with Load.begin(partition.env.folder / table.name, files_of) as load:
            give_files(load, claims["digest"], stored)
            load.end()
            partition.env.exchange(table, load.file)

    def _report(self, unknown: list[bytes], changed: list[tuple[bytes, MessageRecord]], gone: list[bytes]) -> None:
        load_records(self.partition, sorted(changed + list(self._expunged(unknown))))
        left = [digest for digest in unknown if self.partition.refs.find(digest, raw=True) is None]
        if left:
            mark_incomplete(self.partition.folder, incomplete=True)
            command = f"onecopy reconstruct --partition {shlex.quote(self.partition.name)}"
            self.event.missing.append(f"{len(left)} message files belong to no mailbox; they stay where they are, and "
                                      f"{command} brings them to one")
            log.warning("partition %s: %s", self.partition.name, self.event.missing[-1])
            self.event.missing += [self.partition.files.path(digest) for digest in left[:SHOWN]]
        if gone:
            self.event.missing.append(f"the files of {len(gone)} messages, which cannot be read: bring them back from "
                                      "a backup, then onecopy scrub")
            self.event.missing += [f"message file {digest.hex()}" for digest in gone[:SHOWN]]

    def _expunged(self, unknown: list[bytes]) -> Iterator[tuple[bytes, MessageRecord]]:
        """Those of them that had been expunged, as far as that is certain, with what must be known of them: they wait
        for the purge, from now on. Every other file may be all that is left of a message."""
        if not unknown or "messages.db" not in self.lost or len(self.known.digests):
            return
        certain: set[bytes] = set(unknown)
        if not self.whole:
            there = () if "removed.db" in self.lost else self.partition.removed.all()
            certain &= {digest for item in there for digest in item.rows["digest"].tolist()}
        now = int(time.time())
        for digest in sorted(certain):
            with contextlib.suppress(OSError):
                octets = os.stat(self.partition.files.path(digest)).st_size
                yield digest, MessageRecord(self.partition.serials.next_serial(), 0, octets, UNSEEN_TRACE, now)

    def _octets(self, digest: bytes, serial: int) -> int:
        """The octets of a message file; 0 where the disk does not say, which UNSEEN_TRACE corrects later."""
        with contextlib.suppress(OSError, StoreError):
            path = self.partition.files.locate(digest, serial)
            return path.stat().st_size if path is not None else 0
        return 0

    def _names(self) -> Digests:
        """The digests that name message files."""
        found: list[bytes] = []
        for folder in self.partition.files.folders():
            with contextlib.suppress(OSError):
                found.append(_digests(os.listdir(folder)))
        return np.frombuffer(b"".join(found), f"V{MID_OCTETS}")


def _digests(names: list[str]) -> bytes:
    """The digests that these are the names of; other names are left out."""
    joined = "".join([name for name in names if len(name) == 2 * MID_OCTETS])
    with contextlib.suppress(ValueError):
        found = bytes.fromhex(joined)
        if found.hex() == joined:               # `fromhex` takes blanks and capital letters, too
            return found
    return b"".join(_digests([name]) for name in names) if len(names) > 1 else b""


# In the background

def uncached(store: Store) -> Iterator[tuple[str, bytes | None]]:
    """The messages without cache records, on partitions that may have some; None after each of the parts in which they
    are looked for, so that the search can be left off there; the digest is empty at the end of each partition."""
    for name, partition in store.writable.items():
        if (partition.folder / "index" / UNCACHED).exists():
            for lost in lost_cached(partition):
                yield from ((name, digest) for digest in lost)
                yield name, None
            yield name, b""


def cache_one(store: Store, item: tuple[str, bytes | None]) -> int:
    """Look at one message file, and make its cache record."""
    partition, digest = store.partitions[item[0]], item[1]
    if digest is None:
        return 0
    if not digest:
        (partition.folder / "index" / UNCACHED).unlink(missing_ok=True)
        log.info("every message on partition %s has a cache record again", item[0])
        return 0
    try:
        record = partition.look_at_file(digest)
        cached = partition.serials.cached([record.serial])[0] if record is not None else None
        if record is not None and (cached is None or cached.digest != digest or cached.trace != record.trace):
            row = np.zeros(1, ROW)
            row["digest"], row["serial"] = digest, record.serial
            partition.serials.rebuild_cached(row[0])
    except StoreError as error:
        if error.problem is not Problem.CORRUPT:
            log.warning("the cache record of %s is made when it is needed: %s", digest.hex(), error)
        else:
            log.error("message file %s cannot be used: %s; bring it back from a backup", digest.hex(), error)
    return 1
