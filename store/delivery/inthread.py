"""As `durable.deliver`, but all in the thread that calls it: for messages that the store itself makes."""

from mboxlist.engine.troubles import after_commit
from store.delivery.commit import Target, commit
from store.errors import StoreError
from store.partition.partition import Partition
from store.partition.staged import Staged
from store.values import InternalDate


def deliver_here(partition: Partition, target: Target, octets: bytes, received: InternalDate, trace: bytes = b""
                 ) -> None:
    """Deliver a message to a mailbox of the partition; on disk when this returns. Raises StoreError, Unflushed."""
    staged = staged_here(partition, octets, trace)
    try:
        outcome, = commit(partition, staged, [target], received)
        if not staged.committed:
            staged.abort()
    except BaseException:
        staged.abort()
        raise
    partition.flush()
    staged.place()
    if isinstance(outcome, StoreError):
        raise outcome


def staged_here(partition: Partition, octets: bytes, trace: bytes = b"") -> Staged:
    """The message, whole and on disk below its staged name. Raises StoreError."""
    staged = partition.stage(trace)
    try:
        staged.write(octets)
        staged.finish()
        staged.sync()
        staged.files.sync_names(staged.names_since)
        staged.close()
    except BaseException:
        after_commit(staged.abort)
        raise
    return staged
