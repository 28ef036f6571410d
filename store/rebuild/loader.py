"""The loader: puts mailboxes, as they are to be (`desired`), and message files into a partition.

Its callers are the start of a store that has lost databases, `onecopy reconstruct`, the plan of a rebuild, restore and
import, and the generator of test stores.
"""

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np
from attrs import define, evolve, field
from numpy.typing import NDArray

from mboxlist.engine.btree import Txn
from mboxlist.engine.bulk import Load
from mboxlist.engine.transact import transact
from mboxlist.entry import MailboxId
from mboxlist.table import MailboxList
from store.message.cacherecord import CachedMessage
from store.partition.messagereading import MID_OCTETS
from store.partition.partition import Partition
from store.partition.transactions import WriteTxn
from store.rebuild.desired import DesiredMailbox, enlist
from store.rebuild.emptying import drop_names
from store.rebuild.recount import recount_quota
from store.rebuild.referencepass import Gathered, Known
from store.tables.index import ROW, Rows, chunk_key, chunk_of_key, octets_of, split, with_trailer
from store.tables.quotatable import ALONE, LimitsTurn
from store.tables.references import STORED, MessageRecord

MESSAGES = 1000             # of one transaction
CHUNKS = 256                # chunks of records of one transaction
MAILBOXES = 64              # that are held at a time,
RECORDS = 50_000            # or fewer, when they have so many records
VOLUME = 256 << 20          # octets of log after which there is a checkpoint
FILES = 100_000             # records of message files that are given to a new table at a time
_PART = struct.Struct("<II")            # mailbox, records
_COUNT = struct.Struct("<I")

T = TypeVar("T")

KnownFile = tuple[bytes, MessageRecord, bytes]      # digest; what is to be known; the cache record as it is stored


@define(eq=False)
class Loader(ABC):
    """Puts mailboxes, as they are to be, into one partition. It has two ends: `EmptyLoader` fills a partition that
    nobody else has open, `liveloader.LiveLoader` changes one of a store that is in use."""

    partition: Partition

    def load(self, every: Iterable[DesiredMailbox], progress: Callable[[int], None] = lambda done: None) -> int:
        """Put them in; how many there were. `progress` gets how many are on the partition's disk.

        Raises StoreError DISK_FULL, UNAVAILABLE, OSError.
        """
        done = 0
        for batch in batches(every, lambda desired: 0 if desired.rows is None else len(desired.rows)):
            self.put(batch)
            done += len(batch)
            progress(done)
        return done

    @abstractmethod
    def put(self, batch: Sequence[DesiredMailbox]) -> None:
        """Put in mailboxes that fit into memory together."""


@define(eq=False)
class EmptyLoader(Loader):
    """Puts mailboxes into a partition that nobody else has open, and with `listed` into that list, but for those that
    it has already. Quota use is counted when all mailboxes are there; what is loaded twice is as if loaded once.

    `bulk`: there are no records, and mailboxes come in order of id; their records become a new table, which gets its
    place when all are there. `gathered` counts what records refer to, where the caller needs to know.
    """

    listed: MailboxList | None = None
    bulk: bool = False
    gathered: Gathered | None = None
    _logged: set[int] = field(init=False)       # mailboxes that have a log of expunged UIDs
    _new_index: Load | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._logged = self.partition.vanished.mailboxes()

    def prepare(self, epoch: int, last_serial: int, limits: dict[str, list[int]]) -> None:
        """The partition's epoch, from where arrival serials go on, and the limits of quota roots."""
        if self.partition.epoch != epoch or self.partition.serials.first_free() <= last_serial:
            self.partition.skip_to(epoch, last_serial)
        set_limits(self.partition, limits, ALONE)

    def load(self, every: Iterable[DesiredMailbox], progress: Callable[[int], None] = lambda done: None) -> int:
        """See Loader."""
        wanted = (desired for desired in every if not self._is_listed(desired))
        if not self.bulk:
            return super().load(wanted, progress)
        with Load.begin(self.partition.env.folder / self.partition.index.name, chunks_of) as self._new_index:
            done = super().load(wanted, progress)
            self._new_index.end()
            self.partition.env.exchange(self.partition.index, self._new_index.file)
        return done

    def put(self, batch: Sequence[DesiredMailbox]) -> None:
        """See Loader."""
        for desired in batch:
            self._put_records(desired)
        self.partition.transact(partial(self._put_figures, batch))
        if self.listed is not None:
            self.partition.flush()
            transact(self.listed.env, partial(_enlist_all, self.listed, batch))
            self.partition.unwritten.changed.update(desired.entry.id for desired in batch)
        tidy(self.partition)

    def finish(self, adopted: Iterable[Sequence[Path]] = ()) -> None:
        """All mailboxes and messages are there: count the quotas; `adopted` see `emptying`. Flushed."""
        recount_quota(self.partition)
        drop_names(self.partition, adopted)
        self.partition.flush()

    def _is_listed(self, desired: DesiredMailbox) -> bool:
        mailbox = desired.entry.id
        return self.listed is not None and (self.listed.find_id(mailbox) is not None
                                            or self.listed.deleted.find(mailbox) is not None)

    def _put_records(self, desired: DesiredMailbox) -> None:
        mailbox, rows = desired.entry.id, desired.rows
        if rows is None:
            return
        if self.gathered is not None:
            self.gathered.add(mailbox, rows)
        if self._new_index is not None:
            if len(rows):
                self._new_index.write(_PART.pack(mailbox, len(rows)), octets_of(rows))
            return
        there = {chunk_of_key(key)[1] for key, _ in self.partition.index.scan(
            chunk_key(mailbox, 0), chunk_key(MailboxId(mailbox + 1), 0))}
        chunks = dict(split(rows))
        work = [(number, chunks.get(number, rows[:0])) for number in sorted(there | chunks.keys())]
        for at in range(0, len(work), CHUNKS):
            self.partition.transact(partial(self._put_chunks, mailbox, work[at:at + CHUNKS]))

    @staticmethod
    def _put_chunks(mailbox: MailboxId, some: Sequence[tuple[int, Rows]], txn: WriteTxn) -> None:
        for number, rows in some:
            txn.put_chunk(mailbox, number, rows)

    def _put_figures(self, batch: Sequence[DesiredMailbox], txn: WriteTxn) -> None:
        partition = self.partition
        for desired in batch:
            mailbox = desired.entry.id
            if mailbox in self._logged:
                partition.vanished.forget(mailbox, txn.handle)
            txn.set_state(mailbox, None, evolve(desired.state, epoch=partition.epoch))
            for number, reader, flags in desired.own or ():
                txn.put_own(mailbox, number, reader, flags)
            if desired.uidls is not None:
                partition.uidls.forget(mailbox, txn.handle)
                partition.uidls.put(mailbox, desired.uidls, txn.handle)


def _enlist_all(mailboxes: MailboxList, batch: Sequence[DesiredMailbox], txn: Txn) -> None:
    for desired in batch:
        enlist(mailboxes, desired, txn)


def batches(every: Iterable[T], records: Callable[[T], int]) -> Iterator[list[T]]:
    """As many as are held at a time; `records` is how many one of them has."""
    held: list[T] = []
    count = 0
    for each in every:
        held.append(each)
        count += records(each)
        if len(held) >= MAILBOXES or count >= RECORDS:
            yield held
            held, count = [], 0
    if held:
        yield held


def set_limits(partition: Partition, limits: dict[str, list[int]], turn: LimitsTurn) -> None:
    """Have the partition know these limits of octets and messages."""
    for root, (octets, messages) in limits.items():
        partition.transact(lambda txn, root=root, octets=octets, messages=messages:     # type: ignore[misc]
                           partition.quotas.set_limits(root, octets, messages, txn.handle, turn))


def tidy(partition: Partition) -> None:
    """Keep the log short."""
    partition.env.checkpoint(VOLUME)
    if partition.settings.log_archive is None:
        partition.env.drop_logs(most=2 * partition.settings.snapshot_logs)


def never_again(mailboxes: MailboxList, mailbox: int, validity: int) -> None:
    """Have the list give out neither this id and UIDVALIDITY nor smaller ones; on disk."""
    transact(mailboxes.env, lambda txn: mailboxes.skip_identities(MailboxId(mailbox), validity, txn))
    mailboxes.env.flush()


# Message files

def load_messages(partition: Partition, messages: Sequence[KnownFile]) -> int:
    """Have the partition know these message files, with their references; how many there were. The more at a time, the
    quicker: each table is written in its own order.

    Raises StoreError DISK_FULL, UNAVAILABLE.
    """
    for some in _some(sorted(messages, key=lambda message: message[1].serial)):
        partition.transact(lambda txn, some=some: _write_cached(txn, some))     # type: ignore[misc]
        tidy(partition)
    load_records(partition, sorted((digest, record) for digest, record, _ in messages))
    return len(messages)


def load_records(partition: Partition, records: Sequence[tuple[bytes, MessageRecord]]) -> None:
    """What is to be known of message files; of one that was released, with its place on the purge list."""
    def write(txn: WriteTxn, some: Sequence[tuple[bytes, MessageRecord]]) -> None:
        for digest, record in some:
            (txn.refs.park if record.released else txn.refs.write)(digest, record, txn.handle)

    for some in _some(records):
        partition.transact(lambda txn, some=some: write(txn, some))     # type: ignore[misc]
        tidy(partition)


def load_references(partition: Partition, gathered: Gathered) -> None:
    """Count what these records refer to: message files that the partition knows."""
    known = Known.of(partition)
    load_records(partition, [(known.digests[at].tobytes(), evolve(known.record(at), references=references, check=check))
                             for at, references, check in known.differing(gathered.all())])


def _write_cached(txn: WriteTxn, some: Sequence[KnownFile]) -> None:
    for _, record, cached in some:
        txn.partition.serials.write_cached(record.serial, CachedMessage.from_bytes(cached), txn.handle)


def _some(items: Sequence[T]) -> Iterator[Sequence[T]]:
    return (items[at:at + MESSAGES] for at in range(0, len(items), MESSAGES))


# What goes into a table that is made beside the others (`mboxlist.engine.bulk`)

def chunks_of(stream: BinaryIO) -> Iterator[tuple[bytes, bytes]]:
    """The rows of the index that these are."""
    while head := stream.read(_PART.size):
        mailbox, count = _PART.unpack(head)
        rows = np.frombuffer(stream.read(count * ROW.itemsize), ROW)
        for number, part in split(rows):
            yield chunk_key(MailboxId(mailbox), number), with_trailer(octets_of(part))


def give_files(load: Load, digests: NDArray[Any], stored: NDArray[Any]) -> None:
    """Digests of message files, in order, and their records, which are STORED. Raises OSError."""
    for at in range(0, len(digests), FILES):
        some = digests[at:at + FILES]
        load.write(_COUNT.pack(len(some)), some.tobytes(), stored[at:at + FILES].tobytes())


def files_of(stream: BinaryIO) -> Iterator[tuple[bytes, bytes]]:
    """The rows of messages.db that these are."""
    while head := stream.read(_COUNT.size):
        count, = _COUNT.unpack(head)
        yield from zip(*(np.frombuffer(stream.read(count * octets), f"V{octets}").tolist()
                         for octets in (MID_OCTETS, STORED.itemsize)), strict=True)
