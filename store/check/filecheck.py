"""The message files of a partition: what messages.db, the records, and the folders say of each."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from attrs import define, field
from numpy.typing import NDArray

from mboxlist.engine.btree import Txn
from mboxlist.entry import MailboxId
from store.errors import StoreError
from store.mend.staging import left_over
from store.partition.filecontent import trace_of
from store.partition.marks import is_incomplete
from store.partition.messagereading import digest_in
from store.partition.partition import Partition
from store.progress import Tell, silent
from store.store import Store
from store.tables.index import Rows
from store.tables.references import FOREVER, UNSEEN_TRACE, MessageRecord, marks
from store.values import RECONSTRUCT, RESTORE, SWEEP, Command, Finding, Repair

TOLD = 1000                 # message files after which is told how far it is


@define(eq=False)
class Messages:
    """messages.db in columns, in order of arrival serial, and what the records that were counted so far say."""

    records: dict[bytes, MessageRecord]
    digests: NDArray[np.void]
    serials: NDArray[np.uint64]
    sizes: NDArray[np.uint64]
    traces: NDArray[np.uint64]
    references: NDArray[np.int64] = field(init=False)
    held: NDArray[np.int64] = field(init=False)         # those among them that have been expunged
    checks: NDArray[np.uint64] = field(init=False)
    unknown: dict[bytes, int] = field(factory=dict)     # references to what messages.db does not know
    sure: bool = True                                   # all records could be counted

    def __attrs_post_init__(self) -> None:
        self.references = np.zeros(len(self.serials), np.int64)
        self.held = np.zeros(len(self.serials), np.int64)
        self.checks = np.zeros(len(self.serials), np.uint64)

    @classmethod
    def of(cls, partition: Partition, txn: Txn) -> "Messages":
        """Those of a partition."""
        records = dict(sorted(partition.refs.all(txn), key=lambda item: item[1].serial))
        figures = np.array([(record.serial, record.size, record.trace) for record in records.values()], np.uint64)
        figures = figures.reshape(-1, 3)
        digests = np.frombuffer(b"".join(records), "V32") if records else np.empty(0, "V32")
        return cls(records, digests, figures[:, 0], figures[:, 1], figures[:, 2])

    def _fitting(self, rows: Rows) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
        """The message of each record by its serial, and whether it is the right one."""
        if not len(self.serials):
            return np.zeros(len(rows), np.intp), np.zeros(len(rows), np.bool_)
        at = np.minimum(np.searchsorted(self.serials, rows["serial"]), len(self.serials) - 1)
        return at, (self.serials[at] == rows["serial"]) & (self.digests[at] == rows["digest"])

    def count(self, mailbox: MailboxId, rows: Rows, *, sure: bool, held: bool = False) -> None:
        """Count the references of these records; not `sure`: the mailbox has others that cannot be read; `held`: they
        have been expunged."""
        self.sure = self.sure and sure
        at, fits = self._fitting(rows)
        values = marks(mailbox, rows["uid"])
        np.add.at(self.references, at[fits], 1)
        np.add.at(self.held, at[fits], int(held))
        np.add.at(self.checks, at[fits], values[fits])
        for place in np.flatnonzero(~fits).tolist():
            digest = bytes(rows["digest"][place])
            record = self.records.get(digest)
            if record is None:
                self.unknown[digest] = self.unknown.get(digest, 0) + 1
            else:
                number = int(np.searchsorted(self.serials, record.serial))
                self.references[number] += 1
                self.checks[number:number + 1] += values[place:place + 1]

    def wrong(self, rows: Rows, private_headers: NDArray[np.int64]) -> list[int]:
        """The UIDs of the records that disagree with what is known of their messages; `private_headers` is the octets
        of header fields of its own that each has."""
        at, fits = self._fitting(rows)
        if len(self.serials):
            octets = self.sizes[at].astype(np.int64) + private_headers
            fits &= (octets == (rows["size"] + rows["header_length"]).astype(np.int64)) & (
                (rows["header_length"] == 0) | (self.traces[at] == rows["header_length"]))
        return [int(row["uid"]) for row in rows[~fits] if bytes(row["digest"]) in self.records]


def look(store: Store, partition: Partition, messages: Messages, txn: Txn, suspects: set[str] | None,
         tell: Tell = silent) -> Iterator[Finding]:
    """What is wrong, when all records have been counted; with `suspects`, files are looked at there alone."""
    waiting = set(partition.refs.waiting(FOREVER, txn=txn))
    for digest, references in sorted(messages.unknown.items()):
        yield Finding(f"{references} records refer to it, and nothing is known of it", f"message {digest.hex()}")
    for done, (digest, record, references, held, check) in enumerate(zip(
            messages.records, messages.records.values(), messages.references.tolist(), messages.held.tolist(),
            messages.checks.tolist(), strict=True)):
        if not done % TOLD:
            tell(f"{partition.name}: message files", done, len(messages.records))
        where = f"message {digest.hex()}"
        if record.references != references and (messages.sure or record.references < references):
            yield Finding(f"{references} records refer to it, counted are {record.references}", where)
        elif record.check != check and messages.sure:
            yield Finding("the records that refer to it are not those that were counted", where)
        if record.trace == UNSEEN_TRACE:
            yield Finding("its file cannot be read now", where, RESTORE)
            continue
        if record.trace > record.size:
            yield Finding(f"its trace header is {record.trace} of its {record.size} octets", where)
        if not record.references and (record.released, digest) not in waiting:
            yield Finding("nothing refers to it, and it does not wait for the purge", where)
        if suspects is None or where in suspects:
            yield from _look_at_file(partition, digest, record, where, missed=record.references > held)
    for released, digest in sorted(waiting):
        known = messages.records.get(digest)
        if known is None:
            yield Finding(f"it waits for the purge since {released}, and nothing is known of it",
                          f"message {digest.hex()}")
        elif known.released < released:
            yield Finding(f"it waits for the purge since {released}, and was not released then",
                          f"message {digest.hex()}")
    for serial in messages.serials[1:][messages.serials[1:] == messages.serials[:-1]].tolist():
        yield Finding(f"two messages have the arrival serial {serial}", f"partition {partition.name}")
    if len(messages.serials) and int(messages.serials[-1]) >= partition.serials.first_free(txn):
        yield Finding(f"the arrival serial {messages.serials[-1]} will be given out again",
                      f"partition {partition.name}")
    yield from _look_at_folders(partition, messages, txn, suspects)
    yield from _look_at_staging(store, partition)


def _look_at_file(partition: Partition, digest: bytes, record: MessageRecord, where: str, *, missed: bool
                  ) -> Iterator[Finding]:
    if partition.files.journalled is not None and partition.files.journalled.has(record.serial):
        return                          # it is read there; who opens the store for writing mends the file
    path = partition.files.locate(digest, record.serial)
    if path is None:
        final = partition.files.path(digest)
        if missed and os.path.isdir(os.path.dirname(final)) and not os.path.lexists(final):     # else see `layout`
            yield Finding("its file is missing", where, RESTORE)
        return
    try:
        status = path.lstat()
    except FileNotFoundError:           # purged, or given its place, at this moment
        return
    if not stat.S_ISREG(status.st_mode):        # see `layout`
        return
    if status.st_size != record.size:
        whole = _is_whole(path, digest, record)
        yield Finding(f"its file has {status.st_size} octets instead of {record.size}" + (
            ", and is whole" if whole else ""), where, RECONSTRUCT if whole else RESTORE)
        if not whole:
            return
    if not missed:                      # nobody opens it again
        return
    cached = partition.serials.cached([record.serial])[0]
    if cached is None:
        yield Finding("it has no cache record", where)
    elif cached.digest != digest or cached.trace != record.trace:
        yield Finding("its cache record is another message's", where)


def _is_whole(path: Path, digest: bytes, record: MessageRecord) -> bool:
    """Whether the file holds what its name says."""
    try:
        return trace_of(path, digest, [record.trace]) is not None
    except (OSError, StoreError):
        return False


def _look_at_folders(partition: Partition, messages: Messages, txn: Txn, suspects: set[str] | None
                     ) -> Iterator[Finding]:
    """Every file in a folder belongs there; whether all are there, and what else is in them, `layout` tells. (Those in
    `staging/` may be on their way.)"""
    for folder in partition.files.folders():
        try:
            names = os.listdir(folder)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            yield Finding(f"the folder cannot be read: {error.strerror}", folder, RESTORE)
            continue
        for name in names:
            path, digest = f"{folder}/{name}", digest_in(name)
            if digest not in messages.records and (suspects is None or path in suspects) and (
                    not digest or path == partition.files.path(digest)):
                yield from _look_at_stranger(partition, path, txn)


def repair_of_strangers(partition: Partition) -> Command:
    """The command for message files of which nothing is known: those that a lost record may have had are not swept."""
    kept = is_incomplete(partition.folder) or partition.outdated
    return Repair.RECONSTRUCT_PARTITION.of(partition.name) if kept else SWEEP


def _look_at_stranger(partition: Partition, path: str, txn: Txn) -> Iterator[Finding]:
    if partition.refs.find(digest_in(os.path.basename(path)), txn) is None and is_file(path):
        kept = repair_of_strangers(partition)
        yield Finding("nothing is known of this file", path, RECONSTRUCT if kept == SWEEP else kept)


def is_file(path: str) -> bool:
    """Whether there is a file: not a link, a folder, or another thing, which `layout` tells of."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False


def _look_at_staging(store: Store, partition: Partition) -> Iterator[Finding]:
    """Other processes have files there that only they know."""
    for serial in left_over(store, partition):
        yield Finding("it was left over", partition.files.staged_path(serial))
