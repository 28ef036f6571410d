"""Message files of one partition brought to another: one copy there, whoever it is for.

What a message is stays as it is, octet for octet: its file there has the same content, and the same trace header if the
message shows one. Where the other partition has the content under another trace header, the message that shows its own
is a file for itself there, trace header and content together, named by the digest of both.

A file that has been brought is on disk, on record, and waits for the purge until records refer to it. So bringing them
can be cut off at any time, and need not be done again.
"""

import time
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from attrs import define, field

from store.errors import Problem, StoreError
from store.heads import renumbered
from store.index import Rows
from store.landing import Carried, Landing, Message, NotCarried, SideBySide, head_of, one_by_one, usable
from store.messagefiles import SPILL
from store.partition import Partition
from store.refs import MessageRecord
from store.staged import Staged
from store.standing import fits

TRIES = 10


@define(eq=False)
class Carrier:
    """Carries files from one partition to another; `side_by_side` see `Threads`."""

    source: Partition
    target: Partition
    side_by_side: SideBySide = one_by_one
    _landing: Landing = field(init=False)
    _heads: dict[int, int] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self._landing = Landing(self.target, self.side_by_side)

    @property
    def files(self) -> int:
        """How many it has copied."""
        return self._landing.files

    @property
    def octets(self) -> int:
        """How much it has copied."""
        return self._landing.octets

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
                self._landing.keep_if_full()
            self._landing.keep()
        finally:
            self._landing.drop()
        self._landing.hold(found, wanted)
        return found

    def _bring(self, message: Message) -> Carried:
        """Copy the message, unless it is there; the copies wait in the batch."""
        mid, skip = message
        record = self.source.refs.find(mid)
        if record is None:
            raise StoreError(Problem.CORRUPT, "A message cannot be read", f"nothing is known of {mid.hex()}")
        if self.source is self.target:          # it comes out of the past, and the file is there still
            if usable(self.target, mid) is None:
                raise StoreError(Problem.CORRUPT, "A message cannot be read", f"message file {mid.hex()} is missing")
            return Carried(mid, record.serial, skip)
        shows_trace = record.trace > 0 and skip == 0
        waiting = self._landing.batch.get(mid)
        if waiting is not None and waiting.trace == record.trace:
            return Carried(mid, waiting.serial, skip)
        if waiting is not None:
            self._landing.keep()
        known = usable(self.target, mid)
        if known is None and (not shows_trace or fits(self.target, mid, record.trace, record.size)):
            self._landing.add(staged := self._copy(mid, record))
            return Carried(mid, staged.serial, skip)
        if known is not None and not shows_trace:
            return Carried(mid, known.serial, known.trace)
        if known is not None and known.trace == record.trace and head_of(self.source, mid, record) == head_of(
                self.target, mid, known):
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
            waiting, known = self._landing.batch.get(staged.mid), usable(self.target, staged.mid)
            if waiting is None and known is None:
                staged.spill()
                self._landing.add(staged)
                return Carried(staged.mid, staged.serial, 0)
        except BaseException:
            staged.abort()
            raise
        staged.abort()
        if waiting is not None:
            return Carried(staged.mid, waiting.serial, 0)
        assert known is not None
        return Carried(staged.mid, known.serial, known.trace)


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

