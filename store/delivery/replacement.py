"""Replaces a message file to which records refer, and which has been lost or has other octets than it had: the same
message has been sent again."""

import logging

from mboxlist.engine.transact import transact
from store.errors import Problem, StoreError
from store.partition.partition import Partition
from store.partition.staged import Staged
from store.partition.transactions import WriteTxn
from store.tables.references import UNSEEN_TRACE

log = logging.getLogger(__name__)


class LostFile(StoreError):
    """Records refer to a file of that content, which is lost; and the new file cannot take its place."""

    def __init__(self, digest: bytes) -> None:
        super().__init__(Problem.CORRUPT, "A message cannot be kept",
                         f"message file {digest.hex()} is missing, and what came begins otherwise")
        self.digest = digest


def fits(partition: Partition, digest: bytes, trace: int, size: int | None = None, txn: WriteTxn | None = None) -> bool:
    """Whether a file of that content, behind a trace header of that length, can be the one that records refer to, if
    any do.

    If nobody has looked at the file since databases were rebuilt, its `size` decides.
    """
    record = partition.refs.find(digest, None if txn is None else txn.handle, raw=True)
    if record is None or not record.references:
        return True
    if record.trace == UNSEEN_TRACE:
        return size is not None and record.size in (0, size)
    return record.trace == trace and size in (None, record.size)


def put_back(partition: Partition, staged: Staged, txn: WriteTxn) -> None:
    """Put a synced message in the place of the file to which records refer. On disk when this returns.

    Raises StoreError UNAVAILABLE; CORRUPT when it does not fit, so that no answer says that the message is kept.
    """
    require_fit(partition, staged, txn)
    record = txn.refs.find(staged.digest, txn.handle, raw=True)
    partition.files.put_back(staged.digest, staged.serial, staged.serial if record is None else record.serial)
    log.warning("message file %s was missing; the same message has come again, and restored it",
                staged.digest.hex())


def require_fit(partition: Partition, staged: Staged, txn: WriteTxn | None = None) -> None:
    """Raises LostFile, CORRUPT, when records refer to a file of that content, and this one cannot take its place."""
    if not fits(partition, staged.digest, staged.trace, staged.size, txn):
        raise LostFile(staged.digest)


def let_go(partition: Partition, digest: bytes) -> bool:
    """Give up expunged messages whose file of that content is lost, if no other messages use the file; whether that was
    done. They cannot be restored any more: nobody could read them. Then the content can come as a new one. For a
    thread: it reads all that was expunged."""
    record = partition.refs.find(digest, raw=True)
    keys, held = list[bytes](), 0
    for item in partition.removed.held():
        count = item.rows["digest"].tolist().count(digest)
        held += count
        if count:
            keys.append(item.key)
    if record is None or not held or record.references != held:
        return False
    for key in keys:
        transact(partition.env, lambda txn, key=key: partition.removed.drop(       # type: ignore[misc]
            key, lambda each, serial: each != digest, txn))
    log.warning("message file %s was missing; what was expunged of it cannot be restored any more", digest.hex())
    return True
