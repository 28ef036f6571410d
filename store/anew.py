"""Cache records made anew from message files, and message files looked at: for the messages of some mailboxes."""

import os
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TYPE_CHECKING

from mboxlist.entry import MailboxEntry
from store.cache import CachedMessage
from store.errors import Problem, StoreError
from store.findings import RESTORE, Finding
from store.partition import Partition
from store.refs import MessageRecord
from store.remains import content
from store.repair import Correction
from store.txn import WriteTxn

if TYPE_CHECKING:
    from store.store import Store

BATCH = 200                 # messages that are read before what differs is written

Tell = Callable[[int], None]            # so many messages more have been read


def messages_of(store: "Store", entries: Iterable[MailboxEntry], uids: Callable[[int], bool] | None = None
                ) -> dict[str, set[bytes]]:
    """The digests of the messages in these mailboxes, or of those UIDs, by partition. Raises StoreError."""
    found: dict[str, set[bytes]] = {}
    for entry in entries:
        picture = store.open_mailbox(entry)
        mids = picture.rows["mid"].tolist()
        if uids is not None:
            mids = [mid for uid, mid in zip(picture.rows["uid"].tolist(), mids, strict=True) if uids(uid)]
        found.setdefault(picture.entry.partition, set()).update(mids)
    return found


def look_at_files(partition: Partition, mids: Collection[bytes]) -> Iterator[Finding]:
    """The message files that are not there, or not as long as they were."""
    for mid in sorted(mids):
        record = partition.refs.find(mid)
        if record is None:
            continue                        # who counts references says so
        size = _size(partition, mid, record.serial)
        if size is None:
            yield Finding("its file is missing", f"message {mid.hex()}", RESTORE)
        elif size != record.size:
            yield Finding(f"its file has {size} octets instead of {record.size}", f"message {mid.hex()}", RESTORE)


def _size(partition: Partition, mid: bytes, serial: int) -> int | None:
    """The octets of a message file; None when it is not there. (This is asked of each message of a mailbox.)"""
    for path in (partition.files.path(mid), partition.files.staged_path(serial), partition.files.path(mid)):
        try:
            return os.stat(path).st_size
        except FileNotFoundError:
            continue                        # it may have got its place between two looks
    return None


def recache(partition: Partition, mids: Collection[bytes], *, change: bool = True, verify: bool = False,
            tell: Tell = lambda count: None) -> Iterator[Correction | Finding]:
    """Make the cache records of these messages anew from their files, also those that are there; what was wrong with
    any. With `verify` the octets of each file are compared with its digest.

    A message that was expunged or purged meanwhile is passed over. Raises StoreError BUSY, UNAVAILABLE, DISK_FULL.
    """
    # In order of arrival: files and cache records lie on the disk in that order.
    known = sorted((record.serial, mid, record) for mid in mids if (record := partition.refs.find(mid)) is not None)
    for at in range(0, len(known), BATCH):
        some = known[at:at + BATCH]
        stored = partition.cached([serial for serial, _, _ in some])
        wrong = []
        for (_, mid, record), cached in zip(some, stored, strict=True):
            try:
                new = _made(partition, mid, record, verify=verify)
            except (OSError, StoreError) as error:
                if partition.refs.find(mid) is not None:
                    detail = error.detail or str(error) if isinstance(error, StoreError) else str(error)
                    yield Finding(f"its file cannot be used: {detail}", f"message {mid.hex()}", RESTORE)
                continue
            if cached is None or cached.to_bytes() != new.to_bytes():
                wrong.append((mid, record, new))
                yield Correction("it had no cache record of its own" if cached is None or cached.mid != mid else
                                 "its cache record said other things than its file", f"message {mid.hex()}")
        if wrong and change:
            partition.transact(lambda txn, wrong=wrong: _write(txn, wrong))         # type: ignore[misc]
        tell(len(some))
    if change:
        partition.flush()


def _made(partition: Partition, mid: bytes, record: MessageRecord, *, verify: bool) -> CachedMessage:
    """Raises StoreError CORRUPT, OSError."""
    if verify:
        path = partition.files.locate(mid, record.serial)
        found = content(path, mid, [record.trace]) if path is not None else None
        if path is not None and found is None:
            raise StoreError(Problem.CORRUPT, detail="it does not agree with its digest")
        if found is not None:
            return found[0]
    return partition.cached_anew(mid, record)


def _write(txn: WriteTxn, wrong: list[tuple[bytes, MessageRecord, CachedMessage]]) -> None:
    for mid, record, cached in wrong:
        now = txn.refs.find(mid, txn.handle)
        if now is not None and now.serial == record.serial:
            txn.partition.write_cached(record.serial, cached, txn.handle)
