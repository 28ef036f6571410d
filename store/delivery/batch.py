"""Message files that come to a partition from anywhere: they are put on disk and on record many at a time, one copy
each.

A file that has come is on disk and on record, and waits for the purge until records refer to it. So this can be cut off
at any time, and what has come need not come again.
"""

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from attrs import define, evolve, field, frozen

from mboxlist.entry import MailboxId
from store.delivery.durable import place_all
from store.delivery.replacement import LostFile, let_go, put_back, require_fit
from store.errors import Problem, StoreError
from store.partition.messagefiles import Volume
from store.partition.partition import Partition
from store.partition.staged import Staged
from store.partition.transactions import WriteTxn
from store.settings import SYNC_LEVELS
from store.tables.index import Rows, chunk_key, decode, take
from store.tables.references import MessageRecord, tally

SIDE_BY_SIDE = 8
FILES, OCTETS = 64, 32 << 20        # so many message files and octets are synced and put on record together

Message = tuple[bytes, int]         # digest, and how many octets at the head of the file are not the message's
SideBySide = Callable[[list[Callable[[], None]]], None]


class NotCopied(Exception):
    """A file on the partition is not as it was any more: copy it once more."""


@frozen
class CopiedFile:
    """A message on the partition that it came to: these fields are in its records there."""

    digest: bytes
    serial: int
    header_length: int


def one_by_one(work: list[Callable[[], None]]) -> None:
    """Do it one after the other, where no threads share the work."""
    for each in work:
        each()


def in_threads(work: list[Callable[[], None]]) -> None:
    """Do several at the same time; raises what one of them raised."""
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        for each in [pool.submit(one) for one in work]:
            each.result()


@define(eq=False)
class BatchStore:
    """Files that are on their way to a partition. `octets` and `files` say how much has come.

    `side_by_side`: see `Threads`. `most`: how many are put on record together. `at_once`: with one sync of the file
    system, which costs least for many files. `overtaken` gets a file whose content somebody else has stored meanwhile,
    perhaps behind another trace header, and ends it; a caller that uses `hold` learns of it there.
    """

    target: Partition
    side_by_side: SideBySide = one_by_one
    octets: int = 0
    files: int = 0
    most: int = FILES
    at_once: bool = False
    overtaken: Callable[[Staged], None] = Staged.abort
    held: int = field(default=0, init=False)        # octets of the batch
    batch: dict[bytes, Staged] = field(factory=dict, init=False)
    _volume: Volume | None = field(default=None, init=False)

    def begin(self) -> None:
        """Note that a file is about to be written."""
        if self.at_once and self._volume is None:
            self._volume = Volume(self.target.files.folder)

    def add(self, staged: Staged) -> None:
        """Add a file that has come whole; `keep` must follow. Raises StoreError CORRUPT, and then the file is removed;
        DISK_FULL, UNAVAILABLE."""
        try:
            require_fit(self.target, staged)
        except LostFile:
            if seems_usable(self.target, staged.digest) is None and not let_go(self.target, staged.digest):
                staged.abort()          # else it has come behind another header meanwhile, or nobody misses it
                raise
        if self.at_once:
            staged.spill()
            staged.close()
        self.batch[staged.digest] = staged
        self.held += staged.size

    def keep_if_full(self) -> None:
        """As `keep`, when there is enough to be worth a sync."""
        if len(self.batch) >= self.most or self.held >= OCTETS:
            self.keep()

    def keep(self) -> None:
        """Put on disk and on record what has come; a file that had been lost gets its place. Raises StoreError
        DISK_FULL, UNAVAILABLE."""
        batch = [staged for _, staged in sorted(self.batch.items())]
        if not batch:
            return
        if self.target.settings.sync == SYNC_LEVELS[-1]:
            for staged in batch:
                if not self.at_once:
                    staged.spill()
                staged.on_disk = True
        elif self._volume is not None:
            self._volume.sync()
            for staged in batch:
                staged.on_disk = True
        else:
            self.side_by_side([staged.sync for staged in batch])
            self.target.files.sync_names(min(staged.names_since for staged in batch))
        now = int(time.time())

        def work(txn: WriteTxn) -> list[Staged]:
            ours = []
            for staged in batch:
                usable = seems_usable(self.target, staged.digest, txn)
                if usable is not None and staged.digest not in self.target.files.came_again:
                    continue
                known = txn.refs.find_to_change(staged.digest, txn.handle, raw=True)
                if usable is None and known is not None and known.references:
                    put_back(self.target, staged, txn)
                if known is not None:
                    txn.refs.write_as_new(staged.digest, known, txn.handle)
                if usable is None and (known is None or not known.references):
                    record = MessageRecord(staged.serial, 0, staged.size, staged.trace, now)
                    txn.refs.park(staged.digest, record, txn.handle)
                    ours.append(staged)
            self.target.serials.write_all_cached([(staged.serial, staged.cached) for staged in ours], txn.handle)
            return ours

        for staged in self.target.transact(work):
            staged.committed = True
        self.target.flush()
        self.batch.clear()
        self.held = 0
        for staged in batch:
            if staged.committed:
                staged.close()
                place_all([staged])
                self.octets += staged.size
                self.files += 1
        for staged in batch:
            if not staged.committed:
                self.overtaken(staged)

    def drop(self) -> None:
        """Forget the files that have come and are not on record."""
        for staged in self.batch.values():
            if not staged.committed:
                staged.abort()
        self.batch.clear()
        self.held = 0

    def hold(self, found: Mapping[Message, CopiedFile], wanted: Mapping[Message, int]) -> None:
        """Keep files to which nothing refers yet from being purged too early. Raises NotCopied."""
        last: dict[bytes, tuple[int, int]] = {}
        for message, copied in found.items():
            when = max(wanted[message], last.get(copied.digest, (0, 0))[1])
            last[copied.digest] = copied.serial, when

        def work(txn: WriteTxn) -> None:
            for digest, (serial, when) in sorted(last.items()):
                record = usable(self.target, digest, txn)
                if record is None or record.serial != serial:
                    raise NotCopied
                if not record.references and record.released < when:
                    txn.refs.park(digest, evolve(record, released=when), txn.handle)

        digests = sorted(last)
        if any((record := self.target.refs.find(digest)) is None or record.serial != last[digest][0]
               or not record.references and record.released < last[digest][1] for digest in digests):
            self.target.transact(work)


def usable(partition: Partition, digest: bytes, txn: WriteTxn | None = None) -> MessageRecord | None:
    """The partition's record of that content, if its file is there and as long as it should be. Within a transaction
    this stays so. Without the file no answer may say that a message is kept, even if other records refer to it. Raises
    StoreError UNAVAILABLE when the disk does not say whether the file is there, or what it has."""
    record = partition.refs.find(digest) if txn is None else txn.refs.find_to_change(digest, txn.handle)
    if record is None or not partition.files.is_whole(digest, record.serial, record.size):
        return None
    return record


def seems_usable(partition: Partition, digest: bytes, txn: WriteTxn | None = None) -> MessageRecord | None:
    """As `usable`, for a caller that has the content at hand: a file that cannot be looked at is replaced by it, too.
    """
    try:
        return usable(partition, digest, txn)
    except StoreError as error:
        if error.problem is not Problem.UNAVAILABLE:
            raise
        return None


def head_of(partition: Partition, digest: bytes, record: MessageRecord) -> bytes:
    """The trace header at the head of a message file. Raises StoreError CORRUPT, UNAVAILABLE."""
    with partition.files.open(digest, record.serial, 0, record.trace) as file:
        return file.read(0, record.trace)


def refer(txn: WriteTxn, mailbox: MailboxId, rows: Rows, *, seen: bool = False) -> None:
    """Count the references of translated records. Files that were `seen` just now, and that nobody can have purged
    since, are not looked at again. Raises NotCopied when a file is not as it was any more."""
    serials = dict(zip(rows["digest"].tolist(), rows["serial"].tolist(), strict=True))
    for digest, count, check in tally(mailbox, rows):
        record = txn.refs.find_to_change(digest, txn.handle)
        if record is None or record.serial != serials[digest] or not (seen and record.references) and not (
                txn.partition.files.is_whole(digest, record.serial, record.size)):
            raise NotCopied
        txn.refs.add(digest, count, check, txn.handle)


def write_chunks(txn: WriteTxn, mailbox: MailboxId, chunks: dict[int, Rows]) -> None:
    """Write these chunks with these records, and count their references. Raises NotCopied."""
    for number, rows in chunks.items():
        value = txn.partition.index.get_to_change(chunk_key(mailbox, number), txn.handle)
        old = decode(value) if value is not None else rows[:0]
        refer(txn, mailbox, _without(rows, old))
        gone = _without(old, rows)
        for digest, count, check in tally(mailbox, gone):
            txn.refs.release(digest, count, check, txn.handle)
        if value is not None or len(rows):
            txn.put_chunk(mailbox, number, rows)


def _without(rows: Rows, others: Rows) -> Rows:
    """The records that are not among the others, by UID and message."""
    known = set(zip(others["uid"].tolist(), others["digest"].tolist(), strict=True))
    uses = zip(rows["uid"].tolist(), rows["digest"].tolist(), strict=True)
    return take(rows, np.array([use not in known for use in uses], np.bool_))
