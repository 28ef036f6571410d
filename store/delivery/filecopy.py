"""Copies message files of one partition to another: one copy there, whoever it is for.

A message stays as it is, octet for octet: its file there has the same content, and the same trace header if the message
shows one. If the other partition has the content under another trace header, the message is a file of its own there,
trace header and content together, named by the digest of both.
"""

import time
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from attrs import define, field

from store.delivery.batch import BatchStore, CopiedFile, Message, NotCopied, SideBySide, head_of, one_by_one, usable
from store.delivery.replacement import fits
from store.errors import Problem, StoreError
from store.partition.messagereading import SPILL
from store.partition.partition import Partition
from store.partition.staged import Staged
from store.tables.index import Rows
from store.tables.privateheaders import renumbered
from store.tables.references import MessageRecord

TRIES = 10


@define(eq=False)
class FileCopier:
    """Copies files from one partition to another. `side_by_side`: see `Threads`."""

    source: Partition
    target: Partition
    side_by_side: SideBySide = one_by_one
    incoming: BatchStore = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.incoming = BatchStore(self.target, self.side_by_side)

    def numbered(self, rows: Rows) -> Rows:
        """These records, whose messages are on the target by now, with the numbers that their own header fields have
        there.

        Raises StoreError CORRUPT when the source has no fields of such a number, LIMIT.
        """
        fields = {number: self.source.private_headers.find(number) for number in np.unique(rows["head"]).tolist()
                  if number}
        there = self.target.transact(lambda txn: txn.partition.private_headers.numbers_for(rows, fields, txn.handle)
                                     ) if fields else {}
        return renumbered(rows, there)

    def copy_files(self, wanted: Mapping[Message, int]) -> dict[Message, CopiedFile]:
        """Copy these messages to the target; what they are there. For a thread: it may take long.

        If nothing on the target refers to a file, it stays there for the purge delay after the Unix time given with it.
        Raises StoreError CORRUPT for a message that the source cannot give, DISK_FULL, UNAVAILABLE.
        """
        found: dict[Message, CopiedFile] = {}
        try:
            for message in sorted(wanted):
                found[message] = self._copy_unless_there(message)
                self.incoming.keep_if_full()
            self.incoming.keep()
        finally:
            self.incoming.drop()
        self.incoming.hold(found, wanted)
        return found

    def _copy_unless_there(self, message: Message) -> CopiedFile:
        """Copy the message, unless it is there; copies wait in the batch."""
        digest, header_length = message
        record = self.source.refs.find(digest)
        if record is None:
            raise StoreError(Problem.CORRUPT, "A message cannot be read", f"no record of message file {digest.hex()}")
        if self.source is self.target:          # a message of the past, whose file is still there
            if usable(self.target, digest) is None:
                raise StoreError(Problem.CORRUPT, "A message cannot be read", f"message file {digest.hex()} is missing")
            return CopiedFile(digest, record.serial, header_length)
        shows_trace = record.trace > 0 and header_length == 0
        waiting = self.incoming.batch.get(digest)
        if waiting is not None and waiting.trace == record.trace:
            return CopiedFile(digest, waiting.serial, header_length)
        if waiting is not None:
            self.incoming.keep()
        known = usable(self.target, digest)
        if known is None and (not shows_trace or fits(self.target, digest, record.trace, record.size)):
            self.incoming.add(staged := self._copy(digest, record))
            return CopiedFile(digest, staged.serial, header_length)
        if known is not None and not shows_trace:
            return CopiedFile(digest, known.serial, known.trace)
        if known is not None and known.trace == record.trace and head_of(self.source, digest, record) == head_of(
                self.target, digest, known):
            return CopiedFile(digest, known.serial, 0)
        return self._copy_whole(digest, record)

    def _copy(self, digest: bytes, record: MessageRecord) -> Staged:
        self.target.check_room()
        cached, = self.source.serials.cached([record.serial])
        with self.source.files.open(digest, record.serial, 0, record.size) as file:
            if cached is None or cached.digest != digest or cached.trace != record.trace:
                cached = self.source.serials.render_cached(digest, record)
            serial = self.target.serials.next_serial()
            return Staged.copied(self.target.files, serial, file, digest, record.trace, cached)

    def _copy_whole(self, digest: bytes, record: MessageRecord) -> CopiedFile:
        """Copy the message with its trace header, as a content of its own."""
        self.target.check_room()
        staged = Staged(self.target.files, self.target.serials.next_serial(), b"", record.size)
        try:
            with self.source.files.open(digest, record.serial, 0, record.size) as file:
                while data := file.read(staged.size, SPILL):
                    staged.write(data)
            staged.finish()
            waiting, known = self.incoming.batch.get(staged.digest), usable(self.target, staged.digest)
            if waiting is None and known is None:
                staged.spill()
                self.incoming.add(staged)
                return CopiedFile(staged.digest, staged.serial, 0)
        except BaseException:
            staged.abort()
            raise
        staged.abort()
        if waiting is not None:
            return CopiedFile(staged.digest, waiting.serial, 0)
        assert known is not None
        return CopiedFile(staged.digest, known.serial, known.trace)


def messages_of(rows: Rows) -> Iterable[Message]:
    """The messages that these records refer to."""
    return zip(rows["digest"].tolist(), rows["header_length"].tolist(), strict=True)


def translated(rows: Rows, found: Mapping[Message, CopiedFile]) -> Rows:
    """The records, with the messages as they are on the other partition."""
    there = [found[message] for message in messages_of(rows)]
    new = rows.copy()
    if there:
        new["digest"] = np.frombuffer(b"".join([copied.digest for copied in there]), rows.dtype["digest"])
        new["serial"] = [copied.serial for copied in there]
        new["header_length"] = [copied.header_length for copied in there]
    return new


def copy_rows(copier: FileCopier, parts: Sequence[Rows], until: int | None = None) -> list[Rows]:
    """The records as they will be on the other partition, where their messages are when this returns.

    Raises what `FileCopier.copy_files` raises.
    """
    when = int(time.time()) if until is None else until
    for _ in range(TRIES):
        try:
            found = copier.copy_files({message: when for rows in parts for message in messages_of(rows)})
        except NotCopied:
            continue
        return [copier.numbered(translated(rows, found)) for rows in parts]
    raise StoreError(Problem.BUSY, detail="the same messages come and go on the other partition")

