"""What comes in place of a message file that has been lost, or has not the octets that it had, although records refer
to it: the same message, sent again by whoever has it in hand."""

import logging

from store.errors import Problem, StoreError
from store.partition.partition import Partition
from store.partition.staged import Staged
from store.partition.transactions import WriteTxn
from store.tables.references import UNSEEN_TRACE

log = logging.getLogger(__name__)


def fits(partition: Partition, digest: bytes, trace: int, size: int | None = None, txn: WriteTxn | None = None) -> bool:
    """Whether a file of that content behind so long a trace header can be the one that records refer to, if any do.

    Where nobody has looked at the file since databases were rebuilt, its `size` tells.
    """
    record = partition.refs.find(digest, None if txn is None else txn.handle, raw=True)
    if record is None or not record.references:
        return True
    if record.trace == UNSEEN_TRACE:
        return size is not None and record.size in (0, size)
    return record.trace == trace and size in (None, record.size)


def put_back(partition: Partition, staged: Staged, txn: WriteTxn) -> None:
    """Have a synced message as the file to which records refer. On disk when this returns.

    Raises StoreError UNAVAILABLE; CORRUPT when it does not fit, so that no answer says that the message is kept.
    """
    require_fit(partition, staged, txn)
    record = txn.refs.find(staged.digest, txn.handle, raw=True)
    partition.files.put_back(staged.digest, staged.serial, staged.serial if record is None else record.serial)
    log.warning("message file %s was missing; the same message has come again, and restored it",
                staged.digest.hex())


def require_fit(partition: Partition, staged: Staged, txn: WriteTxn | None = None) -> None:
    """Raises StoreError CORRUPT when records refer to a file of that content that this one cannot be."""
    if not fits(partition, staged.digest, staged.trace, staged.size, txn):
        raise StoreError(Problem.CORRUPT, "A message cannot be kept",
                         f"message file {staged.digest.hex()} is missing, and what came begins otherwise")
