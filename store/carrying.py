"""Message files of one partition brought to another: one copy there, whoever it is for.

What a message is stays as it is, octet for octet: its file there has the same content, and the same trace header if the
message shows one. Where the other partition has the content under another trace header, the message that shows its own
is a file for itself there, trace header and content together, named by the digest of both.

A file that has been brought is on disk, on record, and waits for the purge until records refer to it. So bringing them
can be cut off at any time, and need not be done again.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from attrs import define, evolve, field, frozen

from mboxlist.entry import MailboxId
from store.errors import Problem, StoreError
from store.heads import renumbered
from store.index import Rows
from store.messagefiles import SPILL, Staged
from store.partition import Partition
from store.refs import MessageRecord, tally
from store.settings import SYNC_LEVELS
from store.txn import WriteTxn

log = logging.getLogger(__name__)

TRIES = 10
SIDE_BY_SIDE = 8
FILES, OCTETS = 64, 32 << 20        # message files, and what they have, that are synced and put on record together

Message = tuple[bytes, int]         # digest, and the octets at the head of the file that are not the message's
SideBySide = Callable[[list[Callable[[], None]]], None]


class NotCarried(Exception):
    """A file is no longer on the other partition as it was: carry once more."""


@frozen
class Carried:
    """What a message is on the other partition: these fields of its records there."""

    mid: bytes
    serial: int
    skip: int


def one_by_one(work: list[Callable[[], None]]) -> None:
    """Where there are no threads to share the work."""
    for each in work:
        each()


def in_threads(work: list[Callable[[], None]]) -> None:
    """Several at the same time; raises what one of them raised."""
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        for each in [pool.submit(one) for one in work]:
            each.result()


@define(eq=False)
class Carrier:
    """Carries files from one partition to another. `octets` is how much it has copied, `side_by_side` see `Threads`."""

    source: Partition
    target: Partition
    side_by_side: SideBySide = one_by_one
    octets: int = 0
    files: int = 0
    _batch: dict[bytes, Staged] = field(factory=dict, init=False)
    _heads: dict[int, int] = field(factory=dict, init=False)

    def heads(self, rows: Rows) -> dict[int, int]:
        """The numbers that the header fields of these records' own have on the target, by those that they have here.

        Raises StoreError CORRUPT when nothing is known of them, LIMIT.
        """
        new = {number: self.source.heads.find(number) for number in np.unique(rows["head"]).tolist()
               if number and number not in self._heads}
        if new:
            there = self.target.transact(lambda txn: txn.partition.heads.numbers(new.values(), txn.handle))
            self._heads.update((number, there[octets]) for number, octets in new.items())
        return self._heads

    def carry(self, wanted: Mapping[Message, int]) -> dict[Message, Carried]:
        """See that the target has these messages; what they are there. For a thread: it may take long.

        A file that nothing on the target refers to stays there for the purge delay after the Unix time given with it.
        Raises StoreError CORRUPT for a message that the source cannot give, DISK_FULL, UNAVAILABLE.
        """
        found: dict[Message, Carried] = {}
        try:
            for message in sorted(wanted):
                found[message] = self._bring(message)
                if len(self._batch) >= FILES or sum(staged.size for staged in self._batch.values()) >= OCTETS:
                    self._keep()
            self._keep()
        finally:
            for staged in self._batch.values():
                if not staged.committed:
                    staged.abort()
            self._batch.clear()
        self._hold(found, wanted)
        return found

    def _bring(self, message: Message) -> Carried:
        """Copy the message, unless it is there; the copies wait in the batch."""
        mid, skip = message
        record = self.source.refs.find(mid)
        if record is None:
            raise StoreError(Problem.CORRUPT, "A message cannot be read", f"nothing is known of {mid.hex()}")
        shows_trace = record.trace > 0 and skip == 0
        waiting = self._batch.get(mid)
        if waiting is not None and waiting.trace == record.trace:
            return Carried(mid, waiting.serial, skip)
        if waiting is not None:
            self._keep()
        known = usable(self.target, mid)
        if known is None:
            self._batch[mid] = staged = self._copy(mid, record)
            return Carried(mid, staged.serial, skip)
        if not shows_trace:
            return Carried(mid, known.serial, known.trace)
        if known.trace == record.trace and _head(self.source, mid, record) == _head(self.target, mid, known):
            return Carried(mid, known.serial, 0)
        return self._bring_whole(mid, record)

    def _copy(self, mid: bytes, record: MessageRecord) -> Staged:
        self.target.check_room()
        cached, = self.source.cached([record.serial])
        with self.source.files.open(mid, record.serial, 0, record.size) as file:
            if cached is None or cached.mid != mid or cached.trace != record.trace:
                cached = self.source.cached_anew(mid, record)
            return Staged.copied(self.target.files, self.target.next_serial(), file, mid, record.trace, cached)

    def _bring_whole(self, mid: bytes, record: MessageRecord) -> Carried:
        """The message with its trace header as a content of its own."""
        self.target.check_room()
        staged = Staged(self.target.files, self.target.next_serial(), b"", record.size)
        try:
            with self.source.files.open(mid, record.serial, 0, record.size) as file:
                while data := file.read(staged.size, SPILL):
                    staged.write(data)
            staged.finish()
            waiting, known = self._batch.get(staged.mid), usable(self.target, staged.mid)
            if waiting is None and known is None:
                staged.spill()
                self._batch[staged.mid] = staged
                return Carried(staged.mid, staged.serial, 0)
        except BaseException:
            staged.abort()
            raise
        staged.abort()
        if waiting is not None:
            return Carried(staged.mid, waiting.serial, 0)
        assert known is not None
        return Carried(staged.mid, known.serial, known.trace)

    def _keep(self) -> None:
        """Have the copies on disk, and on record."""
        batch = [staged for _, staged in sorted(self._batch.items())]
        if not batch:
            return
        if self.target.settings.sync == SYNC_LEVELS[-1]:
            for staged in batch:
                staged.spill()
                staged.on_disk = True
        else:
            self.side_by_side([staged.sync for staged in batch])
            self.target.files.sync_names()
        now = int(time.time())

        def work(txn: WriteTxn) -> list[Staged]:
            ours = []
            for staged in batch:
                if usable(self.target, staged.mid, txn) is None:
                    record = MessageRecord(staged.serial, 0, staged.size, staged.trace, now)
                    txn.refs.park(staged.mid, record, txn.handle)
                    self.target.write_cached(staged.serial, staged.cached, txn.handle)
                    ours.append(staged)
            return ours

        for staged in self.target.transact(work):
            staged.committed = True
        self.target.flush()
        for staged in batch:
            if staged.committed:
                staged.close()
                _place(staged)
                self.octets += staged.size
                self.files += 1
            else:
                staged.abort()      # another process brought the same; what this one found is looked at by `_hold`
        self._batch.clear()

    def _hold(self, found: dict[Message, Carried], wanted: Mapping[Message, int]) -> None:
        """See that what nothing refers to yet is not purged too early. Raises NotCarried."""
        last: dict[bytes, tuple[int, int]] = {}
        for message, carried in found.items():
            when = max(wanted[message], last.get(carried.mid, (0, 0))[1])
            last[carried.mid] = carried.serial, when

        def work(txn: WriteTxn) -> None:
            for mid, (serial, when) in sorted(last.items()):
                record = usable(self.target, mid, txn)
                if record is None or record.serial != serial:
                    raise NotCarried
                if not record.references and record.released < when:
                    txn.refs.park(mid, evolve(record, released=when), txn.handle)

        mids = sorted(last)
        if any((record := self.target.refs.find(mid)) is None or record.serial != last[mid][0]
               or not record.references and record.released < last[mid][1] for mid in mids):
            self.target.transact(work)


def usable(partition: Partition, mid: bytes, txn: WriteTxn | None = None) -> MessageRecord | None:
    """What the partition knows of that content, if it has its file; within a transaction it stays so."""
    record = partition.refs.find(mid) if txn is None else txn.refs.find_to_change(mid, txn.handle)
    if record is not None and not record.references and partition.files.locate(mid, record.serial) is None:
        return None
    return record


def _place(staged: Staged) -> None:
    try:
        staged.place()
    except OSError:
        log.exception("message %s keeps its name in staging", staged.mid.hex())


def _head(partition: Partition, mid: bytes, record: MessageRecord) -> bytes:
    with partition.files.open(mid, record.serial, 0, record.trace) as file:
        return file.read(0, record.trace)


def messages_of(rows: Rows) -> Iterable[Message]:
    """The messages that these records refer to."""
    return zip(rows["mid"].tolist(), rows["skip"].tolist(), strict=True)


def translated(rows: Rows, found: Mapping[Message, Carried], heads: Mapping[int, int]) -> Rows:
    """The records as they are on the other partition."""
    there = [found[message] for message in messages_of(rows)]
    new = renumbered(rows, heads)
    if there:
        new["mid"] = np.frombuffer(b"".join([carried.mid for carried in there]), rows.dtype["mid"])
        new["serial"] = [carried.serial for carried in there]
        new["skip"] = [carried.skip for carried in there]
    return new


def refer(txn: WriteTxn, mailbox: MailboxId, rows: Rows) -> None:
    """Count the references of translated records. Raises NotCarried when a file is no longer as it was."""
    serials = dict(zip(rows["mid"].tolist(), rows["serial"].tolist(), strict=True))
    for mid, count, check in tally(mailbox, rows):
        record = usable(txn.partition, mid, txn)
        if record is None or record.serial != serials[mid]:
            raise NotCarried
        txn.refs.add(mid, count, check, txn.handle)


def carry_rows(carrier: Carrier, pieces: Sequence[Rows], until: int | None = None) -> list[Rows]:
    """The records as they will be on the other partition, where their messages are when this returns.

    Raises what `Carrier.carry` raises.
    """
    when = int(time.time()) if until is None else until
    for _ in range(TRIES):
        try:
            found = carrier.carry({message: when for rows in pieces for message in messages_of(rows)})
        except NotCarried:
            continue
        return [translated(rows, found, carrier.heads(rows)) for rows in pieces]
    raise StoreError(Problem.BUSY, detail="the same messages come and go on the other partition")

