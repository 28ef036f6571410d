"""Messages to one mailbox that a client has sent without waiting for answers. They have nothing to do with each other,
but are there at the same time. They share syncs and one transaction, and each is delivered or refused by itself. When
that cannot be done, the caller delivers them one after the other."""

import time
from collections.abc import Sequence

from mboxlist.engine.troubles import after_commit
from store.delivery.commit import NotOnDisk, Target, commit_each
from store.delivery.concealment import stored_lately
from store.delivery.durable import durability_of, put_on_disk
from store.delivery.severalmessages import secure, spared_of
from store.errors import StoreError
from store.offload import AT_ONCE, change
from store.partition.partition import Partition
from store.partition.staged import Staged
from store.store import Store
from store.values import InternalDate

Message = tuple[Staged, Target, InternalDate | None]


async def deliver_each(store: Store, messages: Sequence[Message]) -> list[int | StoreError] | None:
    """Deliver these received messages, at most `durable.FEW`, in their order; returns for each its UID, or why it was
    refused. When this returns they are on disk, and the staged messages are used up.

    None: they cannot be delivered together. Nothing has been done, and the caller delivers each alone
    (`durable.deliver`) when its turn has come, so that its answer waits for no other. Raises Unflushed; the staged
    messages are used up then.
    """
    now = InternalDate(int(time.time()))
    arrived = [(staged, target, received or now) for staged, target, received in messages]
    try:
        partition = store.partition_of(arrived[0][1].entry)
        if not all(staged.files is partition.files for staged, _, _ in arrived):
            return None
        outcomes = await _deliver_together(store, partition, arrived)
    except (NotOnDisk, StoreError):         # perhaps because of one of them: alone each gets its own answer
        return None
    except BaseException:
        _discard(store, arrived)
        raise
    _discard(store, arrived)
    return outcomes


def _discard(store: Store, arrived: Sequence[tuple[Staged, Target, InternalDate]]) -> None:
    """Discard those whose file is not needed."""
    for staged, _, _ in arrived:
        if not staged.committed:
            after_commit(durability_of(store).discard, staged)


async def _deliver_together(store: Store, partition: Partition, arrived: Sequence[tuple[Staged, Target, InternalDate]]
                            ) -> list[int | StoreError]:
    """Deliver them in one transaction. Raises NotOnDisk, StoreError, and then none is delivered; Unflushed."""
    files = [staged for staged, _, _ in arrived]
    await secure(store, partition, files, spared_of(store, partition, arrived))
    outcomes = await change(store, lambda: commit_each(partition, arrived, seconds=AT_ONCE))
    for (staged, target, _), outcome in zip(arrived, outcomes, strict=True):
        if not isinstance(outcome, StoreError):
            after_commit(stored_lately(store).note, store, target, staged)
            staged.left = staged.concealed
    await put_on_disk(store, durability_of(store), partition, files)
    return outcomes
