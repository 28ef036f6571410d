"""What a partition keeps by arrival serial: the serials that it gives out, and the cache record of each message file.

An arrival serial is a number that each message file gets when it comes. No other file ever gets it, in any process. The
cache record is what clients most often ask about the message, ready to be sent (`store.message.cacherecord`).
"""

import contextlib
import struct
import threading
from bisect import bisect, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from operator import itemgetter
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from mboxlist.engine.btree import Table, Txn
from mboxlist.engine.kv import Env
from mboxlist.engine.transact import Deadlock, Unflushed, transact
from store.errors import NotAtOnce, Problem, StoreError, disk_problem
from store.message import cacherecord
from store.message.cachedbatch import CachedBatch, CutBatch, listed_of_rows
from store.message.cacherecord import CachedMessage
from store.message.fields import Lister
from store.message.mime import parse
from store.partition.messagefiles import MessageFiles
from store.problems import refused
from store.tables.references import MessageRecord, References

T = TypeVar("T")

META_KEY = b"\x00\x00\x00\x00"
META = struct.Struct("<IQI")           # epoch; first arrival serial not given out; format of what is on disk
FORMAT = 8                              # 7: no record has a balance. 6: no chunk is divided. 5: no store.idx has an
                                        # account. 4: no table has a generation. 3: each list of those that wait for the
                                        # purge has one digest. 2: no expunged record is counted. 1, without the field
                                        # in META: records of 88 octets. What is written
READABLE = (2, 3, 4, 5, 6, 7, FORMAT)   # to becomes one of FORMAT; of one before WITH_ACCOUNTS every store.idx is
WITH_ACCOUNTS = 6                       # looked at
READY = 128                             # files that are made ready at a time
HELD = 250                              # cache records that are in memory at a time: of more, it would be fresh memory
RUN = 3                                 # serials that a run of them has at least, on average, to be read one by one
SERIALS = 4096                          # arrival serials that a process takes at a time


def meta_of(stored: bytes, place: str) -> tuple[int, int, int]:
    """The value stored under META_KEY of the states: epoch, first arrival serial that has not been given out, format.
    Raises StoreError UNAVAILABLE, which names the place, when another version of onecopy wrote it."""
    epoch, first, form = META.unpack(stored) if len(stored) == META.size else (0, 0, 1)
    if form not in READABLE:
        raise StoreError(Problem.UNAVAILABLE, f"{place} has the format {form} of another version of onecopy; this one "
                                              f"knows format {FORMAT}")
    return epoch, first, form


class Owner(Protocol):
    """The owner of the serials: a partition."""

    env: Env
    states: Table
    refs: References
    files: MessageFiles

    def flush_here(self) -> None:
        """See `Partition.flush_here`."""

    def flush(self) -> None:
        """See Partition."""

    def transact(self, work: Callable[[Any], Any], /) -> Any:
        """See Partition."""


class Serials:
    """See the module's text. `cache` has the cache records."""

    def __init__(self, partition: Owner, cache: Table) -> None:
        self._partition = partition
        self._cache = cache
        self._serials: Iterator[int] = iter(range(0))
        self._blocks: list[int] = []        # the first of each block of serials that this process took
        self._lock = threading.Lock()

    def make_ready(self) -> None:
        """Make files for messages to come. For a thread. Raises StoreError."""
        self._partition.files.make_ready(self.next_serial() for _ in range(READY))

    def next_serial(self) -> int:
        """An arrival serial that was never given out before, in any process. Raises StoreError (also NotAtOnce)."""
        with self._lock:
            serial = next(self._serials, None)
        if serial is None:              # a thread may wait here during a write freeze, and must hold no lock
            with refused():
                serial = transact(self._partition.env, self._take_serials)
            try:
                self._partition.flush_here()     # else they would be given out again after a crash
            except Unflushed as error:  # nothing that anybody has asked for is done
                raise disk_problem(error) from error
            with self._lock:
                self._serials = chain(range(serial + 1, serial + SERIALS), self._serials)
                insort(self._blocks, serial)
        return serial

    def first_free(self, txn: Txn = None) -> int:
        """The first arrival serial that no process has taken."""
        return int(META.unpack(self._partition.states.get(META_KEY, txn) or b"")[1])

    def _take_serials(self, txn: Txn) -> int:
        epoch, first, _ = META.unpack(self._partition.states.get_to_change(META_KEY, txn) or b"")
        self._partition.states.put(META_KEY, META.pack(epoch, first + SERIALS, FORMAT), txn)
        return int(first)

    def skip(self, last: int) -> None:
        """Give out only arrival serials above this one from now on. On disk."""
        self._partition.transact(lambda txn: self._skip(last, txn.handle))
        self._partition.flush()
        self.forget_taken()

    def _skip(self, last: int, txn: Txn) -> None:
        epoch, first, form = META.unpack(self._partition.states.get_to_change(META_KEY, txn) or b"")
        self._partition.states.put(META_KEY, META.pack(epoch, max(first, last + 1), form), txn)

    def took(self, serial: int) -> bool:
        """Whether this process gave out that serial, or may still do so."""
        at = bisect(self._blocks, serial)
        return at > 0 and serial < self._blocks[at - 1] + SERIALS

    def forget_taken(self) -> None:
        """Give out none of the serials that this process has taken so far."""
        with self._lock:
            self._serials = iter(range(0))

    def committed_digest(self, serial: int) -> bytes | None:
        """The digest of the message file with that serial, if it was committed."""
        data = self._cache.get(_serial_key(serial))
        if data is None:
            return None
        digest = data[:32]                     # in records of every version
        record = self._partition.refs.find(digest, raw=True)
        return digest if record is not None and record.serial == serial else None

    def write_cached(self, serial: int, cached: CachedMessage, txn: Txn) -> None:
        """Keep the cache record of an arrival."""
        self._cache.put(serial.to_bytes(8, "big"), cached.data, txn)

    def write_all_cached(self, arrivals: Iterable[tuple[int, CachedMessage]], txn: Txn) -> None:
        """As `write_cached`, for many records by serial. They come in an order that has nothing to do with their
        serials.

        Berkeley DB leaves a page full when a row comes behind the last one of the table, and splits it in halves for
        any other row. So records at the end of the table are written in ascending order. In the middle of the table,
        when another process has taken later serials, ascending order would leave each page half full, and any other
        order fills pages better.
        """
        found = list(arrivals)
        stored = self._partition.states.glance(META_KEY) if len(found) > 1 else None
        if stored is not None and found[0][0] >= META.unpack(stored)[1] - SERIALS:
            found.sort(key=itemgetter(0))
        for serial, cached in found:
            self.write_cached(serial, cached, txn)

    def forget_cached(self, serial: int, txn: Txn) -> None:
        """Remove the cache record: the message file has been purged."""
        self._cache.delete(_serial_key(serial), txn)

    def cached(self, serials: Iterable[int], txn: Txn = None) -> list[CachedMessage | None]:
        """The cache records of arrivals, in the order asked for; None where there is none of this version. Who has
        written any in a transaction must also read in that transaction."""
        return [_cached(value) for value in self._values(list(serials), txn)]

    def batch(self, serials: NDArray[np.uint64], digests: NDArray[np.void], *, fields: bool) -> CachedBatch | None:
        """The cache records of these arrivals, whose message files have these digests, if all are there and good; their
        header fields only if wanted."""
        found = None if fields else self._one_by_one(serials, digests, CutBatch.of_rows)
        return found or CachedBatch.of(self._values(serials.tolist()), digests)

    def listed(self, serials: NDArray[np.uint64], digests: NDArray[np.void], lister: Lister) -> list[bytes] | None:
        """These header fields of the messages with these serials, whose files have these digests, from their cache
        records. None if that is the wrong way, or a record is missing or not good."""
        return self._one_by_one(serials, digests, partial(listed_of_rows, lister))

    def _one_by_one(self, serials: NDArray[np.uint64], digests: NDArray[np.void], cut: Callable[[
            Iterable[tuple[bytes, bytes]], Sequence[bytes], Sequence[bytes]], T | None]) -> T | None:
        """What `cut` makes of the stored records, with their keys and digests; None if they are not beside each other.
        It takes what it needs of a record before it asks for the next one: the memory of many together would cost most.
        """
        starts = _runs(serials)
        if starts is None:
            return None
        keys = serials.astype(">u8").view("V8").tolist()             # as `_serial_key` makes them
        ends = [*starts[1:], len(keys)]
        with contextlib.suppress(*Deadlock), self._cache.reading() as rows:
            stored = chain.from_iterable(islice(rows(keys[at]), end - at) for at, end in zip(starts, ends, strict=True))
            return cut(stored, keys, digests.tolist())
        return None

    def _values(self, serials: Sequence[int], txn: Txn = None) -> list[bytes | None]:
        """The cache records in their stored form. Where most serials follow one another, as in a mailbox that a few
        connections have filled, they are read in one pass in the order of their serials."""
        cache = self._cache
        if txn is None and len(serials) > 1:
            ascending = np.sort(np.array(serials, np.uint64))
            if _runs(ascending) is not None:
                with contextlib.suppress(*Deadlock):     # which `get` asks again after
                    found = cache.pick(ascending.astype(">u8").view("V8").tolist())      # as `_serial_key` makes them
                    order = ascending.tolist()
                    if order == serials:
                        return found
                    places = dict(zip(order, found, strict=True))
                    return [places[serial] for serial in serials]
        return [cache.get(serial.to_bytes(8, "big"), txn) for serial in serials]

    def stored_cached(self, serials: Sequence[int]) -> list[bytes | None]:
        """The cache records of arrivals, whose serials ascend, as they are stored."""
        return self._cache.pick([_serial_key(serial) for serial in serials])

    def are_cached(self, serials: NDArray[np.uint64], digests: NDArray[np.void], traces: NDArray[Any]
                   ) -> NDArray[np.bool_]:
        """Whether each of these arrivals has a cache record that can be read and belongs to its own message file."""
        order = np.argsort(serials)
        sound = np.empty(len(serials), np.bool_)
        keys = serials[order].astype(">u8").view("V8").tolist()         # as `_serial_key` makes them
        values = chain.from_iterable(self._cache.pick(keys[at:at + HELD]) for at in range(0, len(keys), HELD))
        sound[order] = cacherecord.are_sound(values, digests.take(order), traces[order])
        return sound

    def rebuild_cached(self, row: np.void) -> CachedMessage:
        """The cache record of a message, made from its file and kept. During a write freeze it is not kept, since
        readers must not wait. Raises StoreError CORRUPT."""
        digest = bytes(row["digest"])
        record = self._partition.refs.find(digest)
        if record is None:
            raise StoreError(Problem.CORRUPT, "The message cannot be read", f"no record of message file {digest.hex()}")
        cached = self.render_cached(digest, record)
        if not self._partition.env.quiesced:
            with contextlib.suppress(NotAtOnce):
                self._partition.transact(lambda txn: self.write_cached(record.serial, cached, txn.handle))
        return cached

    def render_cached(self, digest: bytes, record: MessageRecord) -> CachedMessage:
        """The cache record of a message file, made from it. Raises StoreError CORRUPT."""
        with self._partition.files.open(digest, record.serial, record.trace, record.size - record.trace) as file:
            return cacherecord.render(parse(file.read, file.size), digest, record.trace)


def _cached(value: bytes | None) -> CachedMessage | None:
    try:
        return None if value is None else CachedMessage.from_bytes(value)
    except ValueError:          # an earlier version's: made again as a lost one is
        return None


def _runs(serials: NDArray[np.uint64]) -> list[int] | None:
    """Where runs of consecutive serials begin; None when the runs are short: then each serial is looked for by itself.
    """
    steps = np.flatnonzero(np.diff(serials) != 1)
    return [0, *(steps + 1).tolist()] if len(steps) <= len(serials) // RUN else None


def _serial_key(serial: int) -> bytes:
    return serial.to_bytes(8, "big")
