"""Message files that nothing claims: they go to a mailbox of the administrator's, never to the bin.

A rebuild leaves some: the message whose record was lost with its `store.idx`, one that came in the last minute before
a crash, one that was expunged and waited for the purge. The mailbox is `store.lost_mailbox`, with one below it for each
partition, since a message file cannot be in a mailbox of another one. It is made when it is needed.

Each message comes with its trace header, which tells whom it was for, and with the date that it says itself. A file
whose octets are not those that its name says gets the right name. Done twice, the second time finds nothing.
"""

import contextlib
import os
import time
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
from attrs import frozen

from mboxlist import privatefiles
from mboxlist.engine.btree import Txn
from mboxlist.engine.disk import sync_folder
from mboxlist.engine.transact import transact
from mboxlist.entry import MailboxEntry
from mboxlist.names import MailboxName, NameProblem
from store.errors import Problem, StoreError
from store.mailboxes import namespace
from store.message.arrivaldate import HEAD, arrived
from store.message.cacherecord import CachedMessage
from store.partition.filecontent import content, likely_digests, trace_of
from store.partition.marks import mark_incomplete
from store.partition.messagereading import MID_OCTETS
from store.partition.partition import Partition
from store.partition.transactions import WriteTxn
from store.rebuild.messagescan import UNKNOWN_FILE
from store.rebuild.outcome import Correction, Outcome
from store.store import Store
from store.tables.index import ROW
from store.tables.references import MessageRecord, mark
from store.values import SWEEP, Finding, InternalDate, Repair

BATCH = 100                     # messages of one transaction


@frozen
class _Message:
    """A file that nothing claims: its digest, arrival serial, what its octets say, and where it was found."""

    digest: bytes
    serial: int
    cached: CachedMessage
    octets: int
    date: InternalDate
    path: Path


def unclaimed(partition: Partition) -> Iterator[Path]:
    """The files in `messages/` to which nothing refers, and which do not wait for the purge."""
    for folder in partition.files.folders():
        try:
            names = sorted(os.listdir(folder))
        except (FileNotFoundError, NotADirectoryError):
            continue
        for name in names:
            path = Path(folder, name)
            if _is_unclaimed(partition, path) and path.is_file() and not path.is_symlink():
                yield path


def _is_unclaimed(partition: Partition, path: Path) -> bool:
    digest = _digest(path.name)
    if digest is None or partition.files.path(digest) != str(path):
        return True
    record = partition.refs.find(digest)
    return record is None or not record.references and not record.released


def take_in_lost(store: Store, partition: Partition, outcome: Outcome) -> None:
    """Message files that nothing claims go to the administrator's mailbox; it is no fault that they were there."""
    taken = take_in(store, partition)
    if not taken.left:
        mark_incomplete(partition.folder, incomplete=False)
    known = {correction.where.removeprefix("message ") for correction in taken.corrections}
    outcome.findings = [finding for finding in outcome.findings
                        if not (finding.what == UNKNOWN_FILE and Path(finding.where).name in known)]
    outcome.add(taken)


def take_in(store: Store, partition: Partition, *, change: bool = True) -> Outcome:
    """Put every unclaimed message of the partition into the mailbox for them; without `change` only say what there is.

    Flushed. Raises StoreError DISK_FULL, UNAVAILABLE.
    """
    taken, batch, entry = Outcome(), list[_Message](), None
    for path in list(unclaimed(partition)):
        where = str(path)
        message = _read(partition, path)
        if message is None:
            taken.left.append(Finding("nothing is known of this file, and it cannot be read", where, SWEEP))
        elif not change:
            taken.left.append(Finding("nothing refers to this file", where))
        elif str(path) != partition.files.path(message.digest) and partition.refs.find(message.digest) is not None:
            taken.corrections.append(Correction(_give_place(partition, message), where))
        else:
            entry = entry or lost_mailbox(store, partition, taken)
            if entry is None:
                return taken
            batch.append(message)
            if len(batch) == BATCH:
                _deliver(partition, entry, batch, taken)
                batch = []
    if batch and entry is not None:
        _deliver(partition, entry, batch, taken)
    return taken


def lost_mailbox(store: Store, partition: Partition, taken: Outcome) -> MailboxEntry | None:
    """The mailbox for what is found on that partition, made when there is none. None when there cannot be one."""
    setting = store.settings.lost_mailbox
    if not setting:
        taken.left.append(Finding("message files to which nothing refers stay where they are: store.lost_mailbox is "
                                  "empty", f"partition {partition.name}", Repair.LOST_MAILBOX.of()))
        return None
    try:
        top = MailboxName.parse(setting)
        name = MailboxName.parse(f"{setting}/{partition.name}")
        if top.owner and store.directory.find(top.owner) is None:
            raise StoreError(Problem.NO_USER, f"there is no user {top.owner}")
        if store.mailboxes.find(top) is None:
            namespace.insert_mailbox(store, top, partition.name, None)
        found = store.mailboxes.find(name)
        while found is not None and found.partition != partition.name:      # somebody has moved it
            name = MailboxName.parse(f"{name}-")
            found = store.mailboxes.find(name)
        return found or namespace.insert_mailbox(store, name, partition.name, None)
    except (StoreError, NameProblem) as error:
        taken.left.append(Finding(f"message files to which nothing refers stay where they are: {error}",
                                  f"store.lost_mailbox, {setting}", Repair.LOST_MAILBOX.of()))
        return None


def _give_place(partition: Partition, message: _Message) -> str:
    """What is done with a file that holds a message which is known, and is not in its place: it gets that, unless a
    file that is whole is there."""
    right = Path(partition.files.path(message.digest))

    def work(txn: Txn) -> str:
        partition.refs.find_to_change(message.digest, txn)         # nobody brings, or purges, it meanwhile
        try:
            there = trace_of(right, message.digest, [message.cached.trace]) is not None
        except FileNotFoundError:
            there = False
        except StoreError as error:         # it is shorter than it was a moment ago
            if error.problem is not Problem.CORRUPT:
                raise
            there = False
        if there:
            message.path.unlink(missing_ok=True)
            return f"it was a second file of message {message.digest.hex()}, and has been removed"
        os.replace(message.path, right)
        sync_folder(right.parent)
        return f"it is message {message.digest.hex()}, and has its name now"

    return transact(partition.env, work)


def _read(partition: Partition, path: Path) -> _Message | None:
    """What a file holds; under its right digest, if it has another message's name."""
    try:
        digest = _digest(path.name)
        found = content(path, digest, []) if digest is not None else None
        if digest is None or found is None:
            likely = likely_digests(path)
            digest = next((each for each in likely if partition.refs.find(each) is not None), likely[0])
            found = content(path, digest, [])
        if found is None:
            return None
        with privatefiles.open_file(path, "rb") as file:
            date = arrived(file.read(HEAD), path.stat().st_mtime)
    except (OSError, StoreError):
        return None
    record = partition.refs.find(digest)
    serial = record.serial if record is not None else partition.serials.next_serial()
    return _Message(digest, serial, *found, date, path)


def _deliver(partition: Partition, entry: MailboxEntry, batch: list[_Message], taken: Outcome) -> None:
    """Put them into the mailbox, but for those that have come, or gone, meanwhile."""
    right = {message.digest: Path(partition.files.path(message.digest)) for message in batch}
    for message in batch:
        if message.path != right[message.digest]:
            with contextlib.suppress(FileExistsError):
                os.link(message.path, right[message.digest])
            sync_folder(right[message.digest].parent)
    while batch:
        try:
            partition.transact(partial(_arrive, entry=entry, batch=batch))
            break
        except _Claimed as claimed:
            batch = [message for message in batch if message.digest != claimed.digest]
    partition.flush()
    for message in batch:
        if message.path != right[message.digest]:
            message.path.unlink(missing_ok=True)
        taken.corrections.append(Correction(f"nothing referred to it: it is in {entry.name}",
                                            f"message {message.digest.hex()}"))


class _Claimed(Exception):
    """Something refers to the message after all."""

    def __init__(self, digest: bytes) -> None:
        self.digest = digest
        super().__init__()


def _arrive(txn: WriteTxn, entry: MailboxEntry, batch: Iterable[_Message]) -> None:
    """A record for each of them, and then the record of each file; these rows are locked last. Raises _Claimed."""
    txn.state(entry.id)
    uids = {}
    for message in batch:
        uid, modseq = txn.arrive(entry.id, message.octets, 0, enforce=False, delivery=False)
        row = np.zeros(1, ROW)
        for name, value in {"uid": uid, "modseq": modseq, "zone": message.date.zone, "received": message.date.seconds,
                            "size": message.octets, "serial": message.serial, "saved": int(time.time())}.items():
            row[name] = value
        row["digest"] = np.frombuffer(message.digest, "V32")
        txn.append_arrival(entry.id, uid, row.tobytes())
        uids[message.digest] = uid
    for message in sorted(batch, key=lambda each: each.digest):
        digest, record = message.digest, txn.refs.find_to_change(message.digest, txn.handle)
        if record is not None and (record.references or record.released or record.serial != message.serial):
            raise _Claimed(digest)
        if not os.path.exists(txn.partition.files.path(digest)):
            raise _Claimed(digest)
        txn.refs.write(digest, MessageRecord(message.serial, 0, message.octets, message.cached.trace), txn.handle)
        txn.refs.add(digest, 1, mark(entry.id, uids[digest]), txn.handle)
    txn.partition.serials.write_all_cached([(message.serial, message.cached) for message in batch], txn.handle)


def _digest(name: str) -> bytes | None:
    """The digest that is the name of a message file."""
    try:
        digest = bytes.fromhex(name)
    except ValueError:
        return None
    return digest if len(digest) == MID_OCTETS and digest.hex() == name else None
