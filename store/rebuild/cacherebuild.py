"""Cache records rebuilt from message files, and message files looked at: for the messages of some mailboxes."""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import evolve
from numpy.typing import NDArray

from mboxlist.entry import MailboxEntry
from store.errors import Problem, StoreError
from store.message.cacherecord import CachedMessage
from store.partition.filecontent import content
from store.partition.filelooks import read_through, sizes
from store.partition.partition import Partition
from store.partition.transactions import WriteTxn
from store.rebuild.outcome import Correction
from store.store import Store
from store.tables.references import MessageRecord
from store.values import RESTORE, Finding

if TYPE_CHECKING:           # who finds nothing wrong loads nothing that rebuilds
    from store.rebuild.loader import KnownFile

READ_AT_A_TIME = 200        # messages that are read before what differs is written
CACHED_AT_A_TIME = 500      # cache records that are exchanged in one transaction
LOOKED_AT_A_TIME = 2000     # messages that are looked at at a time
KNOWN = np.dtype([("digest", "V32"), ("serial", "<u8"), ("size", "<u8"), ("trace", "<u4")])

Tell = Callable[[int], None]            # so many messages more have been read


def messages_of(store: Store, entries: Iterable[MailboxEntry], uids: Callable[[int], bool] | None = None
                ) -> dict[str, set[bytes]]:
    """The digests of the messages in these mailboxes, or of those UIDs, by partition. Raises StoreError."""
    found: dict[str, set[bytes]] = {}
    for entry in entries:
        view = store.open_mailbox(entry)
        digests = view.rows["digest"].tolist()
        if uids is not None:
            digests = [digest for uid, digest in zip(view.rows["uid"].tolist(), digests, strict=True) if uids(uid)]
        found.setdefault(view.entry.partition, set()).update(digests)
    return found


def look_at(partition: Partition, said: NDArray[Any], *, deep: bool = False, change: bool = True,
            tell: Tell = lambda count: None) -> Iterator[Correction | Finding]:
    """What is wrong with the messages of which messages.db says this (`known`, `recount_some`). A file must be there,
    and as long as it was when it came; with `deep` it is read, and its content must agree with the digest. A cache
    record that is missing, cannot be read or is another message's is rebuilt from the file, with `change`.

    A message that was expunged or purged meanwhile is passed over. Raises StoreError BUSY, UNAVAILABLE, DISK_FULL.
    """
    order = np.argsort(said["serial"])          # of arrival: files and cache records lie on the disk in that order
    for at in range(0, len(order), LOOKED_AT_A_TIME):
        figures = said.take(order[at:at + LOOKED_AT_A_TIME])
        some = figures["digest"]
        there = figures["serial"] != 0          # of any other, who counts references says that it is not known
        right = read_through(partition.files, figures) if deep else np.zeros(len(some), np.bool_)
        bad = there & ~right
        measured = figures.take(np.flatnonzero(bad))
        bad[bad] = _sizes(partition, measured) != measured["size"]
        for digest in some[bad].tolist():
            yield from _look_again(partition, digest)
        if deep:
            for place in np.flatnonzero(there & ~bad & ~right).tolist():
                yield from recache(partition, [some[place].tobytes()], change=change, verify=True)
        without = there & ~bad & ~partition.serials.are_cached(figures["serial"], some, figures["trace"])
        if without.any():
            yield from recache(partition, some[without].tolist(), change=change)
        tell(len(some))


def known(partition: Partition, digests: Collection[bytes]) -> NDArray[Any]:
    """What messages.db says of these messages."""
    every = sorted(digests)
    found = np.empty(len(every), KNOWN)
    found["digest"] = np.frombuffer(b"".join(every), KNOWN["digest"])
    figures = partition.refs.figures(found["digest"])
    for name in ("serial", "size", "trace"):
        found[name] = figures[name]
    return found


def _look_again(partition: Partition, digest: bytes) -> Iterator[Finding]:
    """What is wrong with a message file that was not there, or had not the right length: it may have been purged."""
    record = partition.refs.find(digest, raw=True)
    if record is None:
        return
    size = _size(partition, digest, record.serial)
    if size < 0:
        yield Finding("its file is missing", f"message {digest.hex()}", RESTORE)
    elif size != record.size:
        yield Finding(f"its file has {size} octets instead of {record.size}", f"message {digest.hex()}", RESTORE)


def _sizes(partition: Partition, figures: NDArray[Any]) -> NDArray[np.int64]:
    """The octets of these message files; -1 for one that is not there. Raises OSError."""
    found = sizes(partition.files, figures["digest"])
    for place in np.flatnonzero(found < 0).tolist():
        found[place] = _size(partition, figures["digest"][place].tobytes(), int(figures["serial"][place]))
    return found


def _size(partition: Partition, digest: bytes, serial: int) -> int:
    """The octets of a message file; -1 when it is not there."""
    path = partition.files.path(digest)
    for place in (path, None, path):
        try:
            return os.stat(partition.files.staged_path(serial) if place is None else place).st_size
        except FileNotFoundError:
            continue                        # it may have got its place between two looks
    return -1


def recache(partition: Partition, digests: Collection[bytes], *, change: bool = True, verify: bool = False,
            tell: Tell = lambda count: None) -> Iterator[Correction | Finding]:
    """Rebuild the cache records of these messages from their files, also those that are there; what was wrong with
    any. With `verify` the octets of each file are compared with its digest.

    A message that was expunged or purged meanwhile is passed over. Raises StoreError BUSY, UNAVAILABLE, DISK_FULL.
    """
    # In order of arrival: files and cache records lie on the disk in that order.
    known = sorted((record.serial, digest, record) for digest in digests
                   if (record := partition.refs.find(digest, raw=True)) is not None)
    for at in range(0, len(known), READ_AT_A_TIME):
        some = known[at:at + READ_AT_A_TIME]
        stored = partition.serials.cached([serial for serial, _, _ in some])
        wrong = []
        for (_, digest, record), cached in zip(some, stored, strict=True):
            try:
                new = _made(partition, digest, partition.refs.complete(digest, record), verify=verify)
            except (OSError, StoreError) as error:
                if partition.refs.find(digest, raw=True) is not None:
                    detail = error.detail or str(error) if isinstance(error, StoreError) else str(error)
                    yield Finding(f"its file cannot be used: {detail}", f"message {digest.hex()}", RESTORE)
                continue
            if cached is None or cached.data != new.data:
                wrong.append((digest, record, new))
                yield Correction(_fault(cached, digest), f"message {digest.hex()}")
        if wrong and change:
            partition.transact(lambda txn, wrong=wrong: _write(txn, wrong))         # type: ignore[misc]
        tell(len(some))
    if change:
        partition.flush()


def _made(partition: Partition, digest: bytes, record: MessageRecord, *, verify: bool) -> CachedMessage:
    """Raises StoreError CORRUPT, OSError."""
    if verify:
        path = partition.files.locate(digest, record.serial)
        found = content(path, digest, [record.trace]) if path is not None else None
        if path is not None and found is None:
            raise StoreError(Problem.CORRUPT, detail="it does not agree with its digest")
        if found is not None:
            return found[0]
    return partition.serials.render_cached(digest, record)


def _write(txn: WriteTxn, wrong: list[tuple[bytes, MessageRecord, CachedMessage]]) -> None:
    for digest, record, cached in wrong:
        now = txn.refs.find(digest, txn.handle)
        if now is not None and now.serial == record.serial:
            txn.partition.serials.write_cached(record.serial, cached, txn.handle)


# What another source says of message files

def correct_cached(partition: Partition, files: "Iterable[KnownFile]", *, change: bool) -> Iterator[Correction]:
    """Exchange the cache records, and the sizes of message files, that are others than these; of the records of the
    files their sizes and trace headers count."""
    held: list[KnownFile] = []
    for each in files:
        if _wrong(partition, each) is not None:
            held.append(each)
        if len(held) >= CACHED_AT_A_TIME:
            yield from partition.transact(lambda txn, held=held: _exchange(txn, held, change))      # type: ignore[misc]
            held = []
    if held:
        yield from partition.transact(lambda txn: _exchange(txn, held, change))


def _wrong(partition: Partition, wanted: "KnownFile", txn: WriteTxn | None = None) -> str | None:
    """What is wrong with what the partition says of a message file."""
    digest, right, octets = wanted
    record = partition.refs.find(digest) if txn is None else txn.refs.find_to_change(digest, txn.handle)
    if record is None:
        return None                     # what refers to it, if anything, is found when references are counted
    if (record.size, record.trace) != (right.size, right.trace):
        return (f"its file has {right.size} octets, {right.trace} of them a trace header; known were "
                f"{record.size}, {record.trace}")
    cached = partition.serials.cached([record.serial], None if txn is None else txn.handle)[0]
    return _fault(cached, digest) if cached is None or cached.data != octets else None


def _exchange(txn: WriteTxn, files: "Sequence[KnownFile]", change: bool) -> list[Correction]:
    done = []
    for wanted in sorted(files, key=lambda each: each[0]):
        digest, right, octets = wanted
        what, record = _wrong(txn.partition, wanted, txn), txn.refs.find(digest, txn.handle)
        if what is None or record is None:
            continue
        if change:
            txn.refs.write(digest, evolve(record, size=right.size, trace=right.trace), txn.handle)
            txn.partition.serials.write_cached(record.serial, CachedMessage.from_bytes(octets), txn.handle)
        done.append(Correction(what, f"message {digest.hex()}"))
    return done


def _fault(cached: CachedMessage | None, digest: bytes) -> str:
    if cached is None or cached.digest != digest:
        return "it had no cache record of its own"
    return "its cache record said other things than its file"
